"""The load of bench_day: a day of a trace at many times its speed."""

from datetime import UTC, date, datetime
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from trimtab.assignor.analysis.streams.resampling import RateSamples
from trimtab.assignor.model import TopicPartition

DAY = date(2024, 3, 13)
BEGIN = datetime(2024, 3, 13, tzinfo=UTC).timestamp()
HOURS = np.arange(-24, 49) * 3600.0
SPEED = 24.0
CAPACITY = 40_000.0
PEAK = 3.0


@pytest.fixture
def load(import_bench: Any) -> Any:
    """Return the module under test."""
    return import_bench("benchmarks.autoscaling.day_load")


@pytest.fixture
def samples() -> dict[TopicPartition, RateSamples]:
    """Three days of five partitions, hourly: four follow the hour of the day, the fifth has half of all."""
    wave = 1 + (HOURS / 3600 % 24)
    shares = [1.0, 2.0, 3.0, 4.0, 10.0]
    return {
        TopicPartition("t", n): RateSamples(BEGIN + HOURS, share * wave) for n, share in enumerate(shares)
    }


def test_a_day_takes_an_hour_and_fills_as_many_consumers_as_asked(load: Any, samples: Any) -> None:
    """Its highest load is that of the peak, but for a partition that no consumer could read."""
    rates = load.build_day(samples, DAY, SPEED, PEAK, CAPACITY)
    tick = import_module("benchmarks.stream").TICK
    assert rates.shape == (round(3600 / tick), 5)
    assert rates[:, :4].sum(axis=1).max() == pytest.approx(PEAK * CAPACITY / 2)
    assert rates[:, 4].max() == load.LARGEST * CAPACITY
    highest = rates[:, 0].argmax()
    assert highest == pytest.approx(len(rates) * 23 / 24, abs=1)


def test_hours_are_a_part_of_the_day(load: Any, samples: Any) -> None:
    """From 6:00 on, five hours; what is beyond midnight is left out."""
    rates = load.build_day(samples, DAY, SPEED, PEAK, CAPACITY)
    part = load.select_hours(rates, 6, 5)
    assert np.array_equal(part, rates[len(rates) // 4 : round(len(rates) * 11 / 24)])
    assert len(load.select_hours(rates, 23, 5)) == round(len(rates) / 24)


def test_a_day_outside_the_trace_is_refused_with_those_that_are_in_it(load: Any, samples: Any) -> None:
    """The error names the first and the last one."""
    with pytest.raises(ValueError, match="2024-03-20 is not in the trace, whose days are"):
        load.build_day(samples, date(2024, 3, 20), SPEED, PEAK, CAPACITY)
