"""Steady with racks: the objective counts cross-rack load, and steps towards racks only lower it."""

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
    """A closed group with room, in which all members read all and some have a rack."""
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
def test_the_incremental_objective_counts_cross_rack_load(problem: PackingProblem, rack_cost: float) -> None:
    """Move and rack costs, updated with every change, equal those of the final bins."""
    bins = _build_bins(problem, without_risk(rack_cost))
    start = np.where(problem.owner < 0, 0, problem.owner).astype(np.int32)
    bins.reset_placement(start)
    improve_rack_affinity(bins, np.argsort(-problem.weight, kind="stable").astype(np.int32))
    ends = bins.copy_placement()
    capacity = problem.capacity[0]
    moved = (problem.owner >= 0) & (ends != problem.owner)
    fares = BALANCED.move_cost * (problem.weight / capacity + MOVE_BASE_LOAD)[moved].sum()
    rack_costs = rack_cost * crossing(problem, ends) / capacity
    assert abs(bins.objective - fares - rack_costs) < 1e-6


@given(closed(), st.sampled_from([0.1, 1.0, 10.0]))
def test_rack_affinity_never_raises_the_objective(problem: PackingProblem, rack_cost: float) -> None:
    """The objective never rises, and no bin is filled above its capacity."""
    bins = _build_bins(problem, without_risk(rack_cost))
    start = np.where(problem.owner < 0, 0, problem.owner).astype(np.int32)
    bins.reset_placement(start)
    before = bins.objective
    improve_rack_affinity(bins, np.argsort(-problem.weight, kind="stable").astype(np.int32))
    assert bins.objective <= before + 1e-6
    limit = np.maximum(problem.capacity, loads(problem, start))
    assert (loads(problem, bins.copy_placement()) <= limit * (1 + 1e-6)).all()


@given(closed())
def test_a_rack_cost_never_raises_cross_rack_load(problem: PackingProblem) -> None:
    """With a high rack cost no more load crosses racks than without one, spread."""
    free = balance_load(problem, BALANCED)
    dear = balance_load(problem, replace(BALANCED, rack_cost=10.0))
    assert crossing(problem, dear) <= crossing(problem, free) + 1e-9


@given(closed())
def test_without_a_rack_cost_racks_change_nothing(problem: PackingProblem) -> None:
    """The decision is that of a group without known racks."""
    blind = replace(problem, racks=None)
    assert pack_steady(problem, BALANCED).tolist() == pack_steady(blind, BALANCED).tolist()
    assert balance_load(problem, BALANCED).tolist() == balance_load(blind, BALANCED).tolist()
