"""What members and leader tell each other inside the group protocol, versioned.

A member sends `MemberUserData` with each JoinGroup; the leader sends `AssignmentUserData` with each
assignment. Both are JSON with a version `v`. A reader takes a newer version as far as it knows its
fields, and a member without user data (another assignor's, in a rolling upgrade) counts as one that
says nothing about itself.
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

PartitionsByTopic: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]
"""Partitions as ((topic, (number, …)), …), topics and numbers sorted and each there once."""


@dataclass(frozen=True, slots=True)
class MemberUserData:
    """What a member says of itself when it joins.

    `capacity` is bytes/s, None where it does not know. `decision_fingerprint` and `promised` repeat what the
    last assignment told it: which decision it belongs to, and which partitions are still to come.
    `owned` is only for eager clients, whose protocol has no field for what they read before.
    """

    capacity: float | None = None
    instance: str = ""
    draining: bool = False
    rack: str | None = None
    decision_fingerprint: str = ""
    promised: PartitionsByTopic = ()
    owned: PartitionsByTopic = ()
    generation: int = -1

    def encode(self) -> bytes:
        """Return the bytes for the subscription's user data."""
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
        """Read a subscription's user data, which may be none at all. Raises InvalidPayloadError."""
        body = _load_versioned(data)
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
    """What the leader adds to an assignment: its decision, and what the next round will bring.

    `round_follows` says that there will be one: somebody is promised something.
    """

    decision_fingerprint: str = ""
    promised: PartitionsByTopic = ()
    round_follows: bool = False

    def encode(self) -> bytes:
        """Return the bytes for the assignment's user data."""
        return _dump_versioned(
            decision=self.decision_fingerprint,
            promised=dict(self.promised),
            more=self.round_follows,
        )

    @classmethod
    def decode(cls, data: bytes | None) -> "AssignmentUserData":
        """Read an assignment's user data. Raises InvalidPayloadError."""
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
    """Return the partitions grouped, as the Kafka protocol writes them."""
    grouped: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        grouped[topic].append(partition)
    return tuple((topic, tuple(numbers)) for topic, numbers in grouped.items())


def _parse_partitions(grouped: Mapping[str, Sequence[int]]) -> PartitionsByTopic:
    return tuple(
        (topic, tuple(sorted(set(map(_parse_partition_number, numbers)))))
        for topic, numbers in sorted(grouped.items())
    )


def _parse_partition_number(value: Any) -> int:
    number = int(value)
    if number not in _INT32_RANGE:
        raise ValueError(f"{number} is no partition")
    return number


def _dump_versioned(**body: Any) -> bytes:
    return json.dumps(
        {"v": USER_DATA_VERSION, **body}, sort_keys=True, separators=(",", ":")
    ).encode()


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
