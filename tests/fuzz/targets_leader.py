"""What group members say to a leader, and a leader to them; and the leader itself."""

import json
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any, Final

from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from support.hostile import BLIND, LOAD, PLAN, UNREADABLE_USER_DATA, RawGroup, encode_subscription
from trimtab.assignor.clients.leader_plugin import decode_assignment_data, decode_member_data
from trimtab.assignor.rebalance.consumer_protocol import decode_assignment, decode_subscription
from trimtab.assignor.rebalance.leader import LeaderView
from trimtab.assignor.rebalance.user_data import AssignmentUserData, MemberUserData
from trimtab.common.errors import InvalidPayloadError
from trimtab.consumer_sdk.membership.classic.received_assignment import is_readable_assignment

MEMBER: Final = MemberUserData(
    5.0, "w", True, "r", "d", (("t", (1, 2)),), (("u", (0,)),), 4  # noqa: FBT003 - by position
)  # fmt: skip
ASSIGNMENT: Final = AssignmentUserData("d", (("t", (1, 2)),), True, "plan 3: …")  # noqa: FBT003
SHORT: Final = [data for data in UNREADABLE_USER_DATA.values() if len(data) < 8000]
ENCODED: Final = ConsumerProtocolAssignment(
    version=1,
    assigned_partitions=[ConsumerProtocolAssignment.TopicPartition(topic="t", partitions=[0, 1])],
    user_data=ASSIGNMENT.encode(),
).encode()
SEEDS: Final = {
    "decode_user_data": [MEMBER.encode(), ASSIGNMENT.encode(), *SHORT],
    "read_subscription": [encode_subscription(MEMBER.encode())],
    "read_assignment": [bytes(ENCODED)],
    "lead_with_user_data": [MEMBER.encode(), *SHORT],
    "lead_with_subscription": [encode_subscription(MEMBER.encode())],
    "lead_by_plan": [PLAN.encode()],
}


def decode_user_data(data: bytes) -> None:
    """User data of both kinds is decoded, or refused by name; what is decoded can be sent again."""
    with suppress(InvalidPayloadError):
        assert MemberUserData.decode(MemberUserData.decode(data).encode())
    with suppress(InvalidPayloadError):
        assert AssignmentUserData.decode(AssignmentUserData.decode(data).encode())
    decode_member_data("m", data)
    decode_assignment_data(data)


def read_subscription(data: bytes) -> None:
    """A subscription is decoded, or refused by name."""
    with suppress(InvalidPayloadError):
        owned = decode_subscription(data).owned
        assert len(owned.list_partitions()) == sum(owned.counts)


def read_assignment(data: bytes) -> None:
    """An assignment is decoded as kafka-python decodes it, or refused by name."""
    with suppress(InvalidPayloadError):
        found = decode_assignment(data)
        if is_readable_assignment(data):
            theirs = ConsumerProtocolAssignment.decode(data)
            assert found.user_data == theirs.user_data
            assert found.owned.list_partitions() == theirs.partitions()


def lead_with_user_data(data: bytes) -> None:
    """Every partition has an owner whatever one member's user data is."""
    _lead(RawGroup(encode_subscription(data)), LeaderView(LOAD, PLAN))


def lead_with_subscription(data: bytes) -> None:
    """Every partition has an owner whatever one member's subscription is."""
    _lead(RawGroup(data), BLIND)


def lead_by_plan(data: bytes) -> None:
    """Every partition has an owner whatever the plan says, even what its decoder should refuse."""
    _lead(RawGroup(b""), LeaderView(LOAD, _change_plan(data)))


def _change_plan(data: bytes) -> Any:
    body: Any = None
    with suppress(ValueError, RecursionError):
        body = json.loads(data)
    known = {field.name for field in fields(PLAN)}
    return replace(PLAN, **{n: v for n, v in body.items() if n in known} if isinstance(body, dict) else {})


def _lead(group: RawGroup, view: LeaderView) -> None:
    for _ in range(2):
        group.round(view)
