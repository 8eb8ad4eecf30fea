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
from trimtab.consumer_sdk.consumer.client_adapters import to_partition
from trimtab.consumer_sdk.membership.events import CommitPosition

COMMIT_METADATA_TERMINATOR: Final = "\0"
"""Of the metadata of a commit: confluent-kafka reads past it."""


@dataclass(slots=True)
class PartitionState:
    """The partitions of one consumer; offsets are those of the next record to read.

    `membership_epoch` tells which stretch of membership they belong to: after a loss there is a new one.
    """

    membership_epoch: int = 0
    owned: set[TopicPartition] = field(default_factory=set[TopicPartition])
    paused: set[TopicPartition] = field(default_factory=set[TopicPartition])
    stored_offsets: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    committed_offsets: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    released_at: dict[TopicPartition, float] = field(default_factory=dict[TopicPartition, float])
    revoking_offsets: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    commit_metadata: dict[TopicPartition, str] = field(default_factory=dict[TopicPartition, str])

    def add_owned(self, partitions: Iterable[TopicPartition]) -> None:
        """Take partitions in."""
        self.owned.update(partitions)

    def remove_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Let partitions go, with all that is known of them."""
        gone = set(partitions)
        self.owned -= gone
        self.paused -= gone
        for memory in (
            self.stored_offsets,
            self.committed_offsets,
            self.released_at,
            self.commit_metadata,
            self.revoking_offsets,
        ):
            for partition in gone:
                memory.pop(partition, None)

    def record_release_time(self, partition: TopicPartition, metadata: str | None) -> None:
        """Note when the previous owner let go, as its last commit tells."""
        try:
            released = json.loads((metadata or "{}").rstrip("\0")).get("released")
        except (ValueError, AttributeError):
            return
        if isinstance(released, int | float):
            self.released_at[partition] = float(released)

    def record_first_read(self, partition: TopicPartition, wall_time: float) -> None:
        """Note that a partition is read again; every commit of ours tells how long it was not."""
        released = self.released_at.pop(partition, None)
        if released is not None:
            handover = round(max(0.0, wall_time - released), 3)
            self.commit_metadata[partition] = _encode_commit_metadata(
                handover=handover, at=round(wall_time, 3)
            )

    def build_positions(
        self, offsets: Mapping[TopicPartition, int], requested: Sequence[RawPartition] | None = None
    ) -> dict[TopicPartition, CommitPosition]:
        """Return positions to commit, with the metadata given, else the note of the handover."""
        notes = {
            to_partition(p): f"{p.metadata}{COMMIT_METADATA_TERMINATOR}"
            for p in requested or ()
            if p.metadata
        }
        return {
            p: CommitPosition(offset, notes.get(p) or self.commit_metadata.get(p, ""))
            for p, offset in offsets.items()
        }

    def on_committed(self, positions: Mapping[TopicPartition, CommitPosition]) -> None:
        """Remember what the broker has accepted."""
        for partition, position in positions.items():
            if partition in self.owned:
                self.committed_offsets[partition] = position.offset


def build_final_commit(
    offsets: Mapping[TopicPartition, int], wall_time: float
) -> dict[TopicPartition, CommitPosition]:
    """Return the last commit of partitions that go: their offsets, and when we let go."""
    note = _encode_commit_metadata(released=round(wall_time, 3))
    return {partition: CommitPosition(offset, note) for partition, offset in offsets.items()}


def _encode_commit_metadata(**facts: float) -> str:
    return json.dumps(facts) + COMMIT_METADATA_TERMINATOR
