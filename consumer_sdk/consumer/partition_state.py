"""State of a consumer's partitions: owned, paused, stored and committed offsets, handover times.

Used by the application's thread only. Commits take their offsets from here. Commit metadata carries
handovers: the old owner writes the time of the release, the new owner the seconds during which the
partition was not read, which the sidecar exports as a metric.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.consumer.client_adapters import to_partition
from trimtab.consumer_sdk.membership.events import CommitPosition

COMMIT_METADATA_TERMINATOR: Final = "\0"  # confluent-kafka reads past the end of commit metadata


@dataclass(slots=True)
class PartitionState:
    """Partitions of one consumer; offsets are those of the next record to read."""

    membership_epoch: int = 0  # of the owned partitions; each lost membership starts a new one
    owned: set[TopicPartition] = field(default_factory=set[TopicPartition])
    paused: set[TopicPartition] = field(default_factory=set[TopicPartition])
    stored_offsets: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    committed_offsets: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    released_at: dict[TopicPartition, float] = field(default_factory=dict[TopicPartition, float])
    # Positions before a revocation, for commits inside on_revoke.
    revoking_offsets: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    commit_metadata: dict[TopicPartition, str] = field(default_factory=dict[TopicPartition, str])

    def add_owned(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions to the owned ones."""
        self.owned.update(partitions)

    def remove_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions with all their state."""
        removed = set(partitions)
        self.owned -= removed
        self.paused -= removed
        for partition in removed:
            for offsets in (self.stored_offsets, self.committed_offsets, self.revoking_offsets):
                offsets.pop(partition, None)
            self.released_at.pop(partition, None)
            self.commit_metadata.pop(partition, None)

    def record_release_time(self, partition: TopicPartition, metadata: str | None) -> None:
        """Store the previous owner's release time, from the metadata of its last commit."""
        try:
            released = json.loads((metadata or "{}").rstrip("\0")).get("released")
        except (ValueError, AttributeError):  # the application may commit metadata of its own
            return
        if isinstance(released, int | float):
            self.released_at[partition] = float(released)

    def record_first_read(self, partition: TopicPartition, wall_time: float) -> None:
        """End a handover; from now on each commit carries its duration in seconds."""
        released = self.released_at.pop(partition, None)
        if released is not None:
            # The two times are from two machines, whose clocks may differ.
            handover = round(max(0.0, wall_time - released), 3)
            self.commit_metadata[partition] = _encode_metadata(handover=handover, at=round(wall_time, 3))

    def build_positions(
        self, offsets: Mapping[TopicPartition, int], requested: Sequence[RawPartition] | None = None
    ) -> dict[TopicPartition, CommitPosition]:
        """Return positions to commit, with the given metadata or else the handover."""
        given = {
            to_partition(p): p.metadata + COMMIT_METADATA_TERMINATOR for p in requested or () if p.metadata
        }
        metadata = {**self.commit_metadata, **given}
        return {p: CommitPosition(offset, metadata.get(p, "")) for p, offset in offsets.items()}

    def on_committed(self, positions: Mapping[TopicPartition, CommitPosition]) -> None:
        """Store the offsets that the broker has committed."""
        for partition, position in positions.items():
            # The answer may arrive after the partition was revoked.
            if partition in self.owned:
                self.committed_offsets[partition] = position.offset


def build_final_commit(
    offsets: Mapping[TopicPartition, int], wall_time: float
) -> dict[TopicPartition, CommitPosition]:
    """Return the positions of the last commit before a release, with the release time."""
    metadata = _encode_metadata(released=round(wall_time, 3))
    return {partition: CommitPosition(offset, metadata) for partition, offset in offsets.items()}


def _encode_metadata(**facts: float) -> str:  # the keywords are the names that the sidecar reads
    return json.dumps(facts) + COMMIT_METADATA_TERMINATOR
