"""One decision of steady: the steps in their order, on one set of bins.

Open mode: evict → candidates → (homeward → close → search → homeward) → relabel. Closed mode, where
the members that are there must do and cost nothing more: evict → the emptiest takes what is loose →
search → homeward. Without a plan: `level`.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from trimtab.assignor.forecast import unknown
from trimtab.assignor.model import NOBODY, FloatArray, IntArray, Problem
from trimtab.assignor.steady.bins import Bins
from trimtab.assignor.steady.candidates import free, insert, insert_emptiest
from trimtab.assignor.steady.close import close
from trimtab.assignor.steady.evict import evict
from trimtab.assignor.steady.homeward import homeward
from trimtab.assignor.steady.knobs import Knobs
from trimtab.assignor.steady.level import level
from trimtab.assignor.steady.naming import canonical, relabel
from trimtab.assignor.steady.search import search
from trimtab.assignor.steady.shares import shares

SEED: Final = 1
SECOND_THOUGHTS: Final = 8
TOUCH: Final = 1e-4
"""What any move counts besides its load, in capacities: an idle partition stays, too."""

THETAS: Final = (0.0, 0.7, 0.85, 0.94, 0.98, 1.01)
FILLS: Final = (1.0, 0.9)


def pack(problem: Problem, knobs: Knobs) -> IntArray:
    """Return the bin of each partition, shape (P,); NOBODY where it fits nowhere (closed mode)."""
    if not len(problem.weight):
        return np.zeros(0, dtype=np.int32)
    if problem.spare is not None and (problem.owner == NOBODY).all():
        return _fresh(problem, knobs)
    return _decided(problem, knobs)


def _decided(problem: Problem, knobs: Knobs) -> IntArray:
    order = canonical(problem)
    posed = order.posed(problem)
    return order.answer((_closed if problem.spare is None else _open)(posed, knobs))


def _fresh(problem: Problem, knobs: Knobs) -> IntArray:
    """Decide until the decision stands: what nobody reads yet may still be moved for nothing."""
    members = len(problem.capacity)
    bins = _decided(problem, knobs)
    for _ in range(SECOND_THOUGHTS):
        added = max(0, int(bins.max()) + 1 - members)
        again = _decided(_owned(problem, bins, added), knobs)
        if (again == bins).all():
            break
        bins = again
    return bins


def _owned(problem: Problem, bins: IntArray, added: int) -> Problem:
    """Return the problem in which the bins are members that read what is in them."""
    everything = np.ones((len(problem.subscribed), added), dtype=np.bool_)
    return replace(
        problem,
        owner=bins,
        capacity=np.append(problem.capacity, np.full(added, problem.spare)),
        subscribed=np.concatenate([problem.subscribed, everything], axis=1),
    )


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


def even(problem: Problem) -> IntArray:
    """Return the member of each partition, shape (P,), so that all are about as full.

    For a closed problem in which every topic has a reader; capacities are only compared. Full is
    what a member's share is (`shares`).
    """
    order = canonical(problem)
    posed = order.posed(problem)
    share = shares(posed)
    posed = replace(posed, capacity=posed.capacity * np.where(share > 0, share, 1.0))
    bins = Bins(posed, unknown(posed.weight), 0.0, np.zeros_like(posed.weight), 0.0)
    bins.restart(posed.owner)
    level(bins, _falling(posed.weight))
    return order.answer(bins.placed())


def _closed(problem: Problem, knobs: Knobs) -> IntArray:
    bins = _bins(problem, knobs)
    bins.restart(problem.owner)
    evict(bins)
    falling = _falling(problem.weight)
    if insert_emptiest(bins, falling):
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
    price = knobs.move_cost / scale
    return Bins(
        problem,
        unknown(problem.weight) if problem.outlook is None else problem.outlook,
        bin_cost=0.0 if problem.spare is None else 1.0,
        fare=price * (problem.weight + TOUCH * scale),
        risk_cost=price * knobs.foresight,
    )


def _falling(weight: FloatArray) -> IntArray:
    return np.argsort(-weight, kind="stable").astype(np.int32)
