"""Members of any client are found by their replica, their group.instance.id or their client id."""

import pytest

from trimtab.common.replica_names import get_replica, list_consumer_names
from trimtab.sidecar.model.member_names import (
    MemberIdentity,
    find_instance_id,
    name_members,
    name_observed_members,
)
from trimtab.sidecar.model.observation import GroupState, ObservedGroup, ObservedMember

UUID = "0d4ac6a4-7a0b-4c7e-9a55-0c1f2d3e4a5b"


def test_a_member_has_the_name_of_its_replica() -> None:
    """Pods are found by their address, whatever their clients are called."""
    members = [
        MemberIdentity("m1", "rdkafka", "10.0.0.1", None),
        MemberIdentity("m2", "rdkafka", "10.0.0.2", "static-2"),
    ]
    replicas = {"10.0.0.1": "orders-a", "10.0.0.2": "orders-b"}
    assert name_members(members, replicas) == {"m1": "orders-a", "m2": "orders-b"}


def test_an_address_is_known_in_each_of_its_forms() -> None:
    """Brokers and Kubernetes write those of IPv6 differently."""
    members = [MemberIdentity("m1", "rdkafka", "fd00:10:244:0:0:0:0:5", None)]
    assert name_members(members, {"fd00:10:244::5": "orders-a"}) == {"m1": "orders-a"}
    assert name_members(members, {"a name": "orders-b"}) == {"m1": "rdkafka"}


def test_two_members_of_one_address_are_no_replica() -> None:
    """Several consumers of a pod, or pods behind one address, keep names of their own."""
    members = [
        MemberIdentity("m1", "one", "10.0.0.1", None),
        MemberIdentity("m2", "two", "10.0.0.1", "static-2"),
    ]
    assert name_members(members, {"10.0.0.1": "orders-a"}) == {"m1": "one", "m2": "static-2"}


def test_members_of_a_replica_of_several_are_numbered() -> None:
    """By the address of their pod, whatever their clients are called, or by the client id."""
    members = [
        MemberIdentity("c-1-b", "c-1", "10.0.0.1", None),
        MemberIdentity("c-0-a", "c-0", "10.0.0.1", None),
        MemberIdentity("c-0-c", "c-0", "10.0.0.2", None),
        MemberIdentity("m5", "worker-3", "127.0.0.1", None),
        MemberIdentity("m4", "worker-3", "127.0.0.1", None),
        MemberIdentity("m6", "worker-4/blue", "127.0.0.1", None),
    ]
    assert name_members(members, {"10.0.0.1": "orders-a", "10.0.0.2": "orders-b"}, 2) == {
        "c-0-a": "orders-a/1",
        "c-1-b": "orders-a/2",
        "c-0-c": "orders-b",
        "m4": "worker-3/1",
        "m5": "worker-3/2",
        "m6": "worker-4/blue",
    }


@pytest.mark.parametrize(
    ("joined", "expected"),
    [
        ((), ("a/1", "a/2")),
        (("a",), ("a", "a/1")),
        (("a/2",), ("a/2", "a/1")),
        (("a/x", "a/1"), ("a/1", "a/x")),
        (("a/1", "a/2", "a/3"), ("a/1", "a/2", "a/3")),
    ],
)
def test_a_replica_has_names_for_consumers_that_have_yet_to_join(
    joined: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    """Up to as many as it runs; more that have joined count, too."""
    assert list_consumer_names("a", joined, 2) == expected
    assert {get_replica(name) for name in expected} == {"a"}


def test_a_shared_or_missing_client_id_is_no_name() -> None:
    """Without a client id all librdkafka members are called "rdkafka": the member id remains."""
    members = [
        MemberIdentity("m1", "rdkafka", "10.0.0.1", None),
        MemberIdentity("m2", "rdkafka", "10.0.0.2", None),
        MemberIdentity("m3", "", "10.0.0.3", None),
    ]
    assert name_members(members, {}) == {"m1": "m1", "m2": "m2", "m3": "m3"}


@pytest.mark.parametrize(
    ("member_id", "found"),
    [(f"pod-7-{UUID}", "pod-7"), (f"rdkafka-{UUID}", None), (f"-{UUID}", None), ("rdkafka-1", None)],
)
def test_a_static_member_is_known_by_its_id(member_id: str, found: str | None) -> None:
    """The coordinator puts group.instance.id, or else the client id, before a UUID."""
    assert find_instance_id(member_id, "rdkafka") == found


def test_an_observed_group_is_named_twice_without_a_change() -> None:
    """Measured without the replicas first, then with them."""
    members = (
        ObservedMember(f"static-{UUID}", "rdkafka", host="10.0.0.1"),
        ObservedMember(f"rdkafka-{UUID}", "rdkafka", host="10.0.0.2"),
    )
    group = ObservedGroup(GroupState.STABLE, members)
    named = name_observed_members(group, {})
    assert [m.instance for m in named.members] == ["static", "rdkafka"]
    assert name_observed_members(named, {}) == named
    again = name_observed_members(named, {"10.0.0.2": "orders-b"})
    assert [m.instance for m in again.members] == ["static", "orders-b"]
