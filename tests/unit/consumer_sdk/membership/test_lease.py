"""Lease: records are returned only while the coordinator surely knows this member."""

from hypothesis import given
from hypothesis import strategies as st

from trimtab.consumer_sdk.membership.lease import Lease

times = st.floats(0, 1000)


def test_an_answered_heartbeat_renews_the_lease_from_when_it_was_sent() -> None:
    """The broker's timer started no earlier than that."""
    lease = Lease(timeout=10.0, last_contact=0.0).renew_by_heartbeat(sent_at=5.0, received_at=5.2)
    assert lease.is_valid(13.9)
    assert not lease.is_valid(14.1)


def test_a_lease_ends_a_tenth_before_the_session() -> None:
    """At that moment it has ended."""
    lease = Lease(timeout=10.0, last_contact=0.0)
    assert lease.is_valid(8.999)
    assert not lease.is_valid(9.0)


def test_an_unanswered_heartbeat_renews_nothing() -> None:
    """A sent request alone proves nothing."""
    lease = Lease(timeout=10.0, last_contact=0.0)
    assert lease.renew_by_heartbeat(sent_at=8.0, received_at=7.0) == lease


def test_a_contact_that_is_no_later_makes_no_new_lease() -> None:
    """`poll` renews the lease several times for each record."""
    lease = Lease(timeout=10.0, last_contact=5.0)
    assert lease.renew(5.0) is lease
    assert lease.renew(4.0) is lease
    assert lease.renew(6.0) == Lease(timeout=10.0, last_contact=6.0)


@given(times, times, times, times)
def test_a_lease_never_outlives_the_session(contact: float, sent: float, received: float, now: float) -> None:
    """A valid lease always has a contact within the session timeout."""
    lease = Lease(10.0, contact).renew_by_heartbeat(sent, received)
    newest = max(contact, sent if received >= sent else contact)
    assert lease.last_contact == newest
    assert lease.is_valid(now) == (now - newest < 9.0)
