"""What each member's fair share is, where not everybody reads every topic.

If load could be cut at will, it would rise in all members to one level, save where subscriptions
keep it apart: then each topic's load is poured into its readers until those that got any stand
equally high. That is the least uneven division there is; it is found by pouring one set of topics
after the other, until nothing flows any more.
"""

from typing import Final

import numpy as np

from trimtab.assignor.model import BoolArray, FloatArray, PackingProblem

MAX_POUR_ROUNDS: Final = 100
LEVEL_TOLERANCE: Final = 1e-6
"""A round in which no level changes by more than this share ends it."""


def compute_fair_shares(problem: PackingProblem) -> FloatArray:
    """Return load ÷ capacity that each member would have, shape (M,); 0 where it can read nothing.

    For a closed problem. Members that read the same topics have the same share, and topics with
    the same readers are poured at once.
    """
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
    made: FloatArray = level[kind.ravel()]
    return made


def _pour_load(
    load: float, poured: FloatArray, capacity: FloatArray, readers: BoolArray
) -> FloatArray:
    """Return how much of the load each vessel gets, lowest levels first; `poured` is in them."""
    order = np.flatnonzero(readers)
    order = order[np.argsort(poured[order] / capacity[order], kind="stable")]
    wide, deep = np.cumsum(capacity[order]), np.cumsum(poured[order])
    levels = (load + deep) / wide  # if only the first vessels got any
    level = levels.min()
    got = np.zeros_like(poured)
    got[order] = np.maximum(0.0, level * capacity[order] - poured[order])
    return got
