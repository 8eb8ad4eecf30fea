"""One decision of steady: its steps on one set of bins.

- Open mode: evict, candidates, (return home, close, search, return home), relabel.
- Closed mode, in which members cost nothing: evict, insert into the emptiest, search, return home.
  If something fits nowhere, the placement of open mode is improved instead, if it needs no added member.
- Closed mode without a plan: `balance_members`.

With a rack cost, `improve_rack_affinity` runs before and after the search and after
`balance_members`.
"""

import math
from dataclasses import replace
from itertools import product
from typing import Final, NamedTuple

import numpy as np

from trimtab.assignor.heuristics.steady.balance import balance_members
from trimtab.assignor.heuristics.steady.bin_names import canonical_order, relabel_bins, relabel_to_owners
from trimtab.assignor.heuristics.steady.bins import Bins
from trimtab.assignor.heuristics.steady.candidates import (
    insert_best_fit,
    insert_emptiest,
    release_underfilled,
)
from trimtab.assignor.heuristics.steady.close_bins import close_bins
from trimtab.assignor.heuristics.steady.cross_rack_costs import CrossRackCosts, compute_cross_rack_costs
from trimtab.assignor.heuristics.steady.even_fills import even_fills
from trimtab.assignor.heuristics.steady.evict import evict_overload
from trimtab.assignor.heuristics.steady.fair_shares import compute_fair_shares
from trimtab.assignor.heuristics.steady.neighbourhood_search import search_neighbourhoods
from trimtab.assignor.heuristics.steady.params import DEFAULT_PRESET, STEADY_PRESETS, SteadyParams
from trimtab.assignor.heuristics.steady.rack_affinity import improve_rack_affinity
from trimtab.assignor.heuristics.steady.return_home import return_items_home
from trimtab.assignor.model import UNASSIGNED, FloatArray, IntArray, PackingProblem
from trimtab.assignor.model.forecast import constant_forecast
from trimtab.assignor.model.packing import append_readers, sort_decreasing

SEARCH_SEED: Final = 1  # fixed: equal input gives equal bytes
MAX_REPACK_ROUNDS: Final = 8
# Load of any move besides its own, in capacities, so that idle partitions stay, too.
MOVE_BASE_LOAD: Final = 1e-4

RELEASE_THRESHOLDS: Final = (0.0, 0.7, 0.85, 0.94, 0.98, 1.01)  # 0: keep all, 1.01: pack afresh
MAX_FILLS: Final = (1.0, 0.9)

FILL_NOISE: Final = 1e-6  # of a fill: sums of floats
BALANCE_BAND: Final = 0.05  # band of `balance_members`, which rack moves must not leave


def pack_steady(problem: PackingProblem, params: SteadyParams) -> IntArray:
    """Return the bin of each partition, shape (P,); UNASSIGNED if it fits nowhere (closed mode)."""
    if not len(problem.weight):
        return np.zeros(0, dtype=np.int32)
    bins = _pack_canonical(problem, params)
    if problem.new_member_capacity is None or (problem.owner != UNASSIGNED).any():
        return bins
    # Partitions without an owner move at no cost, so the next decision, which has owners, would
    # move some: repeat until it moves none. Not with racks, since added members have none.
    for _ in range(MAX_REPACK_ROUNDS if problem.racks is None else 0):
        again = _pack_canonical(_own_by_bins(problem, bins), params)
        if (again == bins).all():
            break
        bins = again
    return bins


def _pack_canonical(problem: PackingProblem, params: SteadyParams) -> IntArray:
    order = canonical_order(problem)
    pack = _pack_closed if problem.new_member_capacity is None else _pack_open
    renumbered = order.renumber_problem(problem)
    return order.restore_bins(even_fills(renumbered, pack(renumbered, params), params.spread_budget))


def _own_by_bins(problem: PackingProblem, bins: IntArray) -> PackingProblem:
    """Return the problem whose members are the bins and own their partitions."""
    added = max(0, int(bins.max()) + 1 - len(problem.capacity))
    return replace(
        problem,
        owner=bins,
        capacity=np.append(problem.capacity, np.full(added, problem.new_member_capacity)),
        subscribed=append_readers(problem.subscribed, added),
    )


def _pack_open(problem: PackingProblem, params: SteadyParams) -> IntArray:
    falling = sort_decreasing(problem.weight)
    # Anew, since sums of loads from which others were subtracted are not exact.
    kept = _build_bins(problem, params)
    kept.reset_placement(_evict(problem, params).copy_placement())
    # Improving one takes twice as long as building all twelve (200 partitions): not worth it for each.
    starts = _select_candidates(kept, falling, params.improved_candidates)
    for bins in starts:
        return_items_home(bins, falling)
        improve_rack_affinity(bins, falling)
        close_bins(bins, params.close_tries)
        search_neighbourhoods(bins, params.search_tries, SEARCH_SEED)
        improve_rack_affinity(bins, falling)
        return_items_home(bins, falling)
    best = min(starts, key=lambda bins: bins.objective)
    return relabel_bins(problem, best.copy_placement())


def balance_load(problem: PackingProblem, params: SteadyParams = STEADY_PRESETS[DEFAULT_PRESET]) -> IntArray:
    """Return the member of each partition (P,) of a closed problem, at about equal load ÷ fair share.

    Every topic needs a reader.
    """
    order = canonical_order(problem)
    renumbered = order.renumber_problem(problem)
    share = compute_fair_shares(renumbered)
    price = _compute_costs(renumbered, params)
    # A fill of 1 becomes the fair share: only the ratios of the capacities count.
    posed = replace(renumbered, capacity=renumbered.capacity * np.where(share > 0, share, 1.0))
    bins = Bins(posed, constant_forecast(posed.weight), 0.0, price.move, 0.0, price.cross_rack)
    bins.reset_placement(posed.owner)
    balance_members(bins)
    if price.cross_rack is None and not _is_evener(bins.copy_placement(), posed):
        return order.restore_bins(posed.owner)
    if price.cross_rack is not None:
        falling = sort_decreasing(posed.weight)
        mean = _usual_fill(bins.copy_placement(), posed)
        improve_rack_affinity(bins, falling, mean * (1 - BALANCE_BAND), mean * (1 + BALANCE_BAND))
    return order.restore_bins(bins.copy_placement())


def _is_evener(placed: IntArray, problem: PackingProblem) -> bool:
    """Return whether the fullest member has less, or the emptiest more, than with the present owners."""
    is_owned = (problem.owner >= 0) & (problem.owner < len(problem.capacity))
    if not is_owned.all() or not problem.subscribed[problem.topic, problem.owner].all():
        return True  # what nobody may read on is placed in any case
    before, after = (
        np.bincount(bins, problem.weight, len(problem.capacity)) / problem.capacity
        for bins in (problem.owner, placed)
    )
    return bool(after.max() < before.max() - FILL_NOISE or after.min() > before.min() + FILL_NOISE)


def _usual_fill(bins: IntArray, problem: PackingProblem) -> float:
    # Without the members that one oversized partition fills: they say nothing about the others.
    fill = np.bincount(bins, problem.weight, len(problem.capacity)) / problem.capacity
    usual = fill[fill <= 1 + BALANCE_BAND]
    return float(usual.mean()) if usual.size else 1.0


def _pack_closed(problem: PackingProblem, params: SteadyParams) -> IntArray:
    bins = _evict(problem, params)
    falling = sort_decreasing(problem.weight)
    if not insert_emptiest(bins, falling):
        # Too fragmented: pack as for sizing, where a further bin is dear.
        opened = replace(problem, new_member_capacity=float(problem.capacity.max()))
        packed = _pack_open(opened, params)
        if packed.max() >= len(problem.capacity):
            return bins.copy_placement()
        bins.reset_placement(packed)
    _improve_closed(bins, falling, params)
    return bins.copy_placement()


def _improve_closed(bins: Bins, falling: IntArray, params: SteadyParams) -> None:
    improve_rack_affinity(bins, falling)
    search_neighbourhoods(bins, params.search_tries, SEARCH_SEED)
    improve_rack_affinity(bins, falling)
    return_items_home(bins, falling)


def reduce_moves(
    problem: PackingProblem, bins: IntArray, params: SteadyParams = STEADY_PRESETS[DEFAULT_PRESET]
) -> IntArray:
    """Return a placement (P,) of a closed problem improved within the capacities: fewer moves."""
    improved = _build_bins(problem, params)
    improved.reset_placement(relabel_to_owners(problem, bins))
    falling = sort_decreasing(problem.weight)
    return_items_home(improved, falling)
    _improve_closed(improved, falling, params)
    return improved.copy_placement()


def _evict(problem: PackingProblem, params: SteadyParams) -> Bins:
    bins = _build_bins(problem, params)
    bins.reset_placement(problem.owner)
    evict_overload(bins)
    return bins


def _select_candidates(kept: Bins, falling: IntArray, count: int) -> list[Bins]:
    """Return the candidates of the least objectives, at most `count`."""
    best: list[Bins] = []
    for release_threshold, max_fill in product(RELEASE_THRESHOLDS, MAX_FILLS):
        bins = kept.copy_bins()
        release_underfilled(bins, release_threshold)
        limit = best[-1].objective if len(best) == count else math.inf
        if insert_best_fit(bins, falling, max_fill, limit):
            best = sorted([*best, bins], key=lambda bins: bins.objective)[:count]
    return best


class _ObjectiveCosts(NamedTuple):
    """Costs in consumers."""

    move: FloatArray  # (P,)
    eviction: float  # per evicted byte/s
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
