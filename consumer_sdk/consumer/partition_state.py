"""What the application's thread remembers of its partitions: owned, stored, committed, handed over.

Owned by `Consumer`, touched by the application's thread only. A commit takes its offsets from here;
a handover is told to the next owner in the metadata of the committed offset: the old owner writes
when it let go, the new one how long the partition was not read (`monitor` of the sidecar makes a
metric of it).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.consumer.client_adapters import key
from trimtab.consumer_sdk.membership.events import Position

END: Final = "\0"
"""Of the metadata of a commit: confluent-kafka reads past it."""


@dataclass(slots=True)
class Bookkeeping:
    """The partitions of one consumer; offsets are those of the next record to read.

    `tenure` tells which stretch of membership they belong to: after a loss there is a new one.
    """

    tenure: int = 0
    owned: set[TopicPartition] = field(default_factory=set[TopicPartition])
    paused: set[TopicPartition] = field(default_factory=set[TopicPartition])
    stored: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    committed: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    released: dict[TopicPartition, float] = field(default_factory=dict[TopicPartition, float])
    leaving: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    notes: dict[TopicPartition, str] = field(default_factory=dict[TopicPartition, str])

    def own(self, partitions: Iterable[TopicPartition]) -> None:
        """Take partitions in."""
        self.owned.update(partitions)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Let partitions go, with all that is known of them."""
        gone = set(partitions)
        self.owned -= gone
        self.paused -= gone
        for memory in (self.stored, self.committed, self.released, self.notes, self.leaving):
            for partition in gone:
                memory.pop(partition, None)

    def taken_over(self, partition: TopicPartition, metadata: str | None) -> None:
        """Note when the previous owner let go, as its last commit tells."""
        try:
            released = json.loads((metadata or "{}").rstrip("\0")).get("released")
        except (ValueError, AttributeError):
            return
        if isinstance(released, int | float):
            self.released[partition] = float(released)

    def first_read(self, partition: TopicPartition, wall: float) -> None:
        """Note that a partition is read again; every commit of ours tells how long it was not."""
        released = self.released.pop(partition, None)
        if released is not None:
            handover = round(max(0.0, wall - released), 3)
            self.notes[partition] = _note(handover=handover, at=round(wall, 3))

    def to_commit(
        self, offsets: Mapping[TopicPartition, int], given: Sequence[RawPartition] | None = None
    ) -> dict[TopicPartition, Position]:
        """Return positions to commit, with the metadata given, else the note of the handover."""
        notes = {key(p): f"{p.metadata}{END}" for p in given or () if p.metadata}
        return {
            p: Position(offset, notes.get(p) or self.notes.get(p, ""))
            for p, offset in offsets.items()
        }

    def on_committed(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Remember what the broker has accepted."""
        for partition, position in positions.items():
            if partition in self.owned:
                self.committed[partition] = position.offset


def parting(offsets: Mapping[TopicPartition, int], wall: float) -> dict[TopicPartition, Position]:
    """Return the last commit of partitions that go: their offsets, and when we let go."""
    note = _note(released=round(wall, 3))
    return {partition: Position(offset, note) for partition, offset in offsets.items()}


def _note(**facts: float) -> str:
    return json.dumps(facts) + END
