"""Queries of a consumer to its cluster and group, with confluent-kafka's results."""

from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer as DataConsumer
from confluent_kafka import TopicPartition as RawPartition

from trimtab.consumer_sdk.consumer.offset_reset import OffsetReset, OffsetResetHandler
from trimtab.consumer_sdk.membership.member import GroupMember


class ClusterQueries:
    """Methods of `Consumer` that neither read nor commit."""

    _data_plane: DataConsumer
    _offset_resets: OffsetResetHandler
    _member: GroupMember | None

    def assignment(self) -> list[RawPartition]:
        """Return the partitions that are being read."""
        return list(self._data_plane.assignment())

    def memberid(self) -> str | None:
        """Return the member id assigned by the broker; None before the first join."""
        return (self._member.member_id or None) if self._member else None

    def generation_id(self) -> int:
        """Return the last known generation of the group; -1 outside the group."""
        return self._member.generation_id if self._member else -1

    def committed(self, partitions: Sequence[RawPartition], timeout: float = 10) -> list[RawPartition]:
        """Return the group's committed offsets."""
        return list(self._data_plane.committed(list(partitions), timeout=timeout))

    def position(self, partitions: Sequence[RawPartition]) -> list[RawPartition]:
        """Return the offsets of the next records to read."""
        return list(self._data_plane.position(list(partitions)))

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Return the cluster's metadata."""
        return self._data_plane.list_topics(topic or None, timeout)

    def get_watermark_offsets(self, partition: RawPartition, timeout: float = 10) -> tuple[int, int]:
        """Return the low and high watermark of a partition."""
        low, high = self._data_plane.get_watermark_offsets(partition, timeout=timeout)
        return low, high

    def pop_offset_resets(self) -> list[OffsetReset]:
        """Return the offset resets since the last call."""
        return self._offset_resets.pop_resets()

    def batch_max_age_s(self) -> float | None:
        """Return the plan's `batch_max_age_s`; None without a plan or a value."""
        plan = self._member.plan if self._member else None
        return plan.batch_max_age_s if plan else None

    def decision_fault(self) -> str:
        """Return why the plan or the leader's heuristic could not decide the last rebalance; else ""."""
        return self._member.decision_fault if self._member else ""

    def offsets_for_times(
        self, partitions: Sequence[RawPartition], timeout: float = 10
    ) -> list[RawPartition]:
        """Return the first offsets at or after the times in the partitions' offset fields (ms)."""
        return list(self._data_plane.offsets_for_times(list(partitions), timeout=timeout))
