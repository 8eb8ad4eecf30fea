"""Scores of a decision: R-score, cardinal bin score, lower bound on the number of bins."""

from collections.abc import Mapping, Sequence

import numpy as np

from trimtab.assignor.model import UNASSIGNED, BoolArray, FloatArray, IntArray
from trimtab.assignor.model.packing import CAPACITY_TOLERANCE


def r_score(write_rate: FloatArray, before: IntArray, after: IntArray, capacity: float) -> float:
    """Return the write rate of the moved partitions ÷ the capacity (equation 10 of the paper).

    `write_rate` (P,) and `capacity` are in bytes/s, `before` and `after` (P,) are owners.
    """
    return float(write_rate[find_moved(before, after)].sum()) / capacity


def find_moved(before: IntArray, after: IntArray) -> BoolArray:
    """Return which partitions (P,) had an owner and changed it."""
    changed: BoolArray = (before != UNASSIGNED) & (before != after)
    return changed


def mean_r_score(scores: Sequence[float]) -> float:
    """Return the mean R-score of a stream's ticks (equation 13), 0 without ticks."""
    return float(np.mean(scores)) if len(scores) else 0.0


def cardinal_bin_score(bins: Mapping[str, Sequence[int]]) -> dict[str, float]:
    """Return each heuristic's mean excess over the fewest bins, as a fraction (equation 12).

    `bins` holds the number of bins at each tick by heuristic, all on one stream.
    """
    if not bins:
        return {}
    table = np.array([list(used) for used in bins.values()], dtype=np.float64)
    fewest = np.maximum(table.min(axis=0), 1)  # a tick without partitions has no bins and no excess
    excess = (table - table.min(axis=0)) / fewest
    means: list[float] = excess.mean(axis=1).tolist() if table.shape[1] else [0.0] * len(table)
    return dict(zip(bins, means, strict=True))


def lower_bound(weight: FloatArray, capacity: float) -> int:
    """Return a lower bound on the number of bins: L2 of Martello and Toth.

    `weight` (P,) and `capacity` are in bytes/s.
    """
    capacity *= 1 + CAPACITY_TOLERANCE
    rest = np.sort(weight[weight <= capacity])
    over = len(weight) - len(rest)  # each has its own bin
    if not len(rest):
        return over
    return over + max(1, int(_compute_l2_bounds(rest, capacity).max()))


def _compute_l2_bounds(rest: FloatArray, capacity: float) -> FloatArray:
    """Return L(a) for a = 0 and every weight up to half the capacity; `rest` is sorted."""
    small = int(np.searchsorted(rest, capacity / 2, side="right"))
    alpha = np.unique(np.append(0.0, rest[:small]))
    upto = np.append(0.0, np.cumsum(rest))
    # J1: nothing of at least a fits beside these
    huge = np.searchsorted(rest, capacity - alpha, side="right")
    middle = huge - small  # |J2|
    first = np.searchsorted(rest, alpha, side="left")
    room = middle * capacity - (upto[huge] - upto[small])
    beside = (upto[small] - upto[first] - room) / capacity  # J3 that fits beside none of J2
    least: FloatArray = len(rest) - huge + middle + np.maximum(0, np.ceil(beside - CAPACITY_TOLERANCE))
    return least
