"""Rack-aware (KIP-925): counts as even as can be, then the least cross-rack traffic and moves.

1. Every member gets as many partitions as every other, or one more, as far as subscriptions allow;
   with `balance_subtopology` of every topic, too (a consumer group has topics where Kafka Streams
   has subtopologies).
2. Of all assignments that are that even it takes one of least cost (`rack_aware.costs`,
   optimal: a minimum-cost flow).
3. If what is there is among them, it stays.
`none` leaves racks out: it is `sticky`.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

import numpy as np

from trimtab.assignor.heuristics import sticky
from trimtab.assignor.heuristics.heuristic import Heuristic, Needs, Pack
from trimtab.assignor.heuristics.rack_aware.balance import of_topics
from trimtab.assignor.heuristics.rack_aware.costs import Costs, priced
from trimtab.assignor.model import NOBODY, IntArray, Problem
from trimtab.common.errors import BrokenHeuristic

SLACK: Final = 1e-9
"""What costs are equal within, as a share of them: sums of floats are not exact."""

NEEDS: Final = Needs("ortools", "racks")


def pack(problem: Problem, costs: Costs, *, per_topic: bool) -> IntArray:
    """Even the counts at the least cost. Raises BrokenHeuristic without the solver."""
    try:
        from trimtab.assignor.heuristics.rack_aware.min_cost_flow import cheapest  # noqa: PLC0415 - not always installed
    except ModuleNotFoundError as error:
        raise BrokenHeuristic(NEEDS.missing("rack-aware")) from error
    best = cheapest(problem, costs, per_topic=per_topic)
    return problem.owner if _stays(problem, best, costs, per_topic=per_topic) else best


def _stays(problem: Problem, best: IntArray, costs: Costs, *, per_topic: bool) -> bool:
    """Tell whether what is there is as even and as cheap as the best."""
    owner = problem.owner
    nobody = owner == NOBODY
    if (nobody != (best == NOBODY)).any():
        return False
    if not problem.subscribed[problem.topic[~nobody], owner[~nobody]].all():
        return False
    if _unevenness(problem, owner) != _unevenness(problem, best):
        return False
    if per_topic and not of_topics(problem).hold(_of_topics(problem, owner)):
        return False
    price = priced(problem, costs)
    least = price.total(problem, best)
    return price.total(problem, owner) <= least + SLACK * (1 + least)


def _unevenness(problem: Problem, bins: IntArray) -> int:
    counts = np.bincount(bins[bins != NOBODY], minlength=len(problem.capacity))
    return int((counts**2).sum())


def _of_topics(problem: Problem, bins: IntArray) -> IntArray:
    """Return how many partitions of each topic each member reads, (T, M)."""
    counts = np.zeros(problem.subscribed.shape, dtype=np.int32)
    read = bins != NOBODY
    np.add.at(counts, (problem.topic[read], bins[read]), 1)
    return counts


def _strategy(name: str, costs: Costs) -> Pack:
    if name == "none":
        return sticky.pack
    return partial(pack, costs=costs, per_topic=name == "balance_subtopology")


def _varied(preset: str, settings: Mapping[str, float]) -> Heuristic:
    costs = Costs(*({**DEFAULTS, **settings}[name] for name in DEFAULTS))
    strategy = preset or "min_traffic"
    rackless = strategy == "none"
    return Heuristic(
        name="rack-aware",
        pack=_strategy(strategy, costs),
        summary="even by count, then the least cross-rack traffic and moves; see docs/racks.md",
        source="KIP-925",
        settles=True,
        counts=False,
        presets={name: _strategy(name, costs) for name in STRATEGIES},
        settings=DEFAULTS,
        varied=_varied,
        racks=not rackless,
        needs=None if rackless else NEEDS,
    )


STRATEGIES: Final = ("min_traffic", "balance_subtopology", "none")
DEFAULTS: Final[Mapping[str, float]] = {
    "traffic_cost": Costs().traffic,
    "non_overlap_cost": Costs().non_overlap,
}
HEURISTIC: Final = _varied("", {})
