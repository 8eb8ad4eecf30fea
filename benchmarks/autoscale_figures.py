"""What a run of bench_autoscale came to, from the pods' logs and what was seen from outside.

A record counts if it was produced after the settling; one that was not handled at the end counts
with its age then. Generations of the group are those that `cluster.generations` finds.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from autoscale_rig import Deleted, Sample
from stream import TICK

Floats: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Seen:
    """All that is known of a run; times are seconds since the epoch.

    `records` has a row for each record handled, in the order of handling: partition, offset,
    produced, seconds until it was handled. `needed` are the least consumers of each tick from
    `begin` on, `planned` the records that were to be written.
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
        """Return the looks between begin and end."""
        return [s for s in self.samples if self.begin <= s.time <= self.end]

    def least(self, when: float) -> int:
        """Return how many consumers would have done at a time."""
        return self.needed[min(len(self.needed) - 1, int((when - self.begin) / TICK))]


@dataclass(frozen=True, slots=True)
class Figures:
    """One side's; `produced` and `latency` (seconds) go together, record by record."""

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
    seen: Seen

    @property
    def told(self) -> dict[str, Any]:
        """Return the figures by name, rounded."""
        hidden = ("side", "produced", "latency", "seen")
        names = [name for name in self.__slots__ if name not in hidden]
        told = {name: round(getattr(self, name), 4) for name in names}
        told["rebalances_per_change"] = round(self.rebalances / max(1, self.scalings), 2)
        return told


def figures(side: str, seen: Seen, late: float) -> Figures:
    """Return the figures; `late` is the bound in seconds."""
    produced, latency, unhandled = _latencies(seen)
    looks = seen.measured
    asked = [s.asked for s in looks]
    near = [abs(s.running - seen.least(s.time)) <= 1 for s in looks]
    deleted = [d for d in seen.deleted if seen.begin <= d.time <= seen.end]
    return Figures(
        side=side,
        consumer_hours=_hours(looks),
        late_traffic=float((latency > late).mean()),
        p50_s=float(np.percentile(latency, 50)),
        p99_s=float(np.percentile(latency, 99)),
        scalings=sum(one != two for one, two in pairwise(asked)),
        rebalances=_newest(seen, seen.end) - _newest(seen, seen.begin),
        reread=len(seen.records) - len(np.unique(seen.records[:, :2], axis=0)),
        pods_deleted=len(deleted),
        pods_deleted_while_owning=sum(d.owned > 0 for d in deleted),
        within_one=sum(near) / len(near),
        unhandled=unhandled,
        records=len(latency),
        most=max(asked),
        burst=_burst(seen),
        produced=produced,
        latency=latency,
        seen=seen,
    )


def _latencies(seen: Seen) -> tuple[Floats, Floats, int]:
    """Return when each record was produced, seconds until it was handled first, and the missing."""
    handled_at = seen.records[:, 2] + seen.records[:, 3]
    ordered = seen.records[np.argsort(handled_at, kind="stable")]
    _, first = np.unique(ordered[:, :2], axis=0, return_index=True)
    once = ordered[first]
    inside = once[once[:, 2] >= seen.begin]
    every = np.sort(seen.written[seen.written >= seen.begin])
    missing = len(every) - len(inside)
    youngest = every[len(every) - missing :]  # their ages are a lower bound
    produced = np.concatenate([inside[:, 2], youngest])
    return produced, np.concatenate([inside[:, 3], seen.end - youngest]), missing


def _burst(seen: Seen) -> float:
    """Return the most records of a tick, in parts of those planned."""
    ticks = seen.begin + np.arange(len(seen.planned) + 1) * TICK
    written, _ = np.histogram(seen.written, bins=ticks)
    return float((written / np.array(seen.planned)).max())


def _hours(looks: Sequence[Sample]) -> float:
    return sum(one.running * (two.time - one.time) for one, two in pairwise(looks)) / 3600


def _newest(seen: Seen, when: float) -> int:
    return max((number for at, number in seen.generations if at <= when), default=0)


def read(folder: Path) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return what the pods have logged."""
    logs = (np.loadtxt(log, ndmin=2) for log in sorted(folder.iterdir()) if log.stat().st_size)
    return np.concatenate([np.empty((0, 5)), *logs])[:, :4]


def hardest(ours: Figures, theirs: Iterable[Figures]) -> Figures:
    """Return the run of the other side that is hardest to beat, by the two aims."""
    return max(theirs, key=lambda f: max(ratios(ours, f).values()))


def ratios(ours: Figures, theirs: Figures) -> Mapping[str, float]:
    """Return our part of what the other side has: consumer-hours / 0.8, late traffic / 0.5."""
    late = max(theirs.late_traffic, 1e-9)
    hours = ours.consumer_hours / theirs.consumer_hours
    return {"consumer_hours": hours / HOURS, "late_traffic": ours.late_traffic / late / LATE}


HOURS, LATE = 0.8, 0.5
"""Aims: at most so much of the other side's."""
