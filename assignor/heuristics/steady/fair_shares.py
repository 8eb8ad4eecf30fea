"""Fair share of each member when subscriptions differ.

The fair share is the fill of each member if load could be divided at will (water filling): each
topic's load is divided among its readers so that all that get some have the same level. That is
repeated, topics of equal readers together, until no level changes: the least uneven division.
"""

from typing import Final

import numpy as np

from trimtab.assignor.model import BoolArray, FloatArray, IntArray, PackingProblem

MAX_FILL_ROUNDS: Final = 100
LEVEL_TOLERANCE: Final = 1e-6  # relative change of a level below which filling ends


def compute_fair_shares(problem: PackingProblem) -> FloatArray:
    """Return the fair load ÷ capacity of each member (M,) of a closed problem; 0 without readable load."""
    # Equal subscriptions have equal shares: members and topics are grouped first.
    readers, kind_of_topic, kind = _group_readers(problem.subscribed)
    capacity: FloatArray = np.bincount(kind, problem.capacity).astype(np.float64)
    load = np.bincount(kind_of_topic[problem.topic], problem.weight, len(readers))
    assigned = np.zeros(readers.shape)
    level = np.zeros(len(capacity))
    for _ in range(MAX_FILL_ROUNDS):
        for topics in np.flatnonzero(load):
            assigned[topics] = 0.0
            assigned[topics] = _divide_load(load[topics], assigned.sum(axis=0), capacity, readers[topics])
        before, level = level, assigned.sum(axis=0) / capacity
        if np.allclose(level, before, rtol=LEVEL_TOLERANCE, atol=0.0):
            break
    shares: FloatArray = level[kind]
    return shares


def _group_readers(subscribed: BoolArray) -> tuple[BoolArray, IntArray, IntArray]:
    """Return distinct rows and columns of `subscribed` (T, M), each topic's row, each member's column."""
    topics, members = subscribed.shape
    if subscribed.all():  # nearly always, and sorting 10,000 members takes longer than all the rest
        return np.ones((1, 1), dtype=np.bool_), np.zeros(topics, np.int32), np.zeros(members, np.int32)
    readers, kind_of_topic = np.unique(subscribed, axis=0, return_inverse=True)
    readers, kind = np.unique(readers, axis=1, return_inverse=True)
    return readers, kind_of_topic.ravel().astype(np.int32), kind.ravel().astype(np.int32)


def _divide_load(load: float, assigned: FloatArray, capacity: FloatArray, readers: BoolArray) -> FloatArray:
    """Return the load that each kind of member gets, lowest level first, beyond what is `assigned`."""
    order = np.flatnonzero(readers)
    order = order[np.argsort(assigned[order] / capacity[order], kind="stable")]
    # The level if only the first kinds get any.
    levels = (load + np.cumsum(assigned[order])) / np.cumsum(capacity[order])
    level = levels.min()
    got = np.zeros_like(assigned)
    got[order] = np.maximum(0.0, level * capacity[order] - assigned[order])
    return got
