"""The bound in hindsight: below every run, and equal to the best of all sequences of small streams."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trimtab.assignor import TopicPartition, WriteRateStream
from trimtab.assignor.analysis.simulation import (
    HindsightInput,
    SimulationSetup,
    bound_in_hindsight,
    measure_gap,
    parse_contender,
    run_simulation,
)
from trimtab.assignor.analysis.simulation.hindsight import bound_by_counts
from trimtab.assignor.model import FloatArray
from trimtab.assignor.packing import CAPACITY_TOLERANCE

USABLE, CAPACITY = 90.0, 100.0
ROUNDING = 1e-6

loads = st.one_of(
    st.just(0.0), st.just(np.nan), st.integers(1, 12).map(lambda n: 10.0 * n), st.floats(0.5, 160)
)
costs = st.sampled_from([0.0, 0.08, 0.5, 1.25, 4.0])


@st.composite
def rates_of(draw: st.DrawFn, partitions: int, ticks: int) -> FloatArray:
    """Return write rates of at most so many partitions and ticks."""
    shape = draw(st.integers(1, ticks)), draw(st.integers(1, partitions))
    values = draw(st.lists(loads, min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    return np.array(values).reshape(shape)


def least_cost(rates: FloatArray, move_cost: float) -> float:
    """Return the least cost over all owners of every partition at every tick, by name of the consumer."""
    partitions = rates.shape[1]
    every = np.array([*product(range(2 * partitions), repeat=partitions)])

    def count(now: FloatArray) -> FloatArray:
        there = ~np.isnan(now)
        used = np.zeros(len(every))
        for consumer in range(2 * partitions):
            held = (every == consumer) & there
            used += np.where(
                (held.sum(1) > 1) & ((held * np.nan_to_num(now)).sum(1) > USABLE * (1 + CAPACITY_TOLERANCE)),
                np.inf,
                held.any(1),
            )
        return used

    total = count(rates[0])
    for before, now in pairwise(rates):
        movable = np.where(np.isnan(before) | np.isnan(now), 0.0, now)
        moved = ((every[:, None] != every[None]) * movable).sum(axis=2)
        total = (total[:, None] + move_cost * moved / CAPACITY).min(axis=0) + count(now)
    return float(total.min())


@given(rates_of(3, 4), costs)
def test_a_small_stream_is_solved_exactly(rates: FloatArray, move_cost: float) -> None:
    """No owners of all ticks cost less, and some cost just that."""
    bound = bound_in_hindsight(HindsightInput(rates, USABLE, CAPACITY, move_cost))
    assert bound.exact
    assert bound.cost.sum() == pytest.approx(least_cost(rates, move_cost))


@given(rates_of(6, 6), costs)
@example(np.array([[85.0, 10.0], [85.0, 5.0], [85.0, 10.0]]), 0.5)
@example(np.array([[40.0, 40.0], [80.0, 60.0], [40.0, 40.0]]), 4.0)
def test_the_bound_by_counts_is_below_the_optimum(rates: FloatArray, move_cost: float) -> None:
    """The relaxation that larger streams have never costs more than the exact solution."""
    relaxed = bound_by_counts(HindsightInput(rates, USABLE, CAPACITY, move_cost))
    exact = bound_in_hindsight(HindsightInput(rates, USABLE, CAPACITY, move_cost))
    assert relaxed.cost.sum() <= exact.cost.sum() + ROUNDING


@given(rates_of(12, 8), costs)
def test_no_run_costs_less_than_the_bound(rates: FloatArray, move_cost: float) -> None:
    """Every heuristic that packs by capacity costs at least the bound, and its parts make up the gap."""
    stream = WriteRateStream(tuple(TopicPartition("t", n) for n in range(rates.shape[1])), rates)
    setup = SimulationSetup(capacity=CAPACITY, headroom=USABLE / CAPACITY)
    bound = bound_in_hindsight(HindsightInput(rates, USABLE, CAPACITY, move_cost))
    for name in ("steady:tight", "steady", "steady:calm", "mwf", "mbfp", "bfd", "nf"):
        gap = measure_gap([run_simulation(parse_contender(name), stream, setup)], [bound], setup.tick)
        assert gap.overfull_ticks == 0
        assert gap.cost >= gap.bound - ROUNDING
        parts = gap.held_percent + gap.spare_percent + gap.missing_percent + gap.moves_percent
        assert parts == pytest.approx(gap.gap_percent)
