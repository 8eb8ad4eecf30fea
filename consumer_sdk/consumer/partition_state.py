"""State of a consumer's partitions: owned, paused, stored and committed offsets, handover times.

Used by the application's threads: sets are replaced and never changed, so that one thread can iterate
over a set while another changes it. Commits take their offsets from here. Commit metadata carries
handovers: the old owner writes the time of the release, the new owner the seconds during which the
partition was not read, which the sidecar exports as a metric. One partition of each commit carries the
consumer's handler time, too, from which the sidecar learns what a record costs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.consumer_sdk.client.client_adapters import has_offset, to_partition
from trimtab.consumer_sdk.client.commit_metadata import (
    COMMIT_METADATA_TERMINATOR,
    add_facts,
    encode_handover,
    encode_release,
    parse_release,
)
from trimtab.consumer_sdk.client.membership_events import CommitPosition


@dataclass(slots=True)
class PartitionState:
    """Partitions of one consumer; offsets are those of the next record to read."""

    membership_epoch: int = 0  # of the owned partitions; each lost membership starts a new one
    owned: frozenset[TopicPartition] = frozenset()
    paused: frozenset[TopicPartition] = frozenset()
    stored_offsets: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    # By the last commit that was answered, or that is queued and nobody waits for it.
    committed_offsets: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    requested_commits: dict[TopicPartition, CommitPosition] = field(  # the last ones, until their answers
        default_factory=dict[TopicPartition, CommitPosition]
    )
    released_at: dict[TopicPartition, float] = field(default_factory=dict[TopicPartition, float])
    # Where librdkafka has no position: inside on_revoke, and after a rewind until the next record.
    last_positions: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    commit_metadata: dict[TopicPartition, str] = field(default_factory=dict[TopicPartition, str])
    # A producer commits the offsets in its transactions: those known here may be outdated.
    transactional: bool = False
    # Never held while waiting or in callbacks. Re-entrant, for signal handlers.
    lock: RLock = field(default_factory=RLock, repr=False, compare=False)

    @property
    def is_locked_here(self) -> bool:
        """Whether the calling thread holds the lock."""
        lock: Any = self.lock  # its type leaves out what threading.Condition asks
        return bool(lock._is_owned())  # noqa: SLF001

    def owns(self, partitions: Iterable[TopicPartition]) -> bool:
        """Return whether all these partitions are owned."""
        return self.owned.issuperset(partitions)

    def add_owned(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions to the owned ones."""
        with self.lock:
            self.owned = self.owned.union(partitions)

    def remove_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions with all their state."""
        removed = set(partitions)
        with self.lock:
            self.owned -= removed
            self.paused -= removed
            for partition in removed:
                for offsets in (self.stored_offsets, self.committed_offsets, self.last_positions):
                    offsets.pop(partition, None)
                self.requested_commits.pop(partition, None)
                self.released_at.pop(partition, None)
                self.commit_metadata.pop(partition, None)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Record that the application paused these, as far as they are owned."""
        with self.lock:
            self.paused |= self.owned.intersection(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Record that the application resumed these partitions."""
        with self.lock:
            self.paused = self.paused.difference(partitions)

    def store_offsets(self, offsets: Iterable[RawPartition]) -> None:
        """Store offsets; an invalid one removes the partition's, as in librdkafka."""
        with self.lock:
            for raw in offsets:
                self.stored_offsets.pop(to_partition(raw), None)
                if has_offset(raw):
                    self.stored_offsets[to_partition(raw)] = raw.offset

    def forget_positions(self, partitions: Iterable[TopicPartition], *, stored: bool = False) -> None:
        """Forget positions, and stored offsets, from before reading continues elsewhere."""
        with self.lock:
            for partition in partitions:
                self.last_positions.pop(partition, None)
                if stored:
                    self.stored_offsets.pop(partition, None)

    def record_release_time(self, committed: RawPartition) -> None:
        """Store the previous owner's release time, from the metadata of its last commit."""
        released = _parse_release_time(committed)
        if released is not None:
            self.released_at[to_partition(committed)] = released

    def record_first_read(self, partition: TopicPartition, wall_time: float) -> None:
        """End a handover; from now on each commit carries its duration in seconds."""
        released = self.released_at.pop(partition, None)
        if released is not None:
            # The two times are from two machines, whose clocks may differ.
            handover = max(0.0, wall_time - released)
            self.commit_metadata[partition] = encode_handover(wall_time, handover)

    def build_positions(
        self, offsets: Iterable[RawPartition], handler_time: Mapping[str, float] | None = None
    ) -> dict[TopicPartition, CommitPosition]:
        """Return positions to commit, with the given metadata or else the handover, and the handler time.

        Without OFFSET_INVALID and the like: committed, it would rewind the group to its reset policy.
        """
        given = {to_partition(p): p for p in offsets if has_offset(p)}
        told = {p: raw.metadata + COMMIT_METADATA_TERMINATOR for p, raw in given.items() if raw.metadata}
        metadata = self.commit_metadata | told
        carrier = min((p for p in given if p not in told), default=None)
        if carrier is not None and handler_time:  # once: of thousands of partitions it would be megabytes
            metadata[carrier] = add_facts(metadata.get(carrier, ""), handler_time)
        return {p: CommitPosition(raw.offset, metadata.get(p, "")) for p, raw in given.items()}

    def begin_commit(self, positions: Mapping[TopicPartition, CommitPosition], *, waits: bool) -> None:
        """Record a commit before it is queued; `on_committed` or `on_refused` follows.

        The last commit before a release repeats it, except where its caller `waits`: then it leaves the
        partition as it is, since an older offset would rewind the next owner, and this one would be
        committed in spite of an error.
        """
        with self.lock:
            for partition, position in positions.items():
                self.requested_commits[partition] = position
                if waits:
                    self.committed_offsets.pop(partition, None)
                else:
                    self.committed_offsets[partition] = position.offset

    def on_committed(self, positions: Mapping[TopicPartition, CommitPosition]) -> None:
        """Store the offsets of an answered commit, except where a later one or a release has followed."""
        with self.lock:
            for partition, position in positions.items():
                if self.requested_commits.get(partition) is position:
                    del self.requested_commits[partition]
                    self.committed_offsets[partition] = position.offset

    def on_refused(self, positions: Mapping[TopicPartition, CommitPosition]) -> None:
        """Forget the offsets of a failed commit, of which the application is told."""
        with self.lock:
            for partition, position in positions.items():
                if self.requested_commits.get(partition) is position:
                    del self.requested_commits[partition]
                    self.committed_offsets.pop(partition, None)

    def add_fetched_commits(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Store offsets that the broker told, unless the application has committed since it was asked."""
        with self.lock:
            for partition, offset in offsets.items():
                if partition not in self.requested_commits:
                    self.committed_offsets.setdefault(partition, offset)


def build_final_commit(
    offsets: Mapping[TopicPartition, int], wall_time: float, round_token: str = ""
) -> dict[TopicPartition, CommitPosition]:
    """Return the positions of the last commit before a release, with its time and round."""
    metadata = encode_release(wall_time, round_token)
    return {partition: CommitPosition(offset, metadata) for partition, offset in offsets.items()}


def _parse_release_time(committed: RawPartition) -> float | None:
    try:
        return parse_release(committed.metadata).at  # confluent-kafka decodes it here
    except ValueError:
        return None
