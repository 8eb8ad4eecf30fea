"""What a member knows of its last round."""

from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from trimtab.assignor.rebalance.user_data import AssignmentUserData
from trimtab.common.clock import SystemClock
from trimtab.consumer_sdk.membership.classic.sticky_assignor import OwnershipStickyAssignor
from trimtab.consumer_sdk.membership.classic.timed_assignor import TimedAssignor


def encode_assignment(data: bytes) -> ConsumerProtocolAssignment:
    return ConsumerProtocolAssignment(version=0, assigned_partitions=[], user_data=data)


def test_a_round_of_another_assignor_is_never_the_only_one() -> None:
    """Its owners join again: nobody was promised what they give up."""
    assignor = TimedAssignor(SystemClock(), confirms_releases=True)
    only = AssignmentUserData("abc", is_only_round=True).encode()
    assignor.on_assignment(encode_assignment(only), 7)
    assert assignor.is_only_round_in(7)
    assert not assignor.is_only_round_in(-1)
    OwnershipStickyAssignor(assignor).on_assignment(encode_assignment(b""), 8)
    assert not assignor.is_only_round_in(8)
    assignor.on_assignment(encode_assignment(AssignmentUserData("abc").encode()), 9)
    assert not assignor.is_only_round_in(9)


def test_a_round_of_another_assignor_ends_the_promise_of_the_last_one() -> None:
    """The member no longer looks for its releases, and its own last commits name no round."""
    assignor = TimedAssignor(SystemClock(), starts_at_release=True)
    promise = AssignmentUserData("abc", (("t", (0,)),), starts_at_release=True).encode()
    assignor.on_assignment(encode_assignment(promise), 7)
    assert assignor.release_watch
    assert assignor.release_token
    OwnershipStickyAssignor(assignor).on_assignment(encode_assignment(b""), 8)
    assert assignor.release_watch is None
    assert not assignor.release_token
