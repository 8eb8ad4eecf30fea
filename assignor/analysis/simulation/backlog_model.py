"""Fluid model of the backlogs between producers and consumers, one step per tick.

1. A partition is written at a constant rate during a tick and read in order.
2. A consumer reads `capacity` bytes/s while any of its partitions has a backlog, shared max-min
   fairly among them, as by a client's fetches. A paused partition gets nothing.
3. A byte is late if, on arrival, the oldest unread byte of its partition is older than the limit L.
   With A(t) bytes written and S(t) bytes read up to t, that is S(t) < A(t - L).
4. An absent partition is not written and loses its backlog.

A tick is divided into at least six pieces, also at each change of owners, at the end of its pause and
at L. Within a piece S is linear.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from trimtab.assignor.analysis.simulation.setup import SimulationSetup
from trimtab.assignor.model import UNASSIGNED, BoolArray, FloatArray, IntArray
from trimtab.assignor.model.packing import CAPACITY_TOLERANCE

_MIN_PIECES: Final = 6  # of a tick


class ReadingStage(NamedTuple):
    """Who reads from `at` seconds into a tick on."""

    at: float
    owner: IntArray  # (P,) consumer or UNASSIGNED
    paused: BoolArray  # (P,) not read during the pause from `at` on


class PartitionBacklogs:
    """Backlogs of P partitions; `rates` (N, P) are those of a `WriteRateStream`."""

    def __init__(self, rates: FloatArray, setup: SimulationSetup) -> None:
        self._setup = setup
        self._away: BoolArray = np.isnan(rates)
        self._rate: FloatArray = np.where(self._away, 0.0, rates)
        written = self._rate * setup.tick
        written[0] = 0.0  # the first decision comes at the end of the first tick
        self._written: FloatArray = np.cumsum(written, axis=0)  # at the end of each tick
        self._read: FloatArray = np.zeros(rates.shape[1])
        self._now = 0  # tick

    @property
    def written(self) -> FloatArray:
        """Bytes written until now, (P,)."""
        row: FloatArray = self._written[self._now]
        return row

    @property
    def backlog(self) -> FloatArray:
        """Bytes unread now, (P,)."""
        unread: FloatArray = np.maximum(self.written - self._read, 0.0)
        return unread

    @property
    def oldest_ages(self) -> FloatArray:
        """Age of the oldest unread byte in seconds, (P,); 0 without backlog."""
        unread = self.backlog > CAPACITY_TOLERANCE * self._written[self._now]
        border = (self._written[: self._now + 1] <= self._read).sum(axis=0) - 1
        border = np.clip(border, 0, max(0, self._now - 1))
        partition = np.arange(len(self._read))
        rate = self._rate[np.minimum(border + 1, self._now), partition]
        over = self._read - self._written[border, partition]
        inside = np.divide(over, rate, out=np.zeros_like(over), where=rate > 0)
        return np.where(unread, (self._now - border) * self._setup.tick - inside, 0.0)

    def advance_tick(self, owner: IntArray, paused: BoolArray) -> FloatArray:
        """Advance by one tick with the same owners; return its late bytes (P,)."""
        return self.advance_stages((ReadingStage(0.0, owner, paused),))

    def advance_stages(self, stages: Sequence[ReadingStage]) -> FloatArray:
        """Advance by one tick of these stages, the first at 0 s; return its late bytes (P,)."""
        self._now += 1
        away = self._away[self._now]
        self._read = np.where(away, self._written[self._now], self._read)  # its backlog is lost
        rate = self._rate[self._now]
        late = np.zeros_like(self._read)
        begin = (self._now - 1) * self._setup.tick
        behind = self._read - self._written_at(begin - self._setup.late)
        for start, end in _split_tick(self._setup, [stage.at for stage in stages]):
            stage = next(stage for stage in reversed(stages) if stage.at <= start)
            pausing = stage.paused & (start < stage.at + self._setup.pause)
            self._read_partitions(
                stage.owner, (stage.owner != UNASSIGNED) & ~pausing, begin + end, end - start
            )
            after = self._read - self._written_at(begin + end - self._setup.late)
            late += rate * (end - start) * _fraction_below_zero(behind, after, self._written[self._now])
            behind = after
        return late

    def _read_partitions(self, owner: IntArray, open_: BoolArray, at: float, seconds: float) -> None:
        if open_.any():
            unread = np.maximum(self._written_at(at)[open_] - self._read[open_], 0.0)
            self._read[open_] += share_capacity(owner[open_], unread, self._setup.capacity * seconds)

    def _written_at(self, at: float) -> FloatArray:
        """Return A(at) in bytes, (P,); 0 before time 0."""
        if at <= 0:
            return np.zeros_like(self._read)
        tick = min(int(at / self._setup.tick), len(self._written) - 1)
        rest = at - tick * self._setup.tick
        following = self._rate[min(tick + 1, len(self._rate) - 1)]
        written: FloatArray = self._written[tick] + following * rest
        return written


def share_capacity(owner: IntArray, demand: FloatArray, capacity: float) -> FloatArray:
    """Return each item's max-min fair share of its owner's capacity, at most its demand.

    All are in bytes; `owner` and `demand` have shape (P,).
    """
    load = np.bincount(owner, demand)
    if load.max(initial=0.0) <= capacity:
        return demand
    order = np.lexsort((demand, owner))
    sorted_owner, sorted_demand = owner[order], demand[order]
    count = np.bincount(owner)
    first = np.concatenate([[0], np.cumsum(count)[:-1]])[sorted_owner]  # of this owner's items
    before = np.cumsum(sorted_demand) - sorted_demand
    before -= before[first]
    left = count[sorted_owner] - (np.arange(len(owner)) - first)
    whole = sorted_demand <= (capacity - before) / left  # then all smaller ones are whole, too
    rest = capacity - np.bincount(sorted_owner[whole], sorted_demand[whole], minlength=len(count))
    sharing = np.bincount(sorted_owner[~whole], minlength=len(count))
    level = rest / np.maximum(sharing, 1)
    share = np.empty_like(demand)
    share[order] = np.where(whole, sorted_demand, level[sorted_owner])
    return share


def _fraction_below_zero(before: FloatArray, after: FloatArray, scale: FloatArray) -> FloatArray:
    """Return the fraction of a piece in which the line from `before` to `after` is below 0."""
    # Sums of floats that should cancel leave noise of either sign.
    before = np.where(np.abs(before) <= CAPACITY_TOLERANCE * scale, 0.0, before)
    after = np.where(np.abs(after) <= CAPACITY_TOLERANCE * scale, 0.0, after)
    low, high = np.minimum(before, after), np.maximum(before, after)
    span = np.where(high > low, high - low, 1.0)
    crossing: FloatArray = np.where(low < 0, -low / span, 0.0)
    return np.where((high <= 0) & (low < 0), 1.0, crossing)


def _split_tick(setup: SimulationSetup, changes: Sequence[float]) -> Iterator[tuple[float, float]]:
    """Yield the pieces of a tick with changes of owners at these seconds."""
    borders = {setup.tick * n / _MIN_PIECES for n in range(_MIN_PIECES + 1)} | {setup.late % setup.tick}
    for at in changes:
        borders |= {at, min(at + setup.pause, setup.tick)}
    pieces = pairwise(sorted(borders))
    return ((a, b) for a, b in pieces if b - a > CAPACITY_TOLERANCE * setup.tick)
