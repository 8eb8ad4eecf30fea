"""Queries to the cluster through a consumer, with confluent-kafka's results."""

from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer as DataConsumer
from confluent_kafka import TopicPartition as RawPartition

from trimtab.consumer_sdk.consumer.offset_reset import OffsetReset, OffsetResetHandler
from trimtab.consumer_sdk.membership.member import GroupMember


class ClusterQueries:
    """Methods of `Consumer` that need no membership."""

    _data_plane: DataConsumer
    _offset_resets: OffsetResetHandler
    _member: GroupMember | None

    def committed(self, partitions: Sequence[RawPartition], timeout: float = 10) -> list[RawPartition]:
        """Return the group's committed offsets."""
        return list(self._data_plane.committed(list(partitions), timeout=timeout))

    def position(self, partitions: Sequence[RawPartition]) -> list[RawPartition]:
        """Return the offsets of the next records to read."""
        return list(self._data_plane.position(list(partitions)))

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Return the cluster's metadata."""
        return (
            self._data_plane.list_topics(topic, timeout)
            if topic
            else self._data_plane.list_topics(timeout=timeout)
        )

    def get_watermark_offsets(self, partition: RawPartition, timeout: float = 10) -> tuple[int, int]:
        """Return the low and high watermark of a partition."""
        low, high = self._data_plane.get_watermark_offsets(partition, timeout=timeout)
        return low, high

    def pop_offset_resets(self) -> list[OffsetReset]:
        """Return the offset resets since the last call."""
        return self._offset_resets.pop_resets()

    def batch_max_age_s(self) -> float | None:
        """Return the plan's `batch_max_age_s`, in seconds; None without a plan or a value."""
        plan = None if self._member is None else self._member.plan
        return None if plan is None else plan.batch_max_age_s

    def offsets_for_times(
        self, partitions: Sequence[RawPartition], timeout: float = 10
    ) -> list[RawPartition]:
        """Return the first offsets at or after the times in the partitions' offset fields (ms)."""
        return list(self._data_plane.offsets_for_times(list(partitions), timeout=timeout))
