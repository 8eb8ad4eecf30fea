"""Certificates: rounding, time limits, closed groups, and invalid input."""

import math
from dataclasses import replace

import numpy as np
import pytest

from trimtab.assignor import InvalidProblemError, PackingProblem, RandomWalk, get_heuristic, replay_stream
from trimtab.assignor.analysis.optimality import certify_decision, certify_moves, start_countdown
from trimtab.assignor.analysis.optimality.consumer_kinds import build_consumer_kinds
from trimtab.assignor.analysis.optimality.pricing import Knapsacks
from trimtab.common.clock import SystemClock


def plenty() -> float:
    return 60.0


def problem(*weights: float, members: int = 0, spare: float | None = 100.0) -> PackingProblem:
    weight = np.array(weights)
    return PackingProblem(
        weight=weight,
        owner=np.full(len(weight), -1, dtype=np.int32),
        topic=np.zeros(len(weight), dtype=np.int32),
        lag=weight,
        capacity=np.full(members, 100.0),
        subscribed=np.ones((1, members), dtype=np.bool_),
        new_member_capacity=spare,
    )


def walked(partitions: int = 40) -> tuple[PackingProblem, np.ndarray]:
    """Return a tick of a random walk, packed by mbf after its own placement."""
    stream = RandomWalk(15, partitions, 9).generate_stream(np.random.default_rng(5))
    ticks = list(replay_stream(get_heuristic("mbf"), stream, 100.0))
    members = int(ticks[-2].owner.max()) + 1
    found = problem(*stream.rates[-1].tolist(), members=members)
    return replace(found, owner=ticks[-2].owner), ticks[-1].owner


@pytest.mark.parametrize("steps", [7, 10, 600, 10_000])
def test_weights_are_rounded_to_the_safe_side(steps: int) -> None:
    """Three exact thirds fit in a bound; no set of a column overflows."""
    kinds = build_consumer_kinds(problem(*[100 / 3] * 3, 100 / 3 + 0.01), 0.5)
    worth = np.array([1.0, 1.0, 1.0, 1.5])
    (relaxed,) = Knapsacks(kinds, steps, relaxed=True).best_sets(worth)
    (true,) = Knapsacks(kinds, steps, relaxed=False).best_sets(worth)
    assert relaxed.profit >= 3.0
    assert kinds.can_hold(true.kind, true.items)


def test_the_bound_is_tight_on_a_random_walk() -> None:
    """At 40 partitions bound and best packing differ by at most 2 %, in both forms."""
    given, bins = walked()
    for made in (
        certify_decision(given, bins, moves_cost=0.5, left=plenty),
        certify_moves(given, bins, left=plenty),
    ):
        assert made.complete
        assert made.lower_bound <= made.best_known <= 1.02 * made.lower_bound
        assert made.best_known < made.value


def test_without_time_the_bound_needs_no_solver() -> None:
    """Without any time the certificate is incomplete and has the bound that needs no solver."""
    given, bins = walked()
    made = certify_decision(given, bins, moves_cost=0.5, left=lambda: 0.0)
    assert not made.complete
    assert 0 < made.lower_bound <= made.best_known <= made.value


def test_the_time_limit_holds() -> None:
    """A limit of 0.1 s holds within a margin, even at 200 partitions."""
    given, bins = walked(200)
    clock = SystemClock()
    begun = clock.monotonic()
    made = certify_decision(given, bins, moves_cost=0.5, left=start_countdown(clock, 0.1))
    assert clock.monotonic() - begun < 2.0
    assert made.lower_bound <= made.value


def test_free_moves_give_whole_consumers() -> None:
    """If moves cost nothing, the bound is rounded up to whole consumers."""
    made = certify_decision(problem(60, 60, 60), np.arange(3, dtype=np.int32), moves_cost=0.0, left=plenty)
    assert (made.lower_bound, made.best_known, made.gap) == (3, 3, 0)


def test_a_closed_group_is_certified() -> None:
    """In closed mode only the joined members count: two of three hold the load."""
    given = replace(problem(60, 30, 20, members=3, spare=None), owner=np.array([0, 1, 2]))
    made = certify_moves(given, np.array([0, 1, 1]), left=plenty)
    assert (made.value, made.gap) == (pytest.approx(0.2), pytest.approx(0.0, abs=1e-6))


def test_no_partitions_cost_nothing() -> None:
    """An empty problem is optimal."""
    made = certify_decision(problem(), np.array([], dtype=np.int32), moves_cost=1.0, left=plenty)
    assert (made.value, made.lower_bound, made.gap, made.complete) == (0, 0, 0, True)


def test_the_gap_to_a_bound_of_0_is_infinite() -> None:
    """With a bound of 0 and a higher value the gap is infinite, and null in JSON."""
    given = replace(problem(60, 30, members=2), owner=np.array([0, 0], dtype=np.int32))
    made = certify_moves(given, np.array([0, 1], dtype=np.int32), left=plenty)
    assert math.isinf(made.gap)
    assert made.to_json_dict()["gap"] is None


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_invalid_figures_are_named(bad: float) -> None:
    """Loads, capacities and costs must be finite and not negative."""
    bins = np.zeros(2, dtype=np.int32)
    with pytest.raises(InvalidProblemError, match="load number 1 is"):
        certify_decision(problem(10, bad), bins, moves_cost=0.5, left=plenty)
    with pytest.raises(InvalidProblemError, match="capacity of added consumers"):
        certify_decision(problem(10, 10, spare=bad), bins, moves_cost=0.5, left=plenty)
    with pytest.raises(InvalidProblemError, match="cost of moves"):
        certify_decision(problem(10, 10), bins, moves_cost=bad, left=plenty)


def test_uncertifiable_input_is_refused() -> None:
    """A problem without consumers, or bins of another problem, raise InvalidProblemError."""
    with pytest.raises(InvalidProblemError, match="there is no consumer"):
        certify_moves(problem(10, spare=None), np.zeros(1, dtype=np.int32), left=plenty)
    with pytest.raises(InvalidProblemError, match=r"bins for 1 partition$"):
        certify_moves(problem(10), np.zeros(2, dtype=np.int32), left=plenty)
