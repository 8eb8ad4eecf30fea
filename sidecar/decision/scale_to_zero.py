"""Whether there is anything to read: what the way to zero replicas, and back, goes by.

What is not known is neither: it takes nobody away and starts nobody.
"""

from collections.abc import Mapping

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.values import PartitionSpeed


def awake(speeds: Mapping[TopicPartition, PartitionSpeed]) -> bool:
    """Tell whether records are known to be written, or to wait."""
    return any(_stirs(speed) for speed in speeds.values())


def idle(speeds: Mapping[TopicPartition, PartitionSpeed]) -> bool:
    """Tell whether it is known of every partition that nothing is written and nothing waits."""
    known = all(
        s.bytes_per_s is not None and s.backlog_records is not None for s in speeds.values()
    )
    return bool(speeds) and known and not awake(speeds)


def _stirs(speed: PartitionSpeed) -> bool:
    return any((speed.bytes_per_s, speed.records_per_s, speed.backlog_records))
