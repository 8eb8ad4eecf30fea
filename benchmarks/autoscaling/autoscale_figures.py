"""Figures of a bench_autoscale run, from the pods' logs and external observation.

Records count from the end of the settling time on; a record that is unhandled at the end counts with
its age. The group's generations come from `cluster.generations`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.autoscaling.autoscale_rig import Deleted, Sample
from benchmarks.stream import TICK

Floats: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class RunLog:
    """Observations of a run; times are seconds since the epoch.

    `records` has a row per handled record, in order of handling: partition, offset, time of production,
    seconds until handled. `needed` is the minimum number of consumers of each tick from `begin` on,
    `planned` the number of records to write.
    """

    begin: float
    end: float
    written: Floats
    records: np.ndarray[tuple[int, int], np.dtype[np.float64]]
    samples: Sequence[Sample]
    deleted: Sequence[Deleted]
    generations: Sequence[tuple[float, int]]
    needed: Sequence[int]
    planned: Sequence[float]

    @property
    def measured(self) -> list[Sample]:
        """Samples between begin and end."""
        return [s for s in self.samples if self.begin <= s.time <= self.end]

    def least(self, when: float) -> int:
        """Return the minimum number of consumers at a time."""
        return self.needed[min(len(self.needed) - 1, int((when - self.begin) / TICK))]


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one side; `produced` and `latency` (seconds) have one element per record."""

    side: str
    consumer_hours: float
    late_traffic: float
    p50_s: float
    p99_s: float
    scalings: int
    rebalances: int
    reread: int
    pods_deleted: int
    pods_deleted_while_owning: int
    within_one: float
    unhandled: int
    records: int
    most: int
    burst: float
    produced: Floats
    latency: Floats
    log: RunLog

    @property
    def rounded(self) -> dict[str, Any]:
        """Rounded figures by name."""
        hidden = ("side", "produced", "latency", "log")
        names = [name for name in self.__slots__ if name not in hidden]
        rounded = {name: round(getattr(self, name), 4) for name in names}
        rounded["rebalances_per_change"] = round(self.rebalances / max(1, self.scalings), 2)
        return rounded


def summarize_run(side: str, log: RunLog, late: float) -> Figures:
    """Return the figures; `late` is the latency limit in seconds."""
    produced, latency, unhandled = _find_latencies(log)
    samples = log.measured
    requested = [s.requested_replicas for s in samples]
    near = [abs(s.running - log.least(s.time)) <= 1 for s in samples]
    deleted = [d for d in log.deleted if log.begin <= d.time <= log.end]
    return Figures(
        side=side,
        consumer_hours=_sum_consumer_hours(samples),
        late_traffic=float((latency > late).mean()),
        p50_s=float(np.percentile(latency, 50)),
        p99_s=float(np.percentile(latency, 99)),
        scalings=sum(one != two for one, two in pairwise(requested)),
        rebalances=_find_newest_sample(log, log.end) - _find_newest_sample(log, log.begin),
        reread=len(log.records) - len(np.unique(log.records[:, :2], axis=0)),
        pods_deleted=len(deleted),
        pods_deleted_while_owning=sum(d.owned > 0 for d in deleted),
        within_one=sum(near) / len(near),
        unhandled=unhandled,
        records=len(latency),
        most=max(requested),
        burst=_find_longest_burst(log),
        produced=produced,
        latency=latency,
        log=log,
    )


def _find_latencies(log: RunLog) -> tuple[Floats, Floats, int]:
    """Return the production times, the seconds until first handling, and the number of unhandled records."""
    handled_at = log.records[:, 2] + log.records[:, 3]
    ordered = log.records[np.argsort(handled_at, kind="stable")]
    _, first = np.unique(ordered[:, :2], axis=0, return_index=True)
    once = ordered[first]
    inside = once[once[:, 2] >= log.begin]
    written = np.sort(log.written[log.written >= log.begin])
    missing = len(written) - len(inside)
    youngest = written[len(written) - missing :]  # their ages are a lower bound
    produced = np.concatenate([inside[:, 2], youngest])
    return produced, np.concatenate([inside[:, 3], log.end - youngest]), missing


def _find_longest_burst(log: RunLog) -> float:
    """Return the maximum ratio of written to planned records in a tick."""
    ticks = log.begin + np.arange(len(log.planned) + 1) * TICK
    written, _ = np.histogram(log.written, bins=ticks)
    return float((written / np.array(log.planned)).max())


def _sum_consumer_hours(samples: Sequence[Sample]) -> float:
    return sum(one.running * (two.time - one.time) for one, two in pairwise(samples)) / 3600


def _find_newest_sample(log: RunLog, when: float) -> int:
    return max((number for at, number in log.generations if at <= when), default=0)


def read_handled_records(folder: Path) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return the records in the pods' logs."""
    logs = (np.loadtxt(log, ndmin=2) for log in sorted(folder.iterdir()) if log.stat().st_size)
    return np.concatenate([np.empty((0, 5)), *logs])[:, :4]


def find_hardest_run(ours: Figures, theirs: Iterable[Figures]) -> Figures:
    """Return the other side's run that comes closest to ours by the two targets."""
    return max(theirs, key=lambda f: max(compare_with_targets(ours, f).values()))


def compare_with_targets(ours: Figures, theirs: Figures) -> Mapping[str, float]:
    """Return our share of the other side's figures relative to the targets."""
    late = max(theirs.late_traffic, 1e-9)
    hours = ours.consumer_hours / theirs.consumer_hours
    return {"consumer_hours": hours / HOURS, "late_traffic": ours.late_traffic / late / LATE}


HOURS, LATE = 0.8, 0.5
"""Targets: maximum shares of the other side's consumer-hours and late traffic."""
