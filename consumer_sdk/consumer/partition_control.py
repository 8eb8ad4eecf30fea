"""Chooses what a consumer reads: assignments, pauses and seeks, of owned partitions only."""

import logging
from collections.abc import Sequence
from typing import Final

from confluent_kafka import TopicPartition as RawPartition

from trimtab.consumer_sdk.client.client_adapters import to_partition
from trimtab.consumer_sdk.consumer.fetch_control import stop_fetching
from trimtab.consumer_sdk.consumer.offset_commits import OffsetCommits

log = logging.getLogger("trimtab.consumer_sdk")

_COORDINATOR_SILENT: Final = "has not answered for a session timeout: returning no records until it answers"


class PartitionControl(OffsetCommits):
    """Methods of `Consumer` that start, stop, pause and seek partitions."""

    _assigned_in_callback: list[RawPartition] | None
    _suspended: bool
    _lease_changes_logged: bool  # before the first read the absence of a lease is no news

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
        with self._access, self._partitions.lock:  # before or after `_apply_lease`, which resumes the others
            self._partitions.pause(map(to_partition, partitions))
            self._data_plane.pause(list(partitions))

    def resume(self, partitions: Sequence[RawPartition]) -> None:
        """Return records of these partitions again."""
        with self._access, self._partitions.lock:
            self._partitions.resume(map(to_partition, partitions))
            if not self._suspended:  # else the renewed lease resumes them
                self._data_plane.resume(list(partitions))

    def seek(self, partition: RawPartition) -> None:
        """Continue at another offset and drop the stored one."""
        # A stored offset from before the seek would commit past records still to be read.
        self._partitions.forget_positions([to_partition(partition)], stored=True)
        self._data_plane.seek(partition)

    # -- inside ---------------------------------------------------------------------------------------

    def _apply_lease(self) -> bool:
        if self._member is None:  # assign() without a subscription: no other reader, no lease
            return bool(self._partitions.owned)
        holds = self._member.holds_lease()
        if holds == self._suspended:
            with self._access, self._partitions.lock:
                self._change_lease(holds=holds)
        self._lease_changes_logged |= holds
        return holds

    def _change_lease(self, *, holds: bool) -> None:
        self._suspended = not holds
        affected = [RawPartition(*p) for p in self._partitions.owned - self._partitions.paused]
        # The end of a lease without partitions, as before the first join, is no news.
        if affected and self._lease_changes_logged:
            log.warning("the group's coordinator %s", "answers again" if holds else _COORDINATOR_SILENT)
        self._lease_changes_logged &= bool(affected)
        # Paused, not unassigned: a renewed lease continues at the same positions.
        (self._data_plane.resume if holds else self._data_plane.pause)(affected)
