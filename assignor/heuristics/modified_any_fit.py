"""Modified any fit: Algorithm 1 of "Kafka Consumer Group Autoscaler", and what it leaves open.

1. Consumers are visited by falling total load, or by falling largest partition.
2. From its smallest partition upwards, a consumer's partitions go to bins that are already open; at
   the first that fits in none, its own bin is opened and keeps the rest from the largest down; at
   the first that does not fit, that one and all smaller ones are set aside.
3. What was set aside, and what nobody read, goes where it fits, the largest first, or to a new bin.

Where members differ in capacity, a partition too large for its consumer is set aside at once if a
closed bin could hold it; otherwise its consumer keeps it (an empty bin takes any partition).
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from trimtab.assignor.model import UNASSIGNED, FloatArray, IntArray, PackingProblem
from trimtab.assignor.packing import FitRule, Packing, order_decreasing, place_items, sum_loads

ConsumerRanking: TypeAlias = Callable[[IntArray, FloatArray, int], FloatArray]
"""Returns shape (M,): by what consumers are visited, from owners (P,), weights (P,) and M."""


def rank_by_total_load(home: IntArray, weight: FloatArray, members: int) -> FloatArray:
    """Return each consumer's total load."""
    return sum_loads(home, weight, members)


def rank_by_largest_partition(home: IntArray, weight: FloatArray, members: int) -> FloatArray:
    """Return each consumer's largest partition."""
    largest = np.zeros(members)
    np.maximum.at(largest, home[home != UNASSIGNED], weight[home != UNASSIGNED])
    return largest


def pack_modified_any_fit(
    problem: PackingProblem, find_bin: FitRule, rank_consumers: ConsumerRanking
) -> IntArray:
    """Pack by Algorithm 1."""
    packing = Packing(problem)
    order = order_decreasing(problem)
    held: list[list[int]] = [[] for _ in problem.capacity]
    aside: list[int] = []
    for item in order:
        home = packing.home[item]
        (aside if home == UNASSIGNED else held[home]).append(item)
    homes = np.asarray(packing.home, dtype=np.int32)
    for consumer in np.argsort(
        -rank_consumers(homes, problem.weight, len(held)), kind="stable"
    ).tolist():
        aside += _place_consumer_items(packing, find_bin, consumer, held[consumer])
    left = set(aside)
    place_items(packing, find_bin, [item for item in order if item in left])
    return packing.bin


def _place_consumer_items(
    packing: Packing, find_bin: FitRule, consumer: int, items: list[int]
) -> list[int]:
    """Place one consumer's items, given from the largest down, and return those set aside."""
    rest = _insert_smallest(packing, find_bin, items)
    too_large = [
        i for i in rest if not packing.fits_in_bin(i, consumer) and packing.fits_closed_bin(i)
    ]
    if too_large:
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
