"""User data of the group protocol, as versioned JSON.

A member sends `MemberUserData` with each JoinGroup, the leader `AssignmentUserData` with each
assignment. Unknown fields of a newer version are ignored. Anything else raises `InvalidPayloadError`:
a member, which needs no more than Read on the group, must not end its leader, nor a leader the members.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from trimtab.assignor.capacity import is_valid_capacity
from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.errors import InvalidPayloadError

USER_DATA_VERSION: Final = 1
MAX_USER_DATA_BYTES: Final = 4 * 2**20  # five times what a member of 100,000 partitions needs
MAX_TEXT_BYTES: Final = 2**15 - 1  # of any string in Kafka's protocol
_PARTITION_NUMBERS: Final = range(2**31)
_GENERATIONS: Final = range(-(2**31), 2**31)
_SHOWN_CHARACTERS: Final = 80  # of a value in an error

# Partitions as ((topic, (number, …)), …), sorted and without repeats.
PartitionsByTopic: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class MemberUserData:
    """User data of a member's subscription."""

    capacity: float | None = None  # bytes/s; None: unknown
    instance: str = ""
    draining: bool = False
    rack: str | None = None
    decision_fingerprint: str = ""  # of the last assignment, as `promised`
    promised: PartitionsByTopic = ()
    owned: PartitionsByTopic = ()  # of eager clients, whose protocol has no field for it
    generation: int = -1  # of the last assignment, as `promised`; that of a later join may be newer
    confirms_releases: bool = False  # and begins at them: one round may carry its moves out

    def encode(self) -> bytes:
        """Return the encoded user data."""
        return _dump_versioned(
            capacity=self.capacity,
            instance=self.instance or None,
            draining=self.draining,
            rack=self.rack,
            decision=self.decision_fingerprint or None,
            promised=dict(self.promised),
            owned=dict(self.owned),
            generation=None if self.generation < 0 else self.generation,
            confirms=self.confirms_releases,
        )

    @classmethod
    def decode(cls, data: bytes | None) -> "MemberUserData":
        """Decode a subscription's user data, if any. Raises InvalidPayloadError."""
        body = _load_versioned(data)  # of another assignor, in a rolling upgrade: none, so the defaults
        return cls(
            capacity=_parse_capacity(body),
            instance=_parse_text(body, "instance") or "",
            draining=_parse_flag(body, "draining"),
            rack=_parse_text(body, "rack"),
            decision_fingerprint=_parse_text(body, "decision") or "",
            promised=_parse_partitions(body, "promised"),
            owned=_parse_partitions(body, "owned"),
            generation=_parse_integer("generation", body.get("generation", -1), _GENERATIONS),
            confirms_releases=_parse_flag(body, "confirms"),
        )


@dataclass(frozen=True, slots=True)
class AssignmentUserData:
    """User data of an assignment: the decision and the partitions promised for the next round."""

    decision_fingerprint: str = ""
    promised: PartitionsByTopic = ()
    round_follows: bool = False  # some member has promised partitions: heartbeat more often until then
    fault: str = ""  # why the leader could not carry out the plan, or its own heuristic
    starts_at_release: bool = False  # each promised partition has one claimant, whose release is enough
    is_only_round: bool = False  # if its releases are confirmed; the assignment lists what it promises, too

    def encode(self) -> bytes:
        """Return the encoded user data."""
        return _dump_versioned(
            decision=self.decision_fingerprint or None,
            promised=dict(self.promised),
            more=self.round_follows,
            single=self.starts_at_release,
            only=self.is_only_round,
            fault=self.fault or None,
        )

    def list_early(self) -> frozenset[TopicPartition]:
        """Return the partitions that the assignment lists before their release."""
        promised = self.promised if self.is_only_round else ()
        return frozenset(TopicPartition(topic, n) for topic, numbers in promised for n in numbers)

    @classmethod
    def decode(cls, data: bytes | None) -> "AssignmentUserData":
        """Decode an assignment's user data. Raises InvalidPayloadError."""
        body = _load_versioned(data)
        return cls(
            decision_fingerprint=_parse_text(body, "decision") or "",
            promised=_parse_partitions(body, "promised"),
            round_follows=_parse_flag(body, "more"),
            starts_at_release=_parse_flag(body, "single"),
            is_only_round=_parse_flag(body, "only"),
            fault=_parse_text(body, "fault") or "",
        )


def group_by_topic(partitions: Iterable[TopicPartition]) -> PartitionsByTopic:
    """Return the partitions grouped by topic, sorted."""
    grouped: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        grouped[topic].append(partition)
    return tuple((topic, tuple(numbers)) for topic, numbers in grouped.items())


def _parse_capacity(body: Mapping[str, Any]) -> float | None:
    value = body.get("capacity")
    if value is None:
        return None
    if type(value) not in (int, float) or not is_valid_capacity(value):
        raise _refuse("capacity", value)
    return float(value)


def _parse_text(body: Mapping[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is None:
        return None
    with suppress(UnicodeEncodeError):  # "\ud800" is JSON, but no log and no request can write it
        if isinstance(value, str) and len(value.encode()) <= MAX_TEXT_BYTES:
            return value
    raise _refuse(name, value)


def _parse_flag(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise _refuse(name, value)
    return value


def _parse_partitions(body: Mapping[str, Any], name: str) -> PartitionsByTopic:
    grouped = body.get(name, {})
    if not isinstance(grouped, dict) or not all(isinstance(numbers, list) for numbers in grouped.values()):
        raise _refuse(name, grouped)
    return tuple(
        (topic, tuple(sorted({_parse_integer(name, n, _PARTITION_NUMBERS) for n in numbers})))
        for topic, numbers in sorted(grouped.items())
    )


def _parse_integer(name: str, value: Any, allowed: range) -> int:
    if type(value) is not int or value not in allowed:  # True is an int, too; numpy takes 32 bits
        raise _refuse(name, value)
    return value


def _refuse(name: str, value: Any) -> InvalidPayloadError:
    # the repr of a deep list could exceed the recursion limit that the list did not
    shown = type(value).__name__ if isinstance(value, dict | list) else repr(value)[:_SHOWN_CHARACTERS]
    return InvalidPayloadError(f"user data is malformed: {name} is {shown}")


def _dump_versioned(**body: Any) -> bytes:
    # The broker stores the user data of all members in one record: unset fields take no room.
    fields = {name: value for name, value in body.items() if value not in (None, {}) and value is not False}
    return json.dumps({"v": USER_DATA_VERSION, **fields}, sort_keys=True, separators=(",", ":")).encode()


def _load_versioned(data: bytes | None) -> dict[str, Any]:
    if not data:
        return {}
    if len(data) > MAX_USER_DATA_BYTES:
        raise InvalidPayloadError(f"user data has {len(data)} bytes; {MAX_USER_DATA_BYTES} are read")
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:  # json recurses into "[[[[…"
        raise InvalidPayloadError(f"user data is not JSON: {data[:_SHOWN_CHARACTERS]!r}") from error
    if not isinstance(body, dict) or type(body.get("v")) is not int:
        raise InvalidPayloadError(f"user data has no version: {data[:_SHOWN_CHARACTERS]!r}")
    return body
