"""Rack-aware (KIP-925): even counts, then the least cross-rack traffic and moves.

1. Members get equal partition counts, or one more, as far as subscriptions allow. With
   `balance_subtopology` the counts of every topic are even, too: topics stand for the
   subtopologies of Kafka Streams.
2. Of these assignments it takes one of least cost (`rack_aware.costs`), by a minimum-cost flow.
3. The current owners stay if they are among the cheapest.
The strategy `none` ignores racks: it is `sticky`.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

import numpy as np

from trimtab.assignor.heuristics.classic import sticky
from trimtab.assignor.heuristics.rack_aware.balance import compute_topic_limits
from trimtab.assignor.heuristics.rack_aware.costs import RackCosts, price_partitions
from trimtab.assignor.model import UNASSIGNED, IntArray, PackingProblem
from trimtab.assignor.model.heuristic import Heuristic, HeuristicDependency, PackFunction
from trimtab.common.errors import BrokenHeuristicError

COST_TOLERANCE: Final = 1e-9  # relative difference at which costs are equal: sums of floats are not exact

SOLVER_DEPENDENCY: Final = HeuristicDependency("ortools", "racks")


def place_rack_aware(problem: PackingProblem, costs: RackCosts, *, per_topic: bool) -> IntArray:
    """Return the member of each partition (P,). Raises BrokenHeuristicError without the solver."""
    try:
        from trimtab.assignor.heuristics.rack_aware.min_cost_flow import find_cheapest_assignment  # noqa: PLC0415 - not always installed
    except ModuleNotFoundError as error:
        raise BrokenHeuristicError(SOLVER_DEPENDENCY.explain_missing("rack-aware")) from error
    best = find_cheapest_assignment(problem, costs, per_topic=per_topic)
    return problem.owner if _is_current_best(problem, best, costs, per_topic=per_topic) else best


def _is_current_best(problem: PackingProblem, best: IntArray, costs: RackCosts, *, per_topic: bool) -> bool:
    """Return whether the current owners are as even and as cheap as the best (rule 3)."""
    # Of several cheapest assignments the solver may return another than the one in force.
    owner = problem.owner
    owned = owner != UNASSIGNED
    if (owned != (best != UNASSIGNED)).any():
        return False
    if not problem.subscribed[problem.topic[owned], owner[owned]].all():
        return False
    if _unevenness(problem, owner) != _unevenness(problem, best):
        return False
    if per_topic and not compute_topic_limits(problem).allow_counts(_count_by_topic(problem, owner)):
        return False
    price = price_partitions(problem, costs)
    least = price.total_cost(problem, best)
    return price.total_cost(problem, owner) <= least + COST_TOLERANCE * (1 + least)


def _unevenness(problem: PackingProblem, bins: IntArray) -> int:
    counts = np.bincount(bins[bins != UNASSIGNED], minlength=len(problem.capacity))
    return int((counts**2).sum())


def _count_by_topic(problem: PackingProblem, bins: IntArray) -> IntArray:
    counts = np.zeros(problem.subscribed.shape, dtype=np.int32)
    read = bins != UNASSIGNED
    np.add.at(counts, (problem.topic[read], bins[read]), 1)
    return counts


def _build_strategy(name: str, costs: RackCosts) -> PackFunction:
    if name == "none":
        return sticky.place_sticky
    return partial(place_rack_aware, costs=costs, per_topic=name == "balance_subtopology")


def _make_variant(preset: str, settings: Mapping[str, float]) -> Heuristic:
    costs = RackCosts(*({**DEFAULT_RACK_COSTS, **settings}[name] for name in DEFAULT_RACK_COSTS))
    strategy = preset or "min_traffic"
    rackless = strategy == "none"
    return Heuristic(
        name="rack-aware",
        pack=_build_strategy(strategy, costs),
        summary="even by count, then the least cross-rack traffic and moves",
        source="KIP-925",
        idempotent=True,
        packs_by_capacity=False,
        presets={name: _build_strategy(name, costs) for name in RACK_STRATEGIES},
        settings=DEFAULT_RACK_COSTS,
        make_variant=_make_variant,
        weighs_racks=not rackless,
        dependency=None if rackless else SOLVER_DEPENDENCY,
    )


RACK_STRATEGIES: Final = ("min_traffic", "balance_subtopology", "none")
DEFAULT_RACK_COSTS: Final[Mapping[str, float]] = {
    "traffic_cost": RackCosts().traffic,
    "non_overlap_cost": RackCosts().non_overlap,
}
RACK_AWARE: Final = _make_variant("", {})
