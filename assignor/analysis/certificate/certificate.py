"""Certificates: how far a decision is, at most, from the best one that could be made now.

Rules of this file:
- The objective is one step's: `consumers + moves_cost * R`, or the least R with no more consumers
  than the decision uses. What a heuristic may weigh besides (risk, the ticks to come) is not in it:
  one that looks ahead pays for it here, and is right to.
- Functions of values: time comes in as `left`, which tells how many seconds may still be used.
- Needs the extra `certify` (HiGHS).
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np

from trimtab.assignor.analysis.certificate.column_generation import Found, Left, columns_of, search
from trimtab.assignor.analysis.certificate.consumer_kinds import Kinds, kinds_of, unit
from trimtab.assignor.analysis.certificate.master_program import Prices
from trimtab.assignor.heuristics.registry import get
from trimtab.assignor.model import NOBODY, FloatArray, IntArray, Problem
from trimtab.assignor.open_mode import pack_open
from trimtab.assignor.score import lower_bound, r_score
from trimtab.common.clock import Clock
from trimtab.common.errors import BadProblem

STARTS: Final = ("mbf", "mwf", "mbfp", "bfd")
"""Heuristics whose packings the search starts from."""

FLOATS: Final = 1e-9
"""Relative error of sums, given away by every bound."""

WHOLE: Final = 1e-6
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
        return excess(self.value, self.lower_bound)

    def body(self) -> dict[str, float | bool | None]:
        """Return it as JSON takes it: what is infinite is None."""
        figures = {**asdict(self), "gap": self.gap}
        return {name: None if math.isinf(f) else f for name, f in figures.items()}


def excess(value: float, least: float) -> float:
    """Return value ÷ least - 1; 0 if the value is no larger, inf if the least is 0."""
    if value <= least * (1 + FLOATS):
        return 0.0
    return value / least - 1 if least > 0 else math.inf


def countdown(clock: Clock, seconds: float) -> Left:
    """Return what tells how many of these seconds are left."""
    end = clock.monotonic() + seconds
    return lambda: end - clock.monotonic()


def certify(problem: Problem, bins: IntArray, *, moves_cost: float, left: Left) -> Certificate:
    """Certify `consumers + moves_cost * R` of a decision; `bins` (P,) is as a heuristic gives it.

    Raises BadProblem for loads, capacities, bins or a cost that make no sense.
    """
    return certify_all(problem, {"": bins}, moves_cost=moves_cost, left=left)[""]


def certify_all(
    problem: Problem, decisions: Mapping[str, IntArray], *, moves_cost: float, left: Left
) -> dict[str, Certificate]:
    """Certify several decisions on one problem at the price of one. Raises as `certify`."""
    _check(problem, decisions.values(), moves_cost)
    kinds = kinds_of(problem, moves_cost)
    packings = [*decisions.values(), *_starts(problem)]

    def cost(bins: IntArray) -> float:
        return _consumers(bins) + moves_cost * _r(problem, bins)

    known = min((cost(b) for b in packings if _fits(kinds, b)), default=math.inf)
    most = int(min(known * (1 + FLOATS), len(problem.weight)))
    found = _searched(kinds, Prices(1.0, most), packings, left)
    lower = max(found.lower, _fewest(problem))
    if moves_cost == 0:
        lower = math.ceil(lower - WHOLE)
    best = min(known, found.best)
    bounds = Found(lower, best, found.complete)
    return {name: _certificate(cost(b), bounds, kinds, b) for name, b in decisions.items()}


def certify_moves(problem: Problem, bins: IntArray, *, left: Left) -> Certificate:
    """Certify the R of a decision against the least with no more consumers than it uses.

    Raises as `certify`. `best_known` is inf if no packing with so few consumers is known.
    """
    _check(problem, [bins], 1.0)
    kinds, most = kinds_of(problem, 1.0), _consumers(bins)
    packings = [bins, *_starts(problem)]
    found = _searched(kinds, Prices(0.0, most), packings, left)
    known = (_r(problem, b) for b in packings if _fits(kinds, b) and _consumers(b) <= most)
    best = min([*known, found.best])
    bounds = Found(found.lower, best, found.complete)
    return _certificate(_r(problem, bins), bounds, kinds, bins)


def _certificate(value: float, found: Found, kinds: Kinds, bins: IntArray) -> Certificate:
    return Certificate(value, found.lower, found.best, found.complete, _fits(kinds, bins))


def _searched(kinds: Kinds, prices: Prices, packings: Sequence[IntArray], left: Left) -> Found:
    if not len(kinds.weight):
        return Found(0.0, 0.0, complete=True)
    found = search(kinds, prices, (c for b in packings for c in columns_of(kinds, b)), left)
    return Found(found.lower * (1 - FLOATS), found.best, found.complete)


def _starts(problem: Problem) -> Iterator[IntArray]:
    """Yield packings to start from."""
    for name in STARTS:
        yield pack_open(get(name), problem)


def _consumers(bins: IntArray) -> int:
    return len(np.unique(bins[bins != NOBODY]))


def _r(problem: Problem, bins: IntArray) -> float:
    return r_score(problem.weight, problem.owner, bins, unit(problem))


def _fits(kinds: Kinds, bins: IntArray) -> bool:
    """Tell whether everything is placed and every consumer holds its load."""
    return bool((bins != NOBODY).all()) and len(columns_of(kinds, bins)) == _consumers(bins)


def _fewest(problem: Problem) -> int:
    """Return a bound on the consumers that needs no solver."""
    spare = 0.0 if problem.spare is None else problem.spare
    return lower_bound(problem.weight, max(spare, float(problem.capacity.max(initial=0.0))))


def _check(problem: Problem, decisions: Iterable[IntArray], moves_cost: float) -> None:
    """Raise BadProblem where a number makes no sense."""
    _sensible("load", problem.weight, above=-math.inf)
    _sensible("capacity", problem.capacity, above=0.0)
    if problem.spare is None and not len(problem.capacity):
        raise BadProblem("there is no consumer, and none may be added: nothing can be certified")
    if problem.spare is not None:
        _sensible("capacity of added consumers", np.array([problem.spare]), above=0.0)
    _sensible("cost of moves", np.array([moves_cost]), above=-math.inf)
    for bins in decisions:
        if bins.shape != problem.weight.shape:
            raise BadProblem(f"{bins.shape} bins for {len(problem.weight)} partitions")


def _sensible(what: str, values: FloatArray, *, above: float) -> None:
    wrong = ~(np.isfinite(values) & (values >= 0) & (values > above))
    if wrong.any():
        number = int(wrong.argmax())
        raise BadProblem(
            f"{what} number {number} is {values[number]}; it must be finite and "
            f"{'above 0' if above == 0 else 'not negative'}"
        )
