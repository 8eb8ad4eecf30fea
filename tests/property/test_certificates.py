"""Certificates compared with every packing of a small problem."""

import math
from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trimtab.assignor import UNASSIGNED, PackingProblem, get_heuristic, r_score
from trimtab.assignor.analysis.optimality import certify_decision, certify_moves
from trimtab.assignor.analysis.optimality.column_generation import search_bounds
from trimtab.assignor.analysis.optimality.consumer_kinds import build_consumer_kinds, unit_capacity
from trimtab.assignor.analysis.optimality.master_program import MasterPrices, MasterProgram, PackingColumn
from trimtab.assignor.model import IntArray
from trimtab.assignor.open_mode import pack_open_mode
from trimtab.assignor.packing import CAPACITY_TOLERANCE

loads = st.one_of(st.just(0.0), st.floats(0.5, 160.0), st.integers(1, 12).map(lambda n: 10.0 * n))
whole = st.integers(0, 160).map(float)
"""Loads whose sums pass a capacity by 1 at least, which is more than a step of the knapsacks."""

capacities = st.sampled_from([100.0, 100.0, 60.0, 150.0])
costs = st.sampled_from([0.0, 0.03, 0.5, 1.0, 3.0])


@st.composite
def problems(draw: st.DrawFn, weights: st.SearchStrategy[float] = loads) -> PackingProblem:
    partitions, members = draw(st.integers(0, 6)), draw(st.integers(0, 3))
    numbers = st.lists(st.integers(0, 1), min_size=partitions, max_size=partitions)
    owners = st.lists(st.integers(UNASSIGNED, members - 1), min_size=partitions, max_size=partitions)
    topic = np.array(draw(numbers), dtype=np.int32)
    reads = np.array([[draw(st.sampled_from([True, True, False])) for _ in range(members)] for _ in "ab"])
    subscribed = reads.reshape(2, members).astype(np.bool_)
    owner = np.array(draw(owners), dtype=np.int32)
    may = [o == UNASSIGNED or subscribed[t, o] for t, o in zip(topic, owner, strict=True)]
    weight = np.array([draw(weights) for _ in range(partitions)])
    return PackingProblem(
        weight=weight,
        owner=np.where(may, owner, UNASSIGNED).astype(np.int32),
        topic=topic,
        lag=weight,
        capacity=np.array([draw(capacities) for _ in range(members)], dtype=np.float64),
        subscribed=subscribed,
        new_member_capacity=100.0,
    )


def packings(problem: PackingProblem) -> Iterator[IntArray]:
    """Yield every packing; of the added members the lowest numbers are used first."""
    members, items = len(problem.capacity), len(problem.weight)
    held: dict[int, list[int]] = {}

    def fits(number: int) -> bool:
        capacity = 100.0 if number >= members else float(problem.capacity[number])
        load = sum(float(problem.weight[i]) for i in held[number])
        return len(held[number]) == 1 or load <= capacity * (1 + CAPACITY_TOLERANCE)

    def placed(item: int, added: int) -> Iterator[IntArray]:
        if item == items:
            bins = np.full(items, UNASSIGNED, dtype=np.int32)
            for number, mine in held.items():
                bins[mine] = number
            yield bins
            return
        for number in range(members + added + 1):
            if number < members and not problem.subscribed[problem.topic[item], number]:
                continue
            held.setdefault(number, []).append(item)
            if fits(number):
                yield from placed(item + 1, max(added, number - members + 1))
            held[number].pop()

    yield from placed(0, 0)


def consumers(bins: IntArray) -> int:
    return len(np.unique(bins))


def moves(problem: PackingProblem, bins: IntArray) -> float:
    return r_score(problem.weight, problem.owner, bins, unit_capacity(problem))


def plenty() -> float:
    return 60.0


@given(problems(), costs, st.sampled_from(["mbf", "mwf", "bfd", "nf"]))
def test_no_packing_costs_less_than_the_bound(problem: PackingProblem, cost: float, name: str) -> None:
    """The bound is at most the optimum, which is at most the best known; the gap covers it."""
    bins = pack_open_mode(get_heuristic(name), problem)
    made = certify_decision(problem, bins, moves_cost=cost, left=plenty)
    least = min(consumers(b) + cost * moves(problem, b) for b in packings(problem))
    assert made.complete
    assert made.fits
    assert made.lower_bound <= least + 1e-9
    assert least <= made.best_known + 1e-9
    assert made.best_known <= made.value + 1e-9
    assert made.value == pytest.approx(consumers(bins) + cost * moves(problem, bins))
    assert made.value <= least * (1 + made.gap) + 1e-9


@given(problems(), st.sampled_from(["mbf", "mwf", "bfd", "nf"]))
def test_no_packing_of_as_many_consumers_moves_less(problem: PackingProblem, name: str) -> None:
    """The bound on R holds for every packing with no more consumers."""
    bins = pack_open_mode(get_heuristic(name), problem)
    made = certify_moves(problem, bins, left=plenty)
    few = (b for b in packings(problem) if consumers(b) <= consumers(bins))
    least = min(moves(problem, b) for b in few)
    assert made.complete
    assert made.lower_bound <= least + 1e-9
    assert least <= made.best_known + 1e-9
    assert made.best_known <= made.value + 1e-9


@given(problems(whole), costs)
def test_a_complete_bound_is_the_linear_program_s(problem: PackingProblem, cost: float) -> None:
    """With all fitting sets as columns the linear program has the value of the bound."""
    assume(len(problem.weight))
    kinds = build_consumer_kinds(problem, cost)
    prices = MasterPrices(1.0, len(problem.weight))
    master = MasterProgram(kinds, prices)
    items = np.arange(len(problem.weight), dtype=np.int32)
    sets = [np.array(c) for n in items for c in combinations(items, int(n) + 1)]
    master.add_columns(
        PackingColumn(k, s) for k in range(len(kinds.max_uses)) for s in sets if kinds.can_hold(k, s)
    )
    exact = master.solve_relaxation(60.0)
    assert exact is not None
    found = search_bounds(kinds, prices, (), plenty)
    assert found.complete
    assert found.lower_bound == pytest.approx(exact.objective, rel=2e-4, abs=1e-6)


@given(problems(), costs, st.integers(0, 6))
def test_a_bound_cut_short_is_still_a_bound(problem: PackingProblem, cost: float, looks: int) -> None:
    """A time limit after any number of clock reads only weakens the bound."""
    ticks = iter(range(looks, -(10**6), -1))
    bins = pack_open_mode(get_heuristic("mbf"), problem)
    made = certify_decision(problem, bins, moves_cost=cost, left=lambda: float(next(ticks)))
    least = min(consumers(b) + cost * moves(problem, b) for b in packings(problem))
    assert made.lower_bound <= least + 1e-9
    assert least <= made.best_known + 1e-9 < math.inf


@given(problems(), costs)
def test_a_decision_that_does_not_fit_is_marked(problem: PackingProblem, cost: float) -> None:
    """All partitions on one consumer get a certificate, whose `fits` is False if it overflows."""
    bins = np.full(len(problem.weight), len(problem.capacity), dtype=np.int32)
    made = certify_decision(problem, bins, moves_cost=cost, left=plenty)
    single = len(bins) <= 1 or problem.weight.sum() <= 100.0 * (1 + CAPACITY_TOLERANCE)
    assert made.fits == single
    least = min(consumers(b) + cost * moves(problem, b) for b in packings(problem))
    assert made.lower_bound <= least + 1e-9 <= made.best_known + 2e-9
