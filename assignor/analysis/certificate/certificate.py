"""Certificates: how far a decision is, at most, from the best one that could be made now.

Rules of this file:
- The objective is one step's: `consumers + moves_cost * R`, or the least R with no more consumers
  than the decision uses. What a heuristic may weigh besides (risk, the ticks to come) is not in it:
  one that looks ahead pays for it here, and is right to.
- Functions of values: time comes in as `left`, which tells how many seconds may still be used.
- Needs the extra `certify_decision` (HiGHS).
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np

from trimtab.assignor.analysis.certificate.column_generation import (
    CostBounds,
    SecondsLeft,
    columns_of_packing,
    search_bounds,
)
from trimtab.assignor.analysis.certificate.consumer_kinds import (
    ConsumerKinds,
    build_consumer_kinds,
    unit_capacity,
)
from trimtab.assignor.analysis.certificate.master_program import MasterPrices
from trimtab.assignor.heuristics.registry import get_heuristic
from trimtab.assignor.model import UNASSIGNED, FloatArray, IntArray, PackingProblem
from trimtab.assignor.open_mode import pack_open_mode
from trimtab.assignor.score import lower_bound, r_score
from trimtab.common.clock import Clock
from trimtab.common.errors import InvalidProblemError

START_HEURISTICS: Final = ("mbf", "mwf", "mbfp", "bfd")
"""Heuristics whose packings the search starts from."""

FLOAT_TOLERANCE: Final = 1e-9
"""Relative error of sums, given away by every bound."""

INTEGER_TOLERANCE: Final = 1e-6
"""How far below a whole number of consumers a bound may be to count as that number."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a decision costs, and what no decision costs less than; in consumers.

    `best_known` is the least cost of a packing that was found, the decision's own included.
    `complete` tells that the bound is the linear program's, not cut off by the time limit. Where
    the decision does not `fit`, because it overfills a consumer or leaves something unread, it may
    cost less than the bound.
    """

    value: float
    lower_bound: float
    best_known: float
    complete: bool
    fits: bool

    @property
    def gap(self) -> float:
        """How far above the best decision this one is at most: 0.05 is 5 %; inf if unknown."""
        return relative_gap(self.value, self.lower_bound)

    def to_json_dict(self) -> dict[str, float | bool | None]:
        """Return it as JSON takes it: what is infinite is None."""
        figures = {**asdict(self), "gap": self.gap}
        return {name: None if math.isinf(f) else f for name, f in figures.items()}


def relative_gap(value: float, lower_bound: float) -> float:
    """Return value ÷ least - 1; 0 if the value is no larger, inf if the least is 0."""
    if value <= lower_bound * (1 + FLOAT_TOLERANCE):
        return 0.0
    return value / lower_bound - 1 if lower_bound > 0 else math.inf


def start_countdown(clock: Clock, seconds: float) -> SecondsLeft:
    """Return what tells how many of these seconds are left."""
    end = clock.monotonic() + seconds
    return lambda: end - clock.monotonic()


def certify_decision(
    problem: PackingProblem, bins: IntArray, *, moves_cost: float, left: SecondsLeft
) -> Certificate:
    """Certify `consumers + moves_cost * R` of a decision; `bins` (P,) is as a heuristic gives it.

    Raises InvalidProblemError for loads, capacities, bins or a cost that make no sense.
    """
    return certify_decisions(problem, {"": bins}, moves_cost=moves_cost, left=left)[""]


def certify_decisions(
    problem: PackingProblem,
    decisions: Mapping[str, IntArray],
    *,
    moves_cost: float,
    left: SecondsLeft,
) -> dict[str, Certificate]:
    """Certify several decisions on one problem at the price of one. Raises as `certify_decision`."""
    _check_inputs(problem, decisions.values(), moves_cost)
    kinds = build_consumer_kinds(problem, moves_cost)
    packings = [*decisions.values(), *_iter_start_packings(problem)]

    def cost(bins: IntArray) -> float:
        return _count_consumers(bins) + moves_cost * _score_moves(problem, bins)

    known = min((cost(b) for b in packings if _is_feasible(kinds, b)), default=math.inf)
    most = int(min(known * (1 + FLOAT_TOLERANCE), len(problem.weight)))
    found = _search_with_margin(kinds, MasterPrices(1.0, most), packings, left)
    lower = max(found.lower_bound, _bound_consumer_count(problem))
    if moves_cost == 0:
        lower = math.ceil(lower - INTEGER_TOLERANCE)
    best = min(known, found.best_known)
    bounds = CostBounds(lower, best, found.complete)
    return {name: _build_certificate(cost(b), bounds, kinds, b) for name, b in decisions.items()}


def certify_moves(problem: PackingProblem, bins: IntArray, *, left: SecondsLeft) -> Certificate:
    """Certify the R of a decision against the least with no more consumers than it uses.

    Raises as `certify_decision`. `best_known` is inf if no packing with so few consumers is known.
    """
    _check_inputs(problem, [bins], 1.0)
    kinds, most = build_consumer_kinds(problem, 1.0), _count_consumers(bins)
    packings = [bins, *_iter_start_packings(problem)]
    found = _search_with_margin(kinds, MasterPrices(0.0, most), packings, left)
    known = (
        _score_moves(problem, b)
        for b in packings
        if _is_feasible(kinds, b) and _count_consumers(b) <= most
    )
    best = min([*known, found.best_known])
    bounds = CostBounds(found.lower_bound, best, found.complete)
    return _build_certificate(_score_moves(problem, bins), bounds, kinds, bins)


def _build_certificate(
    value: float, found: CostBounds, kinds: ConsumerKinds, bins: IntArray
) -> Certificate:
    return Certificate(
        value, found.lower_bound, found.best_known, found.complete, _is_feasible(kinds, bins)
    )


def _search_with_margin(
    kinds: ConsumerKinds, prices: MasterPrices, packings: Sequence[IntArray], left: SecondsLeft
) -> CostBounds:
    if not len(kinds.weight):
        return CostBounds(0.0, 0.0, complete=True)
    found = search_bounds(
        kinds, prices, (c for b in packings for c in columns_of_packing(kinds, b)), left
    )
    return CostBounds(found.lower_bound * (1 - FLOAT_TOLERANCE), found.best_known, found.complete)


def _iter_start_packings(problem: PackingProblem) -> Iterator[IntArray]:
    """Yield packings to start from."""
    for name in START_HEURISTICS:
        yield pack_open_mode(get_heuristic(name), problem)


def _count_consumers(bins: IntArray) -> int:
    return len(np.unique(bins[bins != UNASSIGNED]))


def _score_moves(problem: PackingProblem, bins: IntArray) -> float:
    return r_score(problem.weight, problem.owner, bins, unit_capacity(problem))


def _is_feasible(kinds: ConsumerKinds, bins: IntArray) -> bool:
    """Tell whether everything is placed and every consumer holds its load."""
    return bool((bins != UNASSIGNED).all()) and len(
        columns_of_packing(kinds, bins)
    ) == _count_consumers(bins)


def _bound_consumer_count(problem: PackingProblem) -> int:
    """Return a bound on the consumers that needs no solver."""
    spare = 0.0 if problem.new_member_capacity is None else problem.new_member_capacity
    return lower_bound(problem.weight, max(spare, float(problem.capacity.max(initial=0.0))))


def _check_inputs(
    problem: PackingProblem, decisions: Iterable[IntArray], moves_cost: float
) -> None:
    """Raise InvalidProblemError where a number makes no sense."""
    _check_values("load", problem.weight, above=-math.inf)
    _check_values("capacity", problem.capacity, above=0.0)
    if problem.new_member_capacity is None and not len(problem.capacity):
        raise InvalidProblemError(
            "there is no consumer, and none may be added: nothing can be certified"
        )
    if problem.new_member_capacity is not None:
        _check_values(
            "capacity of added consumers", np.array([problem.new_member_capacity]), above=0.0
        )
    _check_values("cost of moves", np.array([moves_cost]), above=-math.inf)
    for bins in decisions:
        if bins.shape != problem.weight.shape:
            raise InvalidProblemError(f"{bins.shape} bins for {len(problem.weight)} partitions")


def _check_values(what: str, values: FloatArray, *, above: float) -> None:
    wrong = ~(np.isfinite(values) & (values >= 0) & (values > above))
    if wrong.any():
        number = int(wrong.argmax())
        raise InvalidProblemError(
            f"{what} number {number} is {values[number]}; it must be finite and "
            f"{'above 0' if above == 0 else 'not negative'}"
        )
