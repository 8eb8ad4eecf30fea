"""Fair share of each member when subscriptions differ.

The fair share is the fill of each member if load could be divided at will (water filling): each
topic's load is poured into its readers so that all that get some have the same level. Topics with
the same readers are poured in turn until no level changes; the result is the least uneven division.
"""

from typing import Final

import numpy as np

from trimtab.assignor.model import BoolArray, FloatArray, PackingProblem

MAX_POUR_ROUNDS: Final = 100
LEVEL_TOLERANCE: Final = 1e-6  # relative change of a level below which pouring ends


def compute_fair_shares(problem: PackingProblem) -> FloatArray:
    """Return the fair load ÷ capacity of each member (M,) of a closed problem; 0 without readable load."""
    # Equal subscriptions have equal shares: members and topics are grouped first.
    readers, kind_of_topic = np.unique(problem.subscribed, axis=0, return_inverse=True)
    readers, kind = np.unique(readers, axis=1, return_inverse=True)
    capacity: FloatArray = np.bincount(kind.ravel(), problem.capacity).astype(np.float64)
    load = np.bincount(kind_of_topic.ravel()[problem.topic], problem.weight, len(readers))
    poured = np.zeros(readers.shape)
    level = np.zeros(len(capacity))
    for _ in range(MAX_POUR_ROUNDS):
        for topics in np.flatnonzero(load):
            poured[topics] = 0.0
            poured[topics] = _pour_load(load[topics], poured.sum(axis=0), capacity, readers[topics])
        before, level = level, poured.sum(axis=0) / capacity
        if np.allclose(level, before, rtol=LEVEL_TOLERANCE, atol=0.0):
            break
    shares: FloatArray = level[kind.ravel()]
    return shares


def _pour_load(load: float, poured: FloatArray, capacity: FloatArray, readers: BoolArray) -> FloatArray:
    """Return the load that each vessel gets, lowest level first; `poured` is in them already."""
    order = np.flatnonzero(readers)
    order = order[np.argsort(poured[order] / capacity[order], kind="stable")]
    wide, deep = np.cumsum(capacity[order]), np.cumsum(poured[order])
    levels = (load + deep) / wide  # if only the first vessels get any
    level = levels.min()
    got = np.zeros_like(poured)
    got[order] = np.maximum(0.0, level * capacity[order] - poured[order])
    return got
