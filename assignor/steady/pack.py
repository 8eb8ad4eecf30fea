"""One decision of steady: the steps in their order, on one set of bins.

Open mode: evict → candidates → (homeward → close → search → homeward) → relabel. Closed mode, where
the members that are there must do and cost nothing more: evict → the emptiest takes what is loose →
search → homeward.
"""

from typing import Final

import numpy as np

from trimtab.assignor.forecast import guess
from trimtab.assignor.model import FloatArray, IntArray, Problem
from trimtab.assignor.steady.bins import Bins
from trimtab.assignor.steady.candidates import free, insert, insert_emptiest
from trimtab.assignor.steady.close import close
from trimtab.assignor.steady.evict import evict
from trimtab.assignor.steady.homeward import homeward
from trimtab.assignor.steady.knobs import Knobs
from trimtab.assignor.steady.naming import canonical, relabel
from trimtab.assignor.steady.search import search

SEED: Final = 1
THETAS: Final = (0.0, 0.7, 0.85, 0.94, 0.98, 1.01)
FILLS: Final = (1.0, 0.9)


def pack(problem: Problem, knobs: Knobs) -> IntArray:
    """Return the bin of each partition, shape (P,); NOBODY where it fits nowhere (closed mode)."""
    if not len(problem.weight):
        return np.zeros(0, dtype=np.int32)
    order = canonical(problem)
    posed = order.posed(problem)
    bins = _closed(posed, knobs) if problem.spare is None else _open(posed, knobs)
    return order.answer(bins)


def _open(problem: Problem, knobs: Knobs) -> IntArray:
    falling = _falling(problem.weight)
    kept = _evicted(problem, knobs)
    starts = sorted(
        (_candidate(problem, knobs, kept, theta, fill) for theta in THETAS for fill in FILLS),
        key=lambda bins: bins.value,
    )
    for bins in starts[: knobs.starts]:
        homeward(bins, falling)
        close(bins, knobs.closings)
        search(bins, knobs.tries, SEED)
        homeward(bins, falling)
    best = min(starts[: knobs.starts], key=lambda bins: bins.value)
    return relabel(problem, best.placed())


def _closed(problem: Problem, knobs: Knobs) -> IntArray:
    bins = _bins(problem, knobs)
    bins.restart(_evicted(problem, knobs))
    falling = _falling(problem.weight)
    if not insert_emptiest(bins, falling):
        return bins.placed()
    search(bins, knobs.tries, SEED)
    homeward(bins, falling)
    return bins.placed()


def _evicted(problem: Problem, knobs: Knobs) -> IntArray:
    """Return what stays where it is; NOBODY for what is loose."""
    bins = _bins(problem, knobs)
    bins.restart(problem.owner)
    evict(bins)
    return bins.placed()


def _candidate(problem: Problem, knobs: Knobs, kept: IntArray, theta: float, fill: float) -> Bins:
    bins = _bins(problem, knobs)
    bins.restart(kept)
    free(bins, theta)
    insert(bins, _falling(problem.weight), fill)
    return bins


def _bins(problem: Problem, knobs: Knobs) -> Bins:
    scale = float(problem.capacity.mean()) if problem.spare is None else problem.spare
    move_cost = knobs.move_cost / scale
    bin_cost = 1.0 if problem.spare is not None else 0.0
    outlook = guess(problem.weight) if problem.outlook is None else problem.outlook
    return Bins(problem, outlook, bin_cost, move_cost, move_cost * knobs.foresight)


def _falling(weight: FloatArray) -> IntArray:
    return np.argsort(-weight, kind="stable").astype(np.int32)
