"""What members and leader tell each other inside the group protocol, versioned.

A member sends `MemberData` with each JoinGroup; the leader sends `PlacementData` with each
assignment. Both are JSON with a version `v`. A reader takes a newer version as far as it knows its
fields, and a member without user data (another assignor's, in a rolling upgrade) counts as one that
says nothing about itself.
"""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from trimtab.assignor.errors import BadPayload
from trimtab.assignor.model import TopicPartition

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class MemberData:
    """What a member says of itself when it joins.

    `capacity` is bytes/s, None where it does not know. `decision` and `promised` repeat what the
    last assignment told it: which decision it belongs to, and which partitions are still to come.
    `owned` is only for eager clients, whose protocol has no field for what they read before.
    """

    capacity: float | None = None
    instance: str = ""
    draining: bool = False
    rack: str | None = None
    decision: str = ""
    promised: frozenset[TopicPartition] = frozenset()
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = -1

    def encode(self) -> bytes:
        """Return the bytes for the subscription's user data."""
        return _dump(
            capacity=self.capacity,
            instance=self.instance,
            draining=self.draining,
            rack=self.rack,
            decision=self.decision,
            promised=_by_topic(self.promised),
            owned=_by_topic(self.owned),
            generation=self.generation,
        )

    @classmethod
    def decode(cls, data: bytes | None) -> "MemberData":
        """Read a subscription's user data, which may be none at all. Raises BadPayload."""
        body = _load(data)
        try:
            return cls(
                capacity=None if body.get("capacity") is None else float(body["capacity"]),
                instance=str(body.get("instance", "")),
                draining=bool(body.get("draining", False)),
                rack=body.get("rack"),
                decision=str(body.get("decision", "")),
                promised=_partitions(body.get("promised", {})),
                owned=_partitions(body.get("owned", {})),
                generation=int(body.get("generation", -1)),
            )
        except (TypeError, ValueError, AttributeError) as error:
            raise BadPayload(f"member user data is malformed: {error}") from error


@dataclass(frozen=True, slots=True)
class PlacementData:
    """What the leader adds to an assignment: its decision, and what the next round will bring."""

    decision: str = ""
    promised: frozenset[TopicPartition] = frozenset()

    def encode(self) -> bytes:
        """Return the bytes for the assignment's user data."""
        return _dump(decision=self.decision, promised=_by_topic(self.promised))

    @classmethod
    def decode(cls, data: bytes | None) -> "PlacementData":
        """Read an assignment's user data. Raises BadPayload."""
        body = _load(data)
        try:
            return cls(str(body.get("decision", "")), _partitions(body.get("promised", {})))
        except (TypeError, ValueError, AttributeError) as error:
            raise BadPayload(f"assignment user data is malformed: {error}") from error


def group_by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    """Return [(topic, [partition, …]), …], both sorted, as the Kafka protocol writes them."""
    grouped: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        grouped[topic].append(partition)
    return sorted(grouped.items())


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    return dict(group_by_topic(partitions))


def _partitions(grouped: dict[str, list[int]]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(t, int(p)) for t, numbers in grouped.items() for p in numbers)


def _dump(**body: Any) -> bytes:
    return json.dumps({"v": VERSION, **body}, sort_keys=True, separators=(",", ":")).encode()


def _load(data: bytes | None) -> dict[str, Any]:
    if not data:
        return {}
    try:
        body = json.loads(data)
    except ValueError as error:
        raise BadPayload(f"user data is not JSON: {data[:80]!r}") from error
    if not isinstance(body, dict) or not isinstance(body.get("v"), int):
        raise BadPayload(f"user data has no version: {data[:80]!r}")
    return body
