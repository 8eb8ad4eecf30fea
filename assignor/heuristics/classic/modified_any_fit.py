"""Modified any fit: Algorithm 1 of "Kafka Consumer Group Autoscaler".

1. Visit consumers by falling total load, or by falling largest partition (Table II).
2. Move a consumer's partitions, smallest first, into open bins. At the first that fits none, open
   the consumer's own bin and fill it with the rest, largest first. At the first that does not fit,
   set aside that partition and all smaller ones.
3. Place partitions set aside or without an owner, largest first, where they fit or in a new bin.

Algorithm 1 assumes one capacity. With different capacities, a partition larger than its consumer is
set aside at once if a closed bin holds it; otherwise the consumer keeps it.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

import numpy as np

from trimtab.assignor.model import UNASSIGNED, FloatArray, IntArray, PackingProblem
from trimtab.assignor.model.heuristic import Heuristic
from trimtab.assignor.model.packing import (
    FitRule,
    Packing,
    find_best_fit,
    find_worst_fit,
    order_decreasing,
    place_items,
    sum_loads,
)

# Returns each consumer's key (M,) from owners (P,), weights (P,) and M; the highest is visited first.
ConsumerRanking: TypeAlias = Callable[[IntArray, FloatArray, int], FloatArray]


def rank_by_largest_partition(home: IntArray, weight: FloatArray, members: int) -> FloatArray:
    """Return each consumer's largest partition, (M,)."""
    largest = np.zeros(members)
    np.maximum.at(largest, home[home != UNASSIGNED], weight[home != UNASSIGNED])
    return largest


def pack_modified_any_fit(
    problem: PackingProblem, find_bin: FitRule, rank_consumers: ConsumerRanking
) -> IntArray:
    """Return the bin of each partition, shape (P,), by Algorithm 1."""
    packing = Packing(problem)
    order = order_decreasing(problem)
    held: list[list[int]] = [[] for _ in problem.capacity]
    aside: list[int] = []
    for item in order:
        home = packing.home[item]
        (aside if home == UNASSIGNED else held[home]).append(item)
    homes = np.asarray(packing.home, dtype=np.int32)
    for consumer in np.argsort(-rank_consumers(homes, problem.weight, len(held)), kind="stable").tolist():
        aside += _place_consumer_items(packing, find_bin, consumer, held[consumer])
    left = set(aside)
    place_items(packing, find_bin, [item for item in order if item in left])
    return packing.bin


def _place_consumer_items(packing: Packing, find_bin: FitRule, consumer: int, items: list[int]) -> list[int]:
    """Place one consumer's items, sorted largest first; return those set aside (rule 2)."""
    rest = _insert_smallest(packing, find_bin, items)
    # Only with different capacities: Algorithm 1 would leave an oversized partition where it is.
    too_large = [i for i in rest if not packing.fits_in_bin(i, consumer) and packing.fits_closed_bin(i)]
    rest = [i for i in rest if i not in too_large]
    for position, item in enumerate(rest):
        if packing.is_open(consumer) and not packing.fits_in_bin(item, consumer):
            return too_large + rest[position:]
        packing.place_item(item, consumer)
    return too_large


def _insert_smallest(packing: Packing, find_bin: FitRule, items: list[int]) -> list[int]:
    """Move items, smallest first, into open bins until one fits in none; return the others."""
    for left in range(len(items), 0, -1):
        number = find_bin(packing, items[left - 1])
        if number == UNASSIGNED:
            return items[:left]
        packing.place_item(items[left - 1], number)
    return []


_CONSUMER_RANKINGS: Final = (
    ("", "", "consumers by total load", sum_loads),
    ("p", " partition", "consumers by largest partition", rank_by_largest_partition),
)
_MODIFIED_FIT_RULES: Final = (
    ("mwf", "modified worst fit", find_worst_fit),
    ("mbf", "modified best fit", find_best_fit),
)

MODIFIED_ANY_FIT_HEURISTICS: Final = tuple(
    Heuristic(
        name=name + suffix,
        pack=partial(pack_modified_any_fit, find_bin=find_bin, rank_consumers=rank_consumers),
        summary=f"{title}{variant}: Algorithm 1, {order}",
        source="Kafka Consumer Group Autoscaler, Algorithm 1 and Table II",
    )
    for suffix, variant, order, rank_consumers in _CONSUMER_RANKINGS
    for name, title, find_bin in _MODIFIED_FIT_RULES
)
