"""One decision of steady: its steps on one set of bins.

- Open mode: evict, candidates, (return home, close, search, return home), relabel.
- Closed mode, in which members cost nothing: evict, insert into the emptiest, search, return home.
- Closed mode without a plan: `balance_members`.

With a rack cost, `improve_rack_affinity` runs before and after the search and after
`balance_members`.
"""

from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from trimtab.assignor.forecast import constant_forecast
from trimtab.assignor.heuristics.steady.balance import balance_members
from trimtab.assignor.heuristics.steady.bin_names import canonical_order, relabel_bins
from trimtab.assignor.heuristics.steady.bins import Bins
from trimtab.assignor.heuristics.steady.candidates import (
    insert_best_fit,
    insert_emptiest,
    release_underfilled,
)
from trimtab.assignor.heuristics.steady.close_bins import close_bins
from trimtab.assignor.heuristics.steady.cross_rack_costs import CrossRackCosts, compute_cross_rack_costs
from trimtab.assignor.heuristics.steady.evict import evict_overload
from trimtab.assignor.heuristics.steady.fair_shares import compute_fair_shares
from trimtab.assignor.heuristics.steady.neighbourhood_search import search_neighbourhoods
from trimtab.assignor.heuristics.steady.params import DEFAULT_PRESET, STEADY_PRESETS, SteadyParams
from trimtab.assignor.heuristics.steady.rack_affinity import improve_rack_affinity
from trimtab.assignor.heuristics.steady.return_home import return_items_home
from trimtab.assignor.model import UNASSIGNED, FloatArray, IntArray, PackingProblem

SEARCH_SEED: Final = 1
MAX_REPACK_ROUNDS: Final = 8
# Load of any move besides its own, in capacities, so that idle partitions stay, too.
MOVE_BASE_LOAD: Final = 1e-4

RELEASE_THRESHOLDS: Final = (0.0, 0.7, 0.85, 0.94, 0.98, 1.01)
MAX_FILLS: Final = (1.0, 0.9)

BALANCE_BAND: Final = 0.05  # band of `balance_members`, which rack moves must not leave


def pack_steady(problem: PackingProblem, params: SteadyParams) -> IntArray:
    """Return the bin of each partition, shape (P,); UNASSIGNED if it fits nowhere (closed mode)."""
    if not len(problem.weight):
        return np.zeros(0, dtype=np.int32)
    if (
        problem.new_member_capacity is not None
        and problem.racks is None
        and (problem.owner == UNASSIGNED).all()
    ):
        return _pack_until_stable(problem, params)  # not with racks: added members have none
    return _pack_canonical(problem, params)


def _pack_canonical(problem: PackingProblem, params: SteadyParams) -> IntArray:
    order = canonical_order(problem)
    renumbered = order.renumber_problem(problem)
    return order.restore_bins(
        (_pack_closed if problem.new_member_capacity is None else _pack_open)(renumbered, params)
    )


def _pack_until_stable(problem: PackingProblem, params: SteadyParams) -> IntArray:
    """Repeat the decision until it is stable: partitions without an owner move at no cost."""
    members = len(problem.capacity)
    bins = _pack_canonical(problem, params)
    for _ in range(MAX_REPACK_ROUNDS):
        added = max(0, int(bins.max()) + 1 - members)
        again = _pack_canonical(_own_by_bins(problem, bins, added), params)
        if (again == bins).all():
            break
        bins = again
    return bins


def _own_by_bins(problem: PackingProblem, bins: IntArray, added: int) -> PackingProblem:
    """Return the problem whose members are the bins and own their partitions."""
    everything = np.ones((len(problem.subscribed), added), dtype=np.bool_)
    return replace(
        problem,
        owner=bins,
        capacity=np.append(problem.capacity, np.full(added, problem.new_member_capacity)),
        subscribed=np.concatenate([problem.subscribed, everything], axis=1),
    )


def _pack_open(problem: PackingProblem, params: SteadyParams) -> IntArray:
    falling = _order_decreasing(problem.weight)
    kept = _find_kept_bins(problem, params)
    starts = sorted(
        (
            _build_candidate(problem, params, kept, theta, fill)
            for theta in RELEASE_THRESHOLDS
            for fill in MAX_FILLS
        ),
        key=lambda bins: bins.objective,
    )
    for bins in starts[: params.improved_candidates]:
        return_items_home(bins, falling)
        improve_rack_affinity(bins, falling)
        close_bins(bins, params.close_tries)
        search_neighbourhoods(bins, params.search_tries, SEARCH_SEED)
        improve_rack_affinity(bins, falling)
        return_items_home(bins, falling)
    best = min(starts[: params.improved_candidates], key=lambda bins: bins.objective)
    return relabel_bins(problem, best.copy_placement())


def balance_load(problem: PackingProblem, params: SteadyParams = STEADY_PRESETS[DEFAULT_PRESET]) -> IntArray:
    """Return the member of each partition, shape (P,), at about equal load ÷ fair share.

    Every topic of the closed problem needs a reader. Fair shares are `compute_fair_shares`; only
    the ratios of the capacities count.
    """
    order = canonical_order(problem)
    renumbered = order.renumber_problem(problem)
    share, price = compute_fair_shares(renumbered), _compute_costs(renumbered, params)
    posed = replace(renumbered, capacity=renumbered.capacity * np.where(share > 0, share, 1.0))
    bins = Bins(posed, constant_forecast(posed.weight), 0.0, price.move, 0.0, price.cross_rack)
    bins.reset_placement(posed.owner)
    falling = _order_decreasing(posed.weight)
    balance_members(bins, falling)
    if price.cross_rack is not None:
        mean = _usual_fill(bins.copy_placement(), posed)
        improve_rack_affinity(bins, falling, mean * (1 - BALANCE_BAND), mean * (1 + BALANCE_BAND))
    return order.restore_bins(bins.copy_placement())


def _usual_fill(bins: IntArray, problem: PackingProblem) -> float:
    """Return the mean fill of the members within or below the band."""
    fill = np.bincount(bins, problem.weight, len(problem.capacity)) / problem.capacity
    usual = fill[fill <= 1 + BALANCE_BAND]
    return float(usual.mean()) if usual.size else 1.0


def _pack_closed(problem: PackingProblem, params: SteadyParams) -> IntArray:
    bins = _build_bins(problem, params)
    bins.reset_placement(problem.owner)
    evict_overload(bins)
    falling = _order_decreasing(problem.weight)
    if insert_emptiest(bins, falling):
        improve_rack_affinity(bins, falling)
        search_neighbourhoods(bins, params.search_tries, SEARCH_SEED)
        improve_rack_affinity(bins, falling)
        return_items_home(bins, falling)
    return bins.copy_placement()


def _find_kept_bins(problem: PackingProblem, params: SteadyParams) -> IntArray:
    """Return the owner of each partition after evictions; UNASSIGNED for evicted ones."""
    bins = _build_bins(problem, params)
    bins.reset_placement(problem.owner)
    evict_overload(bins)
    return bins.copy_placement()


def _build_candidate(
    problem: PackingProblem, params: SteadyParams, kept: IntArray, release_threshold: float, max_fill: float
) -> Bins:
    bins = _build_bins(problem, params)
    bins.reset_placement(kept)
    release_underfilled(bins, release_threshold)
    insert_best_fit(bins, _order_decreasing(problem.weight), max_fill)
    return bins


class _ObjectiveCosts(NamedTuple):
    """Costs in consumers: of moving each partition, per evicted byte/s, and across racks."""

    move: FloatArray  # (P,)
    eviction: float
    cross_rack: CrossRackCosts | None


def _compute_costs(problem: PackingProblem, params: SteadyParams) -> _ObjectiveCosts:
    scale = (
        float(problem.capacity.mean()) if problem.new_member_capacity is None else problem.new_member_capacity
    )
    price = params.move_cost / scale
    return _ObjectiveCosts(
        price * (problem.weight + MOVE_BASE_LOAD * scale),
        price * params.foresight,
        compute_cross_rack_costs(problem, params.rack_cost / scale),
    )


def _build_bins(problem: PackingProblem, params: SteadyParams) -> Bins:
    price = _compute_costs(problem, params)
    return Bins(
        problem,
        constant_forecast(problem.weight) if problem.forecast is None else problem.forecast,
        bin_cost=0.0 if problem.new_member_capacity is None else 1.0,
        move_cost=price.move,
        eviction_cost=price.eviction,
        cross_rack=price.cross_rack,
    )


def _order_decreasing(weight: FloatArray) -> IntArray:
    return np.argsort(-weight, kind="stable").astype(np.int32)
