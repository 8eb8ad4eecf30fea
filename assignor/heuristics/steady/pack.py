"""One decision of steady: the steps in their order, on one set of bins.

Open mode: evict → candidates → (homeward → close → search → homeward) → relabel. Closed mode, where
the members that are there must do and cost nothing more: evict → the emptiest takes what is loose →
search → homeward. Without a plan: `level`. Where crossing racks costs something, `nearer` comes
before and after the search, and after `level`.
"""

from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from trimtab.assignor.forecast import unknown
from trimtab.assignor.heuristics.steady.balance import level
from trimtab.assignor.heuristics.steady.bin_names import canonical, relabel
from trimtab.assignor.heuristics.steady.bins import Bins
from trimtab.assignor.heuristics.steady.candidates import free, insert, insert_emptiest
from trimtab.assignor.heuristics.steady.close_bins import close
from trimtab.assignor.heuristics.steady.cross_rack_costs import Tolls, tolls
from trimtab.assignor.heuristics.steady.evict import evict
from trimtab.assignor.heuristics.steady.fair_shares import shares
from trimtab.assignor.heuristics.steady.neighbourhood_search import search
from trimtab.assignor.heuristics.steady.params import DEFAULT, PRESETS, Knobs
from trimtab.assignor.heuristics.steady.rack_affinity import nearer
from trimtab.assignor.heuristics.steady.return_home import homeward
from trimtab.assignor.model import NOBODY, FloatArray, IntArray, Problem

SEED: Final = 1
SECOND_THOUGHTS: Final = 8
TOUCH: Final = 1e-4
"""What any move counts besides its load, in capacities: an idle partition stays, too."""

THETAS: Final = (0.0, 0.7, 0.85, 0.94, 0.98, 1.01)
FILLS: Final = (1.0, 0.9)

BAND: Final = 0.05
"""That of `level`: nothing leaves it for the sake of racks."""


def pack(problem: Problem, knobs: Knobs) -> IntArray:
    """Return the bin of each partition, shape (P,); NOBODY where it fits nowhere (closed mode)."""
    if not len(problem.weight):
        return np.zeros(0, dtype=np.int32)
    if problem.spare is not None and problem.racks is None and (problem.owner == NOBODY).all():
        return _fresh(problem, knobs)  # not with racks: members that are added have none
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
        nearer(bins, falling)
        close(bins, knobs.closings)
        search(bins, knobs.tries, SEED)
        nearer(bins, falling)
        homeward(bins, falling)
    best = min(starts[: knobs.starts], key=lambda bins: bins.value)
    return relabel(problem, best.placed())


def even(problem: Problem, knobs: Knobs = PRESETS[DEFAULT]) -> IntArray:
    """Return the member of each partition, shape (P,), so that all are about as full.

    For a closed problem in which every topic has a reader; capacities are only compared. Full is
    what a member's share is (`shares`).
    """
    order = canonical(problem)
    posed = order.posed(problem)
    share, price = shares(posed), _prices(posed, knobs)
    posed = replace(posed, capacity=posed.capacity * np.where(share > 0, share, 1.0))
    bins = Bins(posed, unknown(posed.weight), 0.0, price.fare, 0.0, price.tolls)
    bins.restart(posed.owner)
    falling = _falling(posed.weight)
    level(bins, falling)
    if price.tolls is not None:
        mean = _usual(bins.placed(), posed)
        nearer(bins, falling, mean * (1 - BAND), mean * (1 + BAND))
    return order.answer(bins.placed())


def _usual(bins: IntArray, problem: Problem) -> float:
    """Return the mean fill of the members that nothing large keeps above the band."""
    fill = np.bincount(bins, problem.weight, len(problem.capacity)) / problem.capacity
    usual = fill[fill <= 1 + BAND]
    return float(usual.mean()) if usual.size else 1.0


def _closed(problem: Problem, knobs: Knobs) -> IntArray:
    bins = _bins(problem, knobs)
    bins.restart(problem.owner)
    evict(bins)
    falling = _falling(problem.weight)
    if insert_emptiest(bins, falling):
        nearer(bins, falling)
        search(bins, knobs.tries, SEED)
        nearer(bins, falling)
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


class _Prices(NamedTuple):
    """In consumers: moving each partition, a byte/s at risk, and crossing racks."""

    fare: FloatArray  # (P,)
    risk: float
    tolls: Tolls | None


def _prices(problem: Problem, knobs: Knobs) -> _Prices:
    scale = float(problem.capacity.mean()) if problem.spare is None else problem.spare
    price = knobs.move_cost / scale
    return _Prices(
        price * (problem.weight + TOUCH * scale),
        price * knobs.foresight,
        tolls(problem, knobs.rack_cost / scale),
    )


def _bins(problem: Problem, knobs: Knobs) -> Bins:
    price = _prices(problem, knobs)
    return Bins(
        problem,
        unknown(problem.weight) if problem.outlook is None else problem.outlook,
        bin_cost=0.0 if problem.spare is None else 1.0,
        fare=price.fare,
        risk_cost=price.risk,
        tolls=price.tolls,
    )


def _falling(weight: FloatArray) -> IntArray:
    return np.argsort(-weight, kind="stable").astype(np.int32)
