"""Time until the backlog of each partition is read. Pure."""

from collections.abc import Iterable, Mapping

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.model.catch_up_policy import CatchUpPolicy, compute_overdue_bytes
from trimtab.sidecar.model.observation import ObservedMember


def estimate_catch_up(
    members: Iterable[ObservedMember],
    loads: Mapping[TopicPartition, PartitionLoad],
    capacity: float,
    consumption_rates: Mapping[TopicPartition, float],
    grace: float = 0.0,
) -> dict[TopicPartition, float | None]:
    """Return the seconds until each owned partition's backlog is read; None: not at this rate.

    With a `grace`, until the part is read that waits longer than these seconds. `capacity` is a
    consumer's in bytes/s, unless it states its own. A consumer shares what new records leave of it
    equally among its partitions with backlog. Where it is measured that a partition is read more slowly, in
    bytes/s, that rate counts. Partitions without backlog, or with an unknown load, are left out.
    """
    catch_up = CatchUpPolicy(catch_up_time=0.0, backlog_grace=grace)
    times: dict[TopicPartition, float | None] = {}
    for member in members:
        known = {p: loads[p] for p in member.owned_partitions if p in loads}
        spare = (member.capacity or capacity) - sum(load.bytes_per_s or 0.0 for load in known.values())
        overdue = {p: compute_overdue_bytes(load, catch_up) for p, load in known.items()}
        times |= share_spare_rate({p: size for p, size in overdue.items() if size}, spare)
        for p in known.keys() & times.keys() & consumption_rates.keys():
            gain = consumption_rates[p] - (known[p].bytes_per_s or 0.0)
            times[p] = _take_slower(times[p], (overdue[p] or 0.0) / gain if gain > 0 else None)
    return times


def _take_slower(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else max(first, second)


def share_spare_rate(
    backlogs: Mapping[TopicPartition, float], spare: float
) -> dict[TopicPartition, float | None]:
    """Return when each backlog (bytes) ends if the remaining ones share `spare` (bytes/s) equally."""
    if spare <= 0:
        return dict.fromkeys(backlogs)
    elapsed = previous = 0.0
    times: dict[TopicPartition, float | None] = {}
    for done, (partition, backlog) in enumerate(sorted(backlogs.items(), key=lambda one: (one[1], one[0]))):
        elapsed += (backlog - previous) * (len(backlogs) - done) / spare
        times[partition], previous = elapsed, backlog
    return times
