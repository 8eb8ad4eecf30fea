"""User data of the group protocol, as versioned JSON.

A member sends `MemberUserData` with each JoinGroup, the leader `AssignmentUserData` with each
assignment. Unknown fields of a newer version are ignored.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from trimtab.assignor.model import TopicPartition
from trimtab.common.errors import InvalidPayloadError

USER_DATA_VERSION: Final = 1
_INT32_RANGE: Final = range(-(2**31), 2**31)

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
    generation: int = -1

    def encode(self) -> bytes:
        """Return the encoded user data."""
        return _dump_versioned(
            capacity=self.capacity,
            instance=self.instance,
            draining=self.draining,
            rack=self.rack,
            decision=self.decision_fingerprint,
            promised=dict(self.promised),
            owned=dict(self.owned),
            generation=self.generation,
        )

    @classmethod
    def decode(cls, data: bytes | None) -> "MemberUserData":
        """Decode a subscription's user data, if any. Raises InvalidPayloadError."""
        body = _load_versioned(data)  # of another assignor, in a rolling upgrade: none, so the defaults
        try:
            return cls(
                capacity=None if body.get("capacity") is None else float(body["capacity"]),
                instance=str(body.get("instance", "")),
                draining=bool(body.get("draining", False)),
                rack=None if body.get("rack") is None else str(body["rack"]),
                decision_fingerprint=str(body.get("decision", "")),
                promised=_parse_partitions(body.get("promised", {})),
                owned=_parse_partitions(body.get("owned", {})),
                generation=int(body.get("generation", -1)),
            )
        except (TypeError, ValueError, AttributeError) as error:
            raise InvalidPayloadError(f"member user data is malformed: {error}") from error


@dataclass(frozen=True, slots=True)
class AssignmentUserData:
    """User data of an assignment: the decision and the partitions promised for the next round."""

    decision_fingerprint: str = ""
    promised: PartitionsByTopic = ()
    round_follows: bool = False  # some member has promised partitions: heartbeat more often until then

    def encode(self) -> bytes:
        """Return the encoded user data."""
        return _dump_versioned(
            decision=self.decision_fingerprint, promised=dict(self.promised), more=self.round_follows
        )

    @classmethod
    def decode(cls, data: bytes | None) -> "AssignmentUserData":
        """Decode an assignment's user data. Raises InvalidPayloadError."""
        body = _load_versioned(data)
        try:
            return cls(
                decision_fingerprint=str(body.get("decision", "")),
                promised=_parse_partitions(body.get("promised", {})),
                round_follows=bool(body.get("more", False)),
            )
        except (TypeError, ValueError, AttributeError) as error:
            raise InvalidPayloadError(f"assignment user data is malformed: {error}") from error


def group_by_topic(partitions: Iterable[TopicPartition]) -> PartitionsByTopic:
    """Return the partitions grouped by topic, sorted."""
    grouped: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        grouped[topic].append(partition)
    return tuple((topic, tuple(numbers)) for topic, numbers in grouped.items())


def _parse_partitions(grouped: Mapping[str, Sequence[int]]) -> PartitionsByTopic:
    return tuple(
        (topic, tuple(sorted(set(map(_parse_number, numbers))))) for topic, numbers in sorted(grouped.items())
    )


def _parse_number(value: Any) -> int:
    number = int(value)
    if number not in _INT32_RANGE:  # numpy would raise an OverflowError in the leader's thread
        raise ValueError(f"{number} is not a partition number")
    return number


def _dump_versioned(**body: Any) -> bytes:
    return json.dumps({"v": USER_DATA_VERSION, **body}, sort_keys=True, separators=(",", ":")).encode()


def _load_versioned(data: bytes | None) -> dict[str, Any]:
    if not data:
        return {}
    try:
        body = json.loads(data)
    except ValueError as error:
        raise InvalidPayloadError(f"user data is not JSON: {data[:80]!r}") from error
    if not isinstance(body, dict) or not isinstance(body.get("v"), int):
        raise InvalidPayloadError(f"user data has no version: {data[:80]!r}")
    return body
