"""Detects an idle or active group, for scaling to zero and back.

A group with unknown data is neither: nothing stops, nothing starts.
"""

from collections.abc import Mapping

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.write_rates import PartitionLoad


def is_active(write_rates: Mapping[TopicPartition, PartitionLoad]) -> bool:
    """Return whether records are known to be written or waiting."""
    return any(_has_traffic(load) for load in write_rates.values())


def is_idle(write_rates: Mapping[TopicPartition, PartitionLoad]) -> bool:
    """Return whether every partition is known to have no writes and no backlog."""
    known = all(s.bytes_per_s is not None and s.backlog_records is not None for s in write_rates.values())
    return bool(write_rates) and known and not is_active(write_rates)


def _has_traffic(write_rate: PartitionLoad) -> bool:
    return any((write_rate.bytes_per_s, write_rate.records_per_s, write_rate.backlog_records))
