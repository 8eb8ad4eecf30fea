"""Queues between writers and readers: a fluid model, one step a tick.

Rules of this file:

- A partition is written at the tick's speed throughout the tick, and read in order.
- A consumer reads `capacity` bytes/s as long as any of its partitions holds something. It shares
  them evenly among those (max-min: nobody gets more than it has, what is over goes to the others),
  as a client's round of fetches does. A paused partition gets nothing.
- A byte is late if, when it arrives, the oldest unread byte of its partition is older than the
  limit L. With A(t) bytes written and S(t) bytes read up to t, that is S(t) < A(t - L).
- A partition that is away is not written, and what it held is forgotten.

A tick is cut into pieces, at the end of the pause, at L, and so that there are at least `_MIN_PIECES`
of them; inside a piece S is taken to be a straight line.
"""

from itertools import pairwise
from typing import Final

import numpy as np

from trimtab.assignor.analysis.simulation.setup import SimulationSetup
from trimtab.assignor.model import UNASSIGNED, BoolArray, FloatArray, IntArray
from trimtab.assignor.packing import CAPACITY_TOLERANCE

_MIN_PIECES: Final = 6


class PartitionBacklogs:
    """What is unread of P partitions; `speeds` (N, P) as in a `Stream`."""

    def __init__(self, speeds: FloatArray, setup: SimulationSetup) -> None:
        self._setup = setup
        self._away: BoolArray = np.isnan(speeds)
        self._rate: FloatArray = np.where(self._away, 0.0, speeds)
        written = self._rate * setup.tick
        written[0] = 0.0  # the first decision comes at the end of the first tick
        self._written: FloatArray = np.cumsum(written, axis=0)  # at the end of each tick
        self._read: FloatArray = np.zeros(speeds.shape[1])
        self._now = 0  # tick
        self._pieces = _split_tick(setup)

    @property
    def written(self) -> FloatArray:
        """What was written till now, (P,) bytes."""
        row: FloatArray = self._written[self._now]
        return row

    @property
    def backlog(self) -> FloatArray:
        """What is unread now, (P,) bytes."""
        unread: FloatArray = np.maximum(self.written - self._read, 0.0)
        return unread

    @property
    def oldest_ages(self) -> FloatArray:
        """How long the oldest unread byte has waited, (P,) seconds; 0 where nothing is unread."""
        unread = self.backlog > CAPACITY_TOLERANCE * self._written[self._now]
        border = (self._written[: self._now + 1] <= self._read).sum(axis=0) - 1
        border = np.clip(border, 0, max(0, self._now - 1))
        partition = np.arange(len(self._read))
        rate = self._rate[np.minimum(border + 1, self._now), partition]
        over = self._read - self._written[border, partition]
        inside = np.divide(over, rate, out=np.zeros_like(over), where=rate > 0)
        return np.where(unread, (self._now - border) * self._setup.tick - inside, 0.0)

    def advance_tick(self, owner: IntArray, paused: BoolArray) -> FloatArray:
        """Let the next tick pass and return the late bytes (P,) of it.

        `owner` (P,) reads, NOBODY where nobody does; `paused` (P,) are not read at first.
        """
        self._now += 1
        away = self._away[self._now]
        self._read = np.where(away, self._written[self._now], self._read)
        rate, late = self._rate[self._now], np.zeros_like(self._read)
        begin = (self._now - 1) * self._setup.tick
        behind = self._read - self._written_at(begin - self._setup.late)
        for start, end in self._pieces:
            open_ = (owner != UNASSIGNED) & ~(paused & (start < self._setup.pause))
            self._read_partitions(owner, open_, begin + end, end - start)
            after = self._read - self._written_at(begin + end - self._setup.late)
            late += (
                rate * (end - start) * _fraction_below_zero(behind, after, self._written[self._now])
            )
            behind = after
        return late

    def _read_partitions(
        self, owner: IntArray, open_: BoolArray, at: float, seconds: float
    ) -> None:
        """Read from the open partitions for so long, up to what is written until `at`."""
        if open_.any():
            there = np.maximum(self._written_at(at)[open_] - self._read[open_], 0.0)
            self._read[open_] += share_capacity(owner[open_], there, self._setup.capacity * seconds)

    def _written_at(self, at: float) -> FloatArray:
        """Return A(at), (P,) bytes; nothing before time 0."""
        if at <= 0:
            return np.zeros_like(self._read)
        tick = min(int(at / self._setup.tick), len(self._written) - 1)
        rest = at - tick * self._setup.tick
        following = self._rate[min(tick + 1, len(self._rate) - 1)]
        written: FloatArray = self._written[tick] + following * rest
        return written


def share_capacity(owner: IntArray, demand: FloatArray, capacity: float) -> FloatArray:
    """Return what each item gets of its owner's `capacity`: max-min fair, none more than `demand`.

    All in bytes; `owner` and `demand` (P,).
    """
    load = np.bincount(owner, demand)
    if load.max(initial=0.0) <= capacity:
        return demand
    order = np.lexsort((demand, owner))
    sorted_owner, sorted_wanted = owner[order], demand[order]
    count = np.bincount(owner)
    first = np.concatenate([[0], np.cumsum(count)[:-1]])[sorted_owner]  # of this owner's items
    before = np.cumsum(sorted_wanted) - sorted_wanted
    before -= before[first]
    left = count[sorted_owner] - (np.arange(len(owner)) - first)
    whole = sorted_wanted <= (capacity - before) / left  # all smaller ones are whole then, too
    rest = capacity - np.bincount(sorted_owner[whole], sorted_wanted[whole], minlength=len(count))
    sharing = np.bincount(sorted_owner[~whole], minlength=len(count))
    level = rest / np.maximum(sharing, 1)
    given = np.empty_like(demand)
    given[order] = np.where(whole, sorted_wanted, level[sorted_owner])
    return given


def _fraction_below_zero(before: FloatArray, after: FloatArray, scale: FloatArray) -> FloatArray:
    """Return the share of a piece in which a straight line from `before` to `after` is below 0."""
    before = np.where(np.abs(before) <= CAPACITY_TOLERANCE * scale, 0.0, before)
    after = np.where(np.abs(after) <= CAPACITY_TOLERANCE * scale, 0.0, after)
    low, high = np.minimum(before, after), np.maximum(before, after)
    span = np.where(high > low, high - low, 1.0)
    crossing: FloatArray = np.where(low < 0, -low / span, 0.0)
    return np.where((high <= 0) & (low < 0), 1.0, crossing)


def _split_tick(setup: SimulationSetup) -> tuple[tuple[float, float], ...]:
    """Return the pieces of a tick, each its begin and end in seconds."""
    borders = {setup.tick * n / _MIN_PIECES for n in range(_MIN_PIECES + 1)}
    borders |= {min(setup.pause, setup.tick), setup.late % setup.tick}
    ordered = sorted(borders)
    return tuple((a, b) for a, b in pairwise(ordered) if b - a > CAPACITY_TOLERANCE * setup.tick)
