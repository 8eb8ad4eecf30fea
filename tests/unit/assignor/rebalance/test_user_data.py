"""Encoding of the user data of the group protocol; malformed bytes are refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.hostile import UNREADABLE_USER_DATA
from trimtab.assignor.model import TopicPartition
from trimtab.assignor.rebalance.user_data import AssignmentUserData, MemberUserData, group_by_topic
from trimtab.common.errors import InvalidPayloadError

partitions = st.frozensets(st.builds(TopicPartition, st.sampled_from(["a", "b.c", "ü"]), st.integers(0, 99)))
grouped = partitions.map(group_by_topic)


@given(
    st.builds(
        MemberUserData,
        capacity=st.none() | st.floats(1, 1e12),
        instance=st.text(max_size=8),
        draining=st.booleans(),
        rack=st.none() | st.text(max_size=8),
        decision_fingerprint=st.text("0123456789abcdef", max_size=16),
        promised=grouped,
        owned=grouped,
        generation=st.integers(-1, 2**31 - 1),
    )
)
def test_member_data_round_trips(data: MemberUserData) -> None:
    """Decoding an encoded value gives an equal value, and equal values give equal bytes."""
    assert MemberUserData.decode(data.encode()) == data
    assert MemberUserData.decode(data.encode()).encode() == data.encode()


@given(st.builds(AssignmentUserData, *[st.text(max_size=8), grouped, st.booleans(), st.text(max_size=8)]))
def test_assignment_data_round_trips(data: AssignmentUserData) -> None:
    """Decoding an encoded value gives an equal value."""
    assert AssignmentUserData.decode(data.encode()) == data


def test_a_member_without_user_data_gets_the_defaults() -> None:
    """A member with another assignor, in a rolling upgrade, is no error."""
    assert MemberUserData.decode(b"") == MemberUserData.decode(None) == MemberUserData()


def test_fields_that_are_not_set_take_no_room() -> None:
    """The broker stores all members' user data in one record; readers of any version know the defaults."""
    assert MemberUserData().encode() == AssignmentUserData().encode() == b'{"v":1}'
    assert MemberUserData(generation=0).encode() == b'{"generation":0,"v":1}'
    member = MemberUserData(2.3e6, "orders-consumer-1999", decision_fingerprint="0123456789abcdef")
    assert len(member.encode()) < 100


def test_unknown_fields_of_a_newer_version_are_ignored() -> None:
    """The known fields are decoded."""
    newer = b'{"v": 7, "capacity": 5.0, "mood": "good"}'
    assert MemberUserData.decode(newer) == MemberUserData(capacity=5.0)


@pytest.mark.parametrize("data", UNREADABLE_USER_DATA.values(), ids=UNREADABLE_USER_DATA)
def test_unreadable_user_data_is_refused(data: bytes) -> None:
    """It raises InvalidPayloadError with a short text, and no other error."""
    with pytest.raises(InvalidPayloadError) as refused:
        MemberUserData.decode(data)
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    "data",
    [
        UNREADABLE_USER_DATA["deep"],
        UNREADABLE_USER_DATA["promised Infinity"],
        UNREADABLE_USER_DATA["decision number"],
        UNREADABLE_USER_DATA["megabytes"],
        b'{"v":1,"more":1}',
        b'{"v":1,"fault":[]}',
    ],
    ids=lambda data: data[:20],
)
def test_unreadable_data_of_an_assignment_is_refused(data: bytes) -> None:
    """A leader cannot end the members by it."""
    with pytest.raises(InvalidPayloadError):
        AssignmentUserData.decode(data)


def test_a_nearly_too_deep_document_is_refused_at_any_depth_of_the_stack() -> None:
    """Neither the document nor its description in the error exceeds the recursion limit."""
    for depth in range(900, 1000, 7):
        with pytest.raises(InvalidPayloadError):
            MemberUserData.decode(b'{"v":1,"capacity":' + b"[" * depth + b"]" * depth + b"}")


@given(partitions)
def test_partitions_are_grouped_in_order(some: frozenset[TopicPartition]) -> None:
    """Topics and numbers are sorted, so that equal input gives equal bytes."""
    found = group_by_topic(some)
    assert [TopicPartition(t, n) for t, numbers in found for n in numbers] == sorted(some)


def test_user_data_of_an_earlier_release_is_read() -> None:
    """In a rolling upgrade both releases decode the same user data."""
    member = (
        b'{"capacity":2.5,"decision":"d","draining":false,"generation":-1,"instance":"i",'
        b'"owned":{},"promised":{"t":[1,0]},"rack":null,"v":1}'
    )
    decoded = MemberUserData.decode(member)
    assert decoded == MemberUserData(2.5, "i", decision_fingerprint="d", promised=(("t", (0, 1)),))
    earlier = json.loads(member.replace(b"[1,0]", b"[0,1]"))
    defaults = {"draining": False, "generation": -1, "owned": {}, "rack": None}
    assert {**defaults, **json.loads(decoded.encode())} == earlier
