"""Certificates: upper bounds on the distance of a decision from the best one.

1. The objective is `consumers + moves_cost * R` of one step, or the least R with no more consumers
   than the decision uses. Risk and later ticks do not count, so a heuristic that looks ahead costs
   more here.
2. `left` returns the remaining seconds; this package reads no clock.
3. It needs the extra `certify` (HiGHS).
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np

from trimtab.assignor.analysis.optimality.column_generation import (
    CostBounds,
    SecondsLeft,
    columns_of_packing,
    search_bounds,
)
from trimtab.assignor.analysis.optimality.consumer_kinds import (
    ConsumerKinds,
    build_consumer_kinds,
    unit_capacity,
)
from trimtab.assignor.analysis.optimality.master_program import MasterPrices
from trimtab.assignor.heuristics.registry import get_heuristic
from trimtab.assignor.model import UNASSIGNED, FloatArray, IntArray, PackingProblem
from trimtab.assignor.open_mode import pack_open_mode
from trimtab.assignor.score import lower_bound, r_score
from trimtab.common.clock import Clock
from trimtab.common.errors import InvalidProblemError
from trimtab.common.units import format_count

START_HEURISTICS: Final = ("mbf", "mwf", "mbfp", "bfd")

FLOAT_TOLERANCE: Final = 1e-9  # relative error of sums, subtracted from every bound

# Distance below a whole number of consumers at which a bound counts as that number.
INTEGER_TOLERANCE: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Certificate:
    """Cost of a decision and a lower bound on the cost of any decision, in consumers."""

    value: float
    lower_bound: float
    best_known: float  # of any packing found, including the decision
    complete: bool  # the bound is the linear program's, not cut off by the time limit
    fits: bool  # if not, a consumer is overfilled or a partition unassigned: it may cost less than the bound

    @property
    def gap(self) -> float:
        """Upper bound on the relative distance from the best decision (0.05 is 5 %), or inf."""
        return relative_gap(self.value, self.lower_bound)

    def to_json_dict(self) -> dict[str, float | bool | None]:
        """Return the JSON object; an infinite figure is None."""
        figures = {**asdict(self), "gap": self.gap}
        return {name: None if math.isinf(f) else f for name, f in figures.items()}


def relative_gap(value: float, lower_bound: float) -> float:
    """Return value ÷ lower_bound - 1; 0 if the value is no larger, inf for a bound of 0."""
    if value <= lower_bound * (1 + FLOAT_TOLERANCE):
        return 0.0
    return value / lower_bound - 1 if lower_bound > 0 else math.inf


def start_countdown(clock: Clock, seconds: float) -> SecondsLeft:
    """Return a function of the seconds left."""
    end = clock.monotonic() + seconds
    return lambda: end - clock.monotonic()


def certify_decision(
    problem: PackingProblem, bins: IntArray, *, moves_cost: float, left: SecondsLeft
) -> Certificate:
    """Certify `consumers + moves_cost * R` of a heuristic's bins (P,).

    Raises InvalidProblemError for invalid loads, capacities, bins or move cost.
    """
    return certify_decisions(problem, {"": bins}, moves_cost=moves_cost, left=left)[""]


def certify_decisions(
    problem: PackingProblem, decisions: Mapping[str, IntArray], *, moves_cost: float, left: SecondsLeft
) -> dict[str, Certificate]:
    """Certify several decisions of one problem in one search. Raises as `certify_decision`."""
    _check_inputs(problem, decisions.values(), moves_cost)
    kinds = build_consumer_kinds(problem, moves_cost)
    packings = [*decisions.values(), *_start_packings(problem)]

    def cost(bins: IntArray) -> float:
        return _count_consumers(bins) + moves_cost * _score_moves(problem, bins)

    known = min((cost(b) for b in packings if _is_feasible(kinds, b)), default=math.inf)
    most = int(min(known * (1 + FLOAT_TOLERANCE), len(problem.weight)))
    found = _search(kinds, MasterPrices(1.0, most), packings, left)
    lower = max(found.lower_bound, _bound_consumers(problem))  # L2 holds without the solver, too
    if moves_cost == 0:  # then costs are whole consumers
        lower = math.ceil(lower - INTEGER_TOLERANCE)
    best = min(known, found.best_known)
    bounds = CostBounds(lower, best, found.complete)
    return {name: _certificate(cost(b), bounds, kinds, b) for name, b in decisions.items()}


def certify_moves(problem: PackingProblem, bins: IntArray, *, left: SecondsLeft) -> Certificate:
    """Certify the R of a decision against the least R with no more consumers.

    Raises as `certify_decision`. `best_known` is inf if no such packing is known.
    """
    _check_inputs(problem, [bins], 1.0)
    kinds = build_consumer_kinds(problem, 1.0)
    most = _count_consumers(bins)
    packings = [bins, *_start_packings(problem)]
    found = _search(kinds, MasterPrices(0.0, most), packings, left)
    fitting = (b for b in packings if _is_feasible(kinds, b) and _count_consumers(b) <= most)
    best = min([*(_score_moves(problem, b) for b in fitting), found.best_known])
    bounds = CostBounds(found.lower_bound, best, found.complete)
    return _certificate(_score_moves(problem, bins), bounds, kinds, bins)


def _certificate(value: float, found: CostBounds, kinds: ConsumerKinds, bins: IntArray) -> Certificate:
    return Certificate(value, found.lower_bound, found.best_known, found.complete, _is_feasible(kinds, bins))


def _search(
    kinds: ConsumerKinds, prices: MasterPrices, packings: Sequence[IntArray], left: SecondsLeft
) -> CostBounds:
    if not len(kinds.weight):
        return CostBounds(0.0, 0.0, complete=True)
    found = search_bounds(kinds, prices, (c for b in packings for c in columns_of_packing(kinds, b)), left)
    return CostBounds(found.lower_bound * (1 - FLOAT_TOLERANCE), found.best_known, found.complete)


def _start_packings(problem: PackingProblem) -> Iterator[IntArray]:
    for name in START_HEURISTICS:
        yield pack_open_mode(get_heuristic(name), problem)


def _count_consumers(bins: IntArray) -> int:
    return len(np.unique(bins[bins != UNASSIGNED]))


def _score_moves(problem: PackingProblem, bins: IntArray) -> float:
    return r_score(problem.weight, problem.owner, bins, unit_capacity(problem))


def _is_feasible(kinds: ConsumerKinds, bins: IntArray) -> bool:
    return bool((bins != UNASSIGNED).all()) and len(columns_of_packing(kinds, bins)) == _count_consumers(bins)


def _bound_consumers(problem: PackingProblem) -> int:
    spare = 0.0 if problem.new_member_capacity is None else problem.new_member_capacity
    return lower_bound(problem.weight, max(spare, float(problem.capacity.max(initial=0.0))))


def _check_inputs(problem: PackingProblem, decisions: Iterable[IntArray], moves_cost: float) -> None:
    _check_values("load", problem.weight, above=-math.inf)
    _check_values("capacity", problem.capacity, above=0.0)
    if problem.new_member_capacity is None and not len(problem.capacity):
        raise InvalidProblemError("there is no consumer, and none may be added: nothing can be certified")
    if problem.new_member_capacity is not None:
        _check_values("capacity of added consumers", np.array([problem.new_member_capacity]), above=0.0)
    _check_values("cost of moves", np.array([moves_cost]), above=-math.inf)
    for bins in decisions:
        if bins.shape != problem.weight.shape:
            raise InvalidProblemError(
                f"{bins.shape} bins for {format_count(len(problem.weight), 'partition')}"
            )


def _check_values(what: str, values: FloatArray, *, above: float) -> None:
    wrong = ~(np.isfinite(values) & (values >= 0) & (values > above))
    if wrong.any():
        number = int(wrong.argmax())
        raise InvalidProblemError(
            f"{what} number {number} is {values[number]}; it must be finite and "
            f"{'above 0' if above == 0 else 'not negative'}"
        )
