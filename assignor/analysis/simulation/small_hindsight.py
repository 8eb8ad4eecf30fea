"""The least cost of a stream of few partitions, over all placements of every tick.

A placement is a set partition: which partitions share a consumer. From one to the next the partitions of a
set may all stay if and only if both placements group that set alike; then the others move. So the least
moves of a step are its load less that of the heaviest set that both group alike, and the least cost is the
shortest path over the placements of all ticks. An absent partition may be anywhere, at no cost.
"""

from collections.abc import Iterator
from functools import cache
from typing import Final

import numpy as np

from trimtab.assignor.model import BoolArray, FloatArray, IntArray
from trimtab.assignor.packing import CAPACITY_TOLERANCE

MAX_EXACT_PARTITIONS: Final = 6  # 203 placements, 41,209 steps of 64 sets


def solve_small_stream(
    rates: FloatArray, usable: float, load_of_consumer: float
) -> tuple[IntArray, FloatArray]:
    """Return the consumers (N,) and the moved load (N,) in bytes/s of a cheapest sequence of placements.

    `rates` (N, P) are in bytes/s, NaN if absent. A consumer holds `usable`; for a tick it costs as much as
    moving `load_of_consumer`.
    """
    weights = np.nan_to_num(rates, nan=0.0)
    there = ~np.isnan(rates)
    movable = np.append(np.zeros_like(weights[:1]), weights[1:] * (there[1:] & there[:-1]), axis=0)
    consumers = [_count_consumers(w, t, usable) for w, t in zip(weights, there, strict=True)]
    total = consumers[0]
    choices: list[IntArray] = []
    for tick in range(1, len(rates)):
        reached = total[:, None] + _find_least_moves(movable[tick]) / load_of_consumer
        choices.append(reached.argmin(axis=0))
        total = reached.min(axis=0) + consumers[tick]
    path = [int(total.argmin())]
    for choice in reversed(choices):
        path.append(int(choice[path[-1]]))
    path.reverse()
    moved = [_find_least_moves(movable[n])[path[n - 1], path[n]] for n in range(1, len(path))]
    used = [each[placement] for each, placement in zip(consumers, path, strict=True)]
    return np.array(used, dtype=np.int32), np.array([0.0, *moved])


def _count_consumers(weight: FloatArray, there: BoolArray, usable: float) -> FloatArray:
    """Return the consumers of each placement at one tick; inf if one is overfull."""
    group = _list_placements(len(weight))
    member = group[:, None, :] == np.arange(len(weight))[:, None]  # (placements, groups, partitions)
    size = (member & there).sum(axis=2)
    load = (member * weight).sum(axis=2)
    overfull = (size > 1) & (load > usable * (1 + CAPACITY_TOLERANCE))
    return np.where(overfull.any(axis=1), np.inf, (size > 0).sum(axis=1))


def _find_least_moves(weight: FloatArray) -> FloatArray:
    """Return the least moved load from each placement to each other one; `weight` (P,) is what may move."""
    alike = _group_sets_alike(len(weight))
    sets = _list_sets(len(weight)) @ weight
    stays = np.zeros(alike.shape[1:])
    for number in np.argsort(sets).tolist():  # the heaviest last
        np.putmask(stays, alike[number], sets[number])
    moved: FloatArray = weight.sum() - stays
    return moved


@cache
def _list_placements(partitions: int) -> IntArray:
    """Return all placements, as the number of each partition's consumer."""
    return np.array([*_extend_placements((), partitions)], dtype=np.int32).reshape(-1, partitions)


def _extend_placements(begun: tuple[int, ...], partitions: int) -> Iterator[tuple[int, ...]]:
    if len(begun) == partitions:
        yield begun
        return
    for consumer in range(max(begun, default=-1) + 2):
        yield from _extend_placements((*begun, consumer), partitions)


@cache
def _list_sets(partitions: int) -> IntArray:
    """Return all sets of partitions as rows of 0 and 1."""
    return np.arange(2**partitions)[:, None] >> np.arange(partitions) & 1


@cache
def _group_sets_alike(partitions: int) -> BoolArray:
    """Return whether two placements group a set alike, (sets, placements, placements)."""
    group = _list_placements(partitions)
    together = group[:, :, None] == group[:, None, :]  # (placements, partitions, partitions)
    sets = _list_sets(partitions).astype(bool)
    within = sets[:, :, None] & sets[:, None, :]
    # A set's grouping as a number, equal for placements that group it alike.
    bits = (2 ** np.arange(partitions**2, dtype=np.int64)).reshape(partitions, partitions)
    code = np.einsum("aij,sij,ij->sa", together, within, bits)
    alike: BoolArray = code[:, :, None] == code[:, None, :]
    return alike
