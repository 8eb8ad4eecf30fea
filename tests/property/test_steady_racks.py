"""Steady with racks: what the objective counts is what there is, and nearer costs nothing else."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trimtab.assignor.heuristics.steady.pack import MOVE_BASE_LOAD, _build_bins, balance_load, pack_steady
from trimtab.assignor.heuristics.steady.params import STEADY_PRESETS, SteadyParams
from trimtab.assignor.heuristics.steady.rack_affinity import improve_rack_affinity
from trimtab.assignor.model import FloatArray, IntArray, PackingProblem, RackTopology

RACKS = 3
BALANCED = STEADY_PRESETS["balanced"]


@st.composite
def closed(draw: st.DrawFn) -> PackingProblem:
    """A group with room, where everybody reads something and says its rack, or does not."""
    count, members = draw(st.integers(1, 40)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    weight = rng.choice([0.0, 1.0, 3.0, 8.0], count)
    far = rng.random((count, RACKS + 1)) < 0.5
    far[:, -1] = False
    return PackingProblem(
        weight=weight,
        owner=rng.integers(-1, members, count).astype(np.int32),
        topic=np.zeros(count, dtype=np.int32),
        lag=np.zeros(count),
        capacity=np.full(members, max(1.0, 2 * weight.sum() / members, 2 * weight.max())),
        subscribed=np.ones((1, members), dtype=np.bool_),
        racks=RackTopology(rng.integers(0, RACKS + 1, members).astype(np.int32), far),
    )


def crossing(problem: PackingProblem, bins: IntArray) -> float:
    assert problem.racks is not None
    return float(problem.weight[problem.racks.find_cross_rack(bins)].sum())


def loads(problem: PackingProblem, bins: IntArray) -> FloatArray:
    return np.bincount(bins, problem.weight, len(problem.capacity))


def without_risk(rack_cost: float) -> SteadyParams:
    return replace(BALANCED, foresight=0.0, rack_cost=rack_cost)


@given(closed(), st.sampled_from([0.1, 1.0, 10.0]))
def test_the_objective_counts_what_crosses(problem: PackingProblem, rack_cost: float) -> None:
    """Moves and tolls, kept up to date at every change, are those of the bins in the end."""
    bins = _build_bins(problem, without_risk(rack_cost))
    start = np.where(problem.owner < 0, 0, problem.owner).astype(np.int32)
    bins.reset_placement(start)
    improve_rack_affinity(bins, np.argsort(-problem.weight, kind="stable").astype(np.int32))
    ends = bins.copy_placement()
    capacity = problem.capacity[0]
    moved = (problem.owner >= 0) & (ends != problem.owner)
    fares = BALANCED.move_cost * (problem.weight / capacity + MOVE_BASE_LOAD)[moved].sum()
    tolls = rack_cost * crossing(problem, ends) / capacity
    assert abs(bins.objective - fares - tolls) < 1e-6


@given(closed(), st.sampled_from([0.1, 1.0, 10.0]))
def test_nearer_makes_the_objective_fall(problem: PackingProblem, rack_cost: float) -> None:
    """It is never more than it was, and nothing is filled above its capacity for it."""
    bins = _build_bins(problem, without_risk(rack_cost))
    start = np.where(problem.owner < 0, 0, problem.owner).astype(np.int32)
    bins.reset_placement(start)
    before = bins.objective
    improve_rack_affinity(bins, np.argsort(-problem.weight, kind="stable").astype(np.int32))
    assert bins.objective <= before + 1e-6
    limit = np.maximum(problem.capacity, loads(problem, start))
    assert (loads(problem, bins.copy_placement()) <= limit * (1 + 1e-6)).all()


@given(closed())
def test_a_weight_lets_no_more_cross(problem: PackingProblem) -> None:
    """Where racks are dear, no more crosses than by the same heuristic without them, spread."""
    free = balance_load(problem, BALANCED)
    dear = balance_load(problem, replace(BALANCED, rack_cost=10.0))
    assert crossing(problem, dear) <= crossing(problem, free) + 1e-9


@given(closed())
def test_without_a_weight_racks_change_nothing(problem: PackingProblem) -> None:
    """The answer is that of a group of which no racks are known."""
    blind = replace(problem, racks=None)
    assert pack_steady(problem, BALANCED).tolist() == pack_steady(blind, BALANCED).tolist()
    assert balance_load(problem, BALANCED).tolist() == balance_load(blind, BALANCED).tolist()
