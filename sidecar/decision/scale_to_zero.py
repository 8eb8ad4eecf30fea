"""Whether there is anything to read: what the way to zero replicas, and back, goes by.

What is not known is neither: it takes nobody away and starts nobody.
"""

from collections.abc import Mapping

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.write_rates import PartitionLoad


def is_active(write_rates: Mapping[TopicPartition, PartitionLoad]) -> bool:
    """Tell whether records are known to be written, or to wait."""
    return any(_has_traffic(speed) for speed in write_rates.values())


def is_idle(write_rates: Mapping[TopicPartition, PartitionLoad]) -> bool:
    """Tell whether it is known of every partition that nothing is written and nothing waits."""
    known = all(
        s.bytes_per_s is not None and s.backlog_records is not None for s in write_rates.values()
    )
    return bool(write_rates) and known and not is_active(write_rates)


def _has_traffic(write_rate: PartitionLoad) -> bool:
    return any((write_rate.bytes_per_s, write_rate.records_per_s, write_rate.backlog_records))
