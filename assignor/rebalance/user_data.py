"""What members and leader tell each other inside the group protocol, versioned.

A member sends `MemberData` with each JoinGroup; the leader sends `PlacementData` with each
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
from trimtab.common.errors import BadPayload

VERSION: Final = 1
_INT32: Final = range(-(2**31), 2**31)

Grouped: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]
"""Partitions as ((topic, (number, …)), …), topics and numbers sorted and each there once."""


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
    promised: Grouped = ()
    owned: Grouped = ()
    generation: int = -1

    def encode(self) -> bytes:
        """Return the bytes for the subscription's user data."""
        return _dump(
            capacity=self.capacity,
            instance=self.instance,
            draining=self.draining,
            rack=self.rack,
            decision=self.decision,
            promised=dict(self.promised),
            owned=dict(self.owned),
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
                rack=None if body.get("rack") is None else str(body["rack"]),
                decision=str(body.get("decision", "")),
                promised=_grouped(body.get("promised", {})),
                owned=_grouped(body.get("owned", {})),
                generation=int(body.get("generation", -1)),
            )
        except (TypeError, ValueError, AttributeError) as error:
            raise BadPayload(f"member user data is malformed: {error}") from error


@dataclass(frozen=True, slots=True)
class PlacementData:
    """What the leader adds to an assignment: its decision, and what the next round will bring.

    `more` says that there will be one: somebody is promised something.
    """

    decision: str = ""
    promised: Grouped = ()
    more: bool = False

    def encode(self) -> bytes:
        """Return the bytes for the assignment's user data."""
        return _dump(decision=self.decision, promised=dict(self.promised), more=self.more)

    @classmethod
    def decode(cls, data: bytes | None) -> "PlacementData":
        """Read an assignment's user data. Raises BadPayload."""
        body = _load(data)
        try:
            return cls(
                decision=str(body.get("decision", "")),
                promised=_grouped(body.get("promised", {})),
                more=bool(body.get("more", False)),
            )
        except (TypeError, ValueError, AttributeError) as error:
            raise BadPayload(f"assignment user data is malformed: {error}") from error


def group_by_topic(partitions: Iterable[TopicPartition]) -> Grouped:
    """Return the partitions grouped, as the Kafka protocol writes them."""
    grouped: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        grouped[topic].append(partition)
    return tuple((topic, tuple(numbers)) for topic, numbers in grouped.items())


def _grouped(grouped: Mapping[str, Sequence[int]]) -> Grouped:
    return tuple(
        (topic, tuple(sorted(set(map(_number, numbers)))))
        for topic, numbers in sorted(grouped.items())
    )


def _number(value: Any) -> int:
    number = int(value)
    if number not in _INT32:
        raise ValueError(f"{number} is no partition")
    return number


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
