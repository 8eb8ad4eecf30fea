"""Chooses what a consumer reads: assignments, pauses and seeks, of owned partitions only."""

from collections.abc import Sequence

from confluent_kafka import TopicPartition as RawPartition

from trimtab.consumer_sdk.consumer.client_adapters import to_partition
from trimtab.consumer_sdk.consumer.fetch_control import stop_fetching
from trimtab.consumer_sdk.consumer.offset_commits import OffsetCommits


class PartitionControl(OffsetCommits):
    """Methods of `Consumer` that start, stop, pause and seek partitions."""

    _assigned_in_callback: list[RawPartition] | None
    _suspended: bool

    def assign(self, partitions: Sequence[RawPartition]) -> None:
        """Read only these, at their offsets; with a subscription, the owned ones of them.

        Inside `on_assign`: start to read these in addition.
        """
        if self._assigned_in_callback is None:
            self.unassign()
        self.incremental_assign(partitions)

    def incremental_assign(self, partitions: Sequence[RawPartition]) -> None:
        """Start to read at these offsets; with a subscription, partitions that are owned."""
        with self._access, self._partitions.lock:
            self._partitions.forget_positions(map(to_partition, partitions))
            if self._member is None:
                self._data_plane.incremental_assign(list(partitions))
                self._partitions.add_owned(map(to_partition, partitions))
                return
            owned = [p for p in partitions if to_partition(p) in self._partitions.owned]
            self._data_plane.incremental_assign(owned)
            if self._assigned_in_callback is not None:
                self._assigned_in_callback += owned

    def unassign(self) -> None:
        """Stop reading all partitions; with a subscription they stay owned."""
        self.incremental_unassign(self._data_plane.assignment())

    def incremental_unassign(self, partitions: Sequence[RawPartition]) -> None:
        """Stop reading these partitions, unless their revocation has stopped them already."""
        gone = [to_partition(p) for p in partitions]
        if self._member is None:
            self._remove_unsubscribed(gone)
        with self._access, self._partitions.lock:
            stop_fetching(self._data_plane, gone)

    def pause(self, partitions: Sequence[RawPartition]) -> None:
        """Return no records of these partitions until `resume`."""
        self._partitions.pause(map(to_partition, partitions))
        self._data_plane.pause(list(partitions))

    def resume(self, partitions: Sequence[RawPartition]) -> None:
        """Return records of these partitions again."""
        self._partitions.resume(map(to_partition, partitions))
        if not self._suspended:  # else the renewed lease resumes them
            self._data_plane.resume(list(partitions))

    def seek(self, partition: RawPartition) -> None:
        """Continue at another offset and drop the stored one."""
        # A stored offset from before the seek would commit past records still to be read.
        self._partitions.forget_positions([to_partition(partition)], stored=True)
        self._data_plane.seek(partition)
