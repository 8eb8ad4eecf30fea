"""Lower bound in hindsight: the least cost of a whole stream for one that knows it in advance.

1. The cost of a stream is the sum of `consumers + move_cost · R` over its ticks. A placement fits a tick if
   every consumer is within its capacity by the tick's write rates, or has a single partition.
2. A tick needs at least as many consumers as L2 says (`score.lower_bound`).
3. Partitions that stay are on at most k = min(consumers before, consumers after) consumers. With loads
   clipped to a capacity U each of those keeps at most U, so at least (kept load - k · U) moves.
4. The bound is the shortest path over the numbers of consumers of all ticks, by 2. and 3. More consumers
   than the highest number of 2. save nothing: with that many, 3. forces no move.
5. Streams of few partitions are solved exactly, over all placements (`small_hindsight`).

It forces moves only where the number of consumers changes or is just sufficient. Those that a packing needs
as loads change within it are not in the bound, so the gap of a run is an upper limit of what was avoidable.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trimtab.assignor.analysis.simulation.small_hindsight import MAX_EXACT_PARTITIONS, solve_small_stream
from trimtab.assignor.model import FloatArray, IntArray
from trimtab.assignor.packing import CAPACITY_TOLERANCE
from trimtab.assignor.score import lower_bound


class HindsightInput(NamedTuple):
    """A stream and its prices; loads are in bytes/s."""

    rates: FloatArray  # (N, P), NaN for an absent partition
    usable: float  # load to which a consumer may be filled
    capacity: float  # load that R counts as one consumer
    move_cost: float  # λ: consumers of a tick that moving one consumer's load is worth


@dataclass(frozen=True, slots=True, eq=False)
class HindsightBound:
    """A lower bound on the cost of a stream of N ticks, tick by tick on one cheapest path."""

    consumers: IntArray  # (N,)
    moves: FloatArray  # (N,) R
    move_cost: float
    exact: bool  # some sequence of placements costs just this

    @property
    def cost(self) -> FloatArray:
        """Cost of each tick in consumers, (N,)."""
        return self.consumers + self.move_cost * self.moves


def bound_in_hindsight(given: HindsightInput) -> HindsightBound:
    """Return a lower bound on the cost of any sequence of placements that fit."""
    if given.rates.shape[1] > MAX_EXACT_PARTITIONS:
        return bound_by_counts(given)
    load_of_consumer = given.capacity / given.move_cost if given.move_cost else math.inf
    consumers, moved = solve_small_stream(given.rates, given.usable, load_of_consumer)
    return HindsightBound(consumers, moved / given.capacity, given.move_cost, exact=True)


def bound_by_counts(given: HindsightInput) -> HindsightBound:
    """Return the cost of a shortest path over the numbers of consumers of all ticks."""
    least = [lower_bound(rates[~np.isnan(rates)], given.usable) for rates in given.rates]
    counts = np.arange(min(least), max(least) + 1, dtype=np.int32)
    kept = _sum_kept_loads(given)
    total: FloatArray = np.where(counts < least[0], np.inf, counts)
    choices: list[IntArray] = []
    for tick in range(1, len(least)):
        forced = _force_moves(given, float(kept[tick - 1]), np.minimum.outer(counts, counts))
        reached = total[:, None] + given.move_cost * forced
        choices.append(reached.argmin(axis=0))
        total = np.where(counts < least[tick], np.inf, reached.min(axis=0) + counts)
    path = [int(total.argmin())]
    for choice in reversed(choices):
        path.append(int(choice[path[-1]]))
    consumers: IntArray = counts[path[::-1]]
    shared = np.minimum(consumers[:-1], consumers[1:])
    moves: FloatArray = np.append(0.0, _force_moves(given, kept, shared))
    return HindsightBound(consumers, moves, given.move_cost, exact=False)


def _sum_kept_loads(given: HindsightInput) -> FloatArray:
    """Return the clipped load of the partitions that are there at two ticks in a row, (N - 1,)."""
    there = ~np.isnan(given.rates)
    clipped = np.minimum(np.nan_to_num(given.rates, nan=0.0), given.usable)
    loads: FloatArray = (clipped[1:] * (there[1:] & there[:-1])).sum(axis=1)
    return loads


def _force_moves(given: HindsightInput, kept: FloatArray | float, shared: IntArray) -> FloatArray:
    """Return the least R if at most `shared` consumers keep partitions of the clipped load `kept`."""
    room = shared * given.usable * (1 + CAPACITY_TOLERANCE)
    forced: FloatArray = np.maximum(kept - room, 0.0) / given.capacity
    return forced
