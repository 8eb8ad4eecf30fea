"""How soon a backlog is consumed, and the rate that this requires."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.write_rates import PartitionLoad

SLO_MARGIN: Final = 0.1  # share of a freshness SLO kept as a margin


@dataclass(frozen=True, slots=True)
class CatchUpPolicy:
    """Catch-up time of a backlog, in seconds."""

    catch_up_time: float  # for the overdue part
    backlog_grace: float  # writes of this time are not overdue: batches being filled


def add_required_rates(
    write_rates: Mapping[TopicPartition, PartitionLoad], catch_up: CatchUpPolicy, usable_capacity: float
) -> dict[TopicPartition, PartitionLoad]:
    """Set `required_bytes_per_s` = write rate + overdue backlog / catch-up time."""

    def compute_required_rate(load: PartitionLoad) -> float | None:
        if load.bytes_per_s is None:
            return None
        overdue = compute_overdue_bytes(load, catch_up) or 0.0
        # A partition has one consumer at most: no backlog can be read faster than `usable_capacity`.
        most = max(load.bytes_per_s, usable_capacity)
        return min(load.bytes_per_s + overdue / catch_up.catch_up_time, most)

    return {p: replace(s, required_bytes_per_s=compute_required_rate(s)) for p, s in write_rates.items()}


def compute_overdue_bytes(load: PartitionLoad, catch_up: CatchUpPolicy) -> float | None:
    """Return the backlog in bytes beyond the grace; None if unknown."""
    if load.bytes_per_s is None or load.backlog_bytes is None:
        return None
    return max(0.0, load.backlog_bytes - load.bytes_per_s * catch_up.backlog_grace)
