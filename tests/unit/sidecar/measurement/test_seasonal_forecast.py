"""The seasonal forecast: used while its record is better than that of "as now"."""

import numpy as np
import pytest

from trimtab.assignor.analysis.simulation import SimulationRun, SimulationSetup, parse_contender
from trimtab.assignor.analysis.streams.generators import RandomWalk, ZipfLoad
from trimtab.assignor.analysis.streams.stream import WriteRateStream
from trimtab.assignor.model import FloatArray
from trimtab.sidecar.measurement.seasonal_forecast import SeasonalForecast, SeasonalForecaster
from trimtab.sidecar.simulation.live_loop import run_live
from trimtab.sidecar.simulation.live_settings import LiveSettings

PERIOD = 20
SETUP = SimulationSetup(headroom=0.9)


def wave(ticks: int, partitions: int = 3) -> FloatArray:
    """Return rates that rise and fall with a season."""
    angle = 2 * np.pi * (np.arange(ticks)[:, None] / PERIOD + np.arange(partitions) / 9)
    return 50 + 30 * np.sin(angle)


def forecast_all(rates: FloatArray, horizon: int = 1) -> list[SeasonalForecast]:
    forecaster = SeasonalForecaster(PERIOD, horizon)
    return [forecaster.add_rates(row) for row in rates]


@pytest.mark.parametrize("horizon", [1, 3])
def test_a_season_that_returns_is_forecast(horizon: int) -> None:
    """After one season to learn from and one of record the forecast is exact."""
    rates = wave(4 * PERIOD)
    made = forecast_all(rates, horizon)
    late = 2 * PERIOD + horizon
    assert all(one.partitions_open.all() and one.group_open for one in made[late:])
    for tick in range(late, len(rates) - horizon):
        assert made[tick].rates == pytest.approx(rates[tick + horizon])


def test_the_peak_is_that_of_the_season_ahead() -> None:
    """Of the group's sum, as far as one looks, and no further."""
    rates = wave(4 * PERIOD)
    sums = rates.sum(axis=1)
    forecaster = SeasonalForecaster(PERIOD, 1)
    for row in rates[: 3 * PERIOD]:
        forecaster.add_rates(row)
    now = 3 * PERIOD
    for ticks in (1, 3, PERIOD // 2):
        assert forecaster.forecast_peak(ticks) == pytest.approx(sums[now : now + ticks].max())


def test_a_fall_that_was_not_forecast_may_end_at_any_moment() -> None:
    """For as long as one looks ahead, the load of before counts, as the season has changed it since."""
    rates = wave(4 * PERIOD)
    forecaster = SeasonalForecaster(PERIOD, 1)
    for row in rates[: 3 * PERIOD]:
        forecaster.add_rates(row)
    usual = rates[3 * PERIOD : 3 * PERIOD + 4].sum(axis=1).max()
    for tick in range(3 * PERIOD, 3 * PERIOD + 2):
        forecaster.add_rates(rates[tick] / 4)
    assert forecaster.forecast_peak(3) >= usual
    assert forecaster.forecast_peak(1) < usual / 2


def test_rates_are_as_now_before_there_is_a_record() -> None:
    """A season to learn from proves nothing yet."""
    rates = wave(2 * PERIOD)
    for row, made in zip(rates, forecast_all(rates), strict=True):
        assert (made.rates == row).all()


def test_the_gate_closes_when_the_pattern_breaks() -> None:
    """Within a season of another pattern rates are as now again, and later follow the new one."""
    broken = np.concatenate([wave(5 * PERIOD), wave(12 * PERIOD)[PERIOD // 2 :]])
    made = forecast_all(broken)
    assert made[5 * PERIOD - 1].partitions_open.all()
    closed = [not one.partitions_open.any() and not one.group_open for one in made]
    assert any(closed[5 * PERIOD : 6 * PERIOD])
    assert made[-1].partitions_open.all()


def test_noisy_partitions_follow_the_group() -> None:
    """What hides in the noise of each partition is still seen in their sum."""
    noise = np.random.default_rng(3).normal(0, 25, (8 * PERIOD, 60))
    made = forecast_all(np.maximum(wave(8 * PERIOD, 1) + noise, 0))
    assert made[-1].group_open
    assert made[-1].partitions_open.mean() < 0.2


def test_an_absent_partition_is_forecast_absent() -> None:
    """It counts neither in the group's change nor in its own."""
    rates = wave(5 * PERIOD)
    rates[2 * PERIOD : 3 * PERIOD, 1] = np.nan
    made = forecast_all(rates)
    assert all(
        np.isnan(one.rates).tolist() == np.isnan(row).tolist() for one, row in zip(made, rates, strict=True)
    )


def run(stream: WriteRateStream, season: float | None) -> SimulationRun:
    return run_live(parse_contender("steady"), stream, SETUP, LiveSettings(season=season))


@pytest.mark.parametrize(("delta", "seed"), [(15, 2), pytest.param(25, 3, marks=pytest.mark.slow)])
def test_random_walks_cost_no_more(delta: float, seed: int) -> None:
    """The gate stays closed where nothing returns: consumers and moves are at most 1 % more."""
    walk = RandomWalk(delta, 20, 200).generate_stream(np.random.default_rng(seed))
    plain, forecast = run(walk, None), run(walk, 60 * SETUP.tick)
    assert forecast.consumers.sum() <= 1.01 * plain.consumers.sum()
    assert forecast.r_score.sum() <= 1.01 * plain.r_score.sum()
    assert forecast.late.sum() <= 1.01 * plain.late.sum()


def test_a_daily_wave_is_less_late() -> None:
    """Half the late traffic or less, on no more consumers, once two days have passed."""
    load = ZipfLoad(20, 360, day=60, wave=0.8, load=0.4, noise=0.01)
    stream = load.generate_stream(np.random.default_rng(4))
    plain, forecast = run(stream, None), run(stream, 60 * SETUP.tick)
    assert plain.late[125:].sum() > 0
    assert forecast.late[125:].sum() <= 0.5 * plain.late[125:].sum()
    assert forecast.consumers.sum() <= 1.01 * plain.consumers.sum()
