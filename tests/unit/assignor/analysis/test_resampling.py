"""Samples at any times become a stream of equal ticks."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.assignor import InvalidStreamError, TopicPartition
from trimtab.assignor.analysis.streams.resampling import (
    RateSamples,
    ResampledTrace,
    busiest_percentile,
    resample_rates,
    select_windows,
    split_halves,
)
from trimtab.assignor.analysis.streams.stream import WriteRateStream

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def resample(
    times: list[float], rates: list[float], tick: float, speed: float = 1.0, max_gap: float | None = None
) -> ResampledTrace:
    return resample_rates({A: RateSamples(np.array(times), np.array(rates))}, tick, speed, max_gap)


def test_a_tick_has_the_mean_of_the_line_between_samples() -> None:
    """Finer and coarser than the samples, and at any speed."""
    assert resample([0, 10, 20], [0, 10, 0], 5).stream.rates[:, 0].tolist() == [2.5, 7.5, 7.5, 2.5]
    assert resample([0, 10, 20], [0, 10, 0], 20).stream.rates[:, 0].tolist() == [5.0]
    assert resample([0, 10, 20], [0, 10, 0], 5, speed=4).stream.rates[:, 0].tolist() == [5.0]


def test_a_partition_is_absent_in_a_long_gap_only() -> None:
    """A missing sample is bridged and counted; a gap of many is no traffic of 0, but no partition."""
    trace = resample([0, 10, 30, 40, 100, 110], [1, 1, 3, 3, 7, 7], 10)
    assert trace.max_gap == 30
    assert trace.bridged_gaps == 1
    assert np.array_equal(trace.stream.rates[:, 0], [1, 1.5, 2.5, 3, *[math.nan] * 6, 7], equal_nan=True)
    assert trace.absent_share == pytest.approx(6 / 11)


def test_a_partition_is_absent_before_its_first_and_after_its_last_sample() -> None:
    """The ticks are those of the whole trace."""
    samples = {
        A: RateSamples(np.arange(0.0, 50, 10), np.ones(5)),
        B: RateSamples(np.arange(10.0, 40, 10), np.full(3, 2.0)),
    }
    rates = resample_rates(samples, 10, 1).stream.rates
    assert np.array_equal(rates, [[1, math.nan], [1, 2], [1, 2], [1, math.nan]], equal_nan=True)


@given(st.lists(st.floats(0, 1e9), min_size=2, max_size=30), st.integers(1, 12))
def test_bytes_are_kept(rates: list[float], parts: int) -> None:
    """Whatever the tick, the stream has as many bytes as the samples, and no negative rate."""
    times = [10.0 * n for n in range(len(rates))]
    tick = times[-1] / parts
    found = resample(times, rates, tick, max_gap=20).stream.rates[:, 0]
    assert (found >= 0).all()
    assert found.sum() * tick == pytest.approx(np.trapezoid(rates, times), rel=1e-6, abs=1e-3)


@pytest.mark.parametrize(
    ("times", "tick", "message"),
    [
        ([0.0], 1, "lasts 0 s"),
        ([0.0, 10.0], 20, "a tick 20 s of it; give more samples"),
        ([0.0, 1e12], 1, "is a time wrong"),
    ],
)
def test_samples_that_fill_no_tick_or_too_many_are_refused(
    times: list[float], tick: float, message: str
) -> None:
    """The error says how long the trace lasts, or how many ticks it would have."""
    with pytest.raises(InvalidStreamError, match=message):
        resample(times, [1.0] * len(times), tick)


def build_stream(ticks: int) -> WriteRateStream:
    return WriteRateStream((A,), np.arange(float(ticks))[:, None])


def test_windows_are_spread_over_a_half_without_overlap() -> None:
    """Both halves have no tick in common; a short half has fewer or shorter windows."""
    first, second = split_halves(build_stream(21))
    assert first.rates[:, 0].tolist() == [*range(10)]
    assert [w.rates[:, 0].tolist() for w in select_windows(second, 2, 3)] == [[10, 11, 12], [15, 16, 17]]
    assert [len(w.rates) for w in select_windows(second, 4, 5)] == [5, 5]
    assert [len(w.rates) for w in select_windows(second, 4, 50)] == [11]
    with pytest.raises(InvalidStreamError, match="one tick"):
        split_halves(build_stream(1))


def test_the_busiest_partition_sets_the_scale() -> None:
    """Not the mean of all; a partition that is always absent counts as none."""
    rates = np.array([[1.0, 5.0, math.nan], [2.0, 6.0, math.nan]])
    stream = WriteRateStream((A, B, TopicPartition("t", 2)), rates)
    assert busiest_percentile(stream, 100) == 6
