"""The load forecast of the sidecar: bins of seasons, and what partitions require by them."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.measurement import load_forecast
from trimtab.sidecar.measurement.load_forecast import ForecastStatus, LoadForecaster, SeasonChunk

INTERVAL = 10.0
SEASON = 600.0
STARTUP = 30.0
A, B = TopicPartition("t", 0), TopicPartition("t", 1)
Rate = Callable[[float], float | None]


def wave(at: float) -> float:
    """Return a rate that rises and falls with the season."""
    return 100 + 60 * math.sin(2 * math.pi * at / SEASON)


def run(
    rates: Mapping[TopicPartition, Rate],
    seasons: float,
    *,
    forecaster: LoadForecaster | None = None,
    begin: float = 0.0,
    jitter: float = 0.0,
) -> tuple[float, Mapping[TopicPartition, PartitionLoad], ForecastStatus]:
    """Iterate for so many seasons; return time, loads and status of the last iteration."""
    forecaster = forecaster or LoadForecaster(SEASON, INTERVAL)
    noise = np.random.default_rng(1)
    for number in range(round(seasons * SEASON / INTERVAL)):
        at = begin + number * INTERVAL + noise.uniform(-jitter, jitter)
        seen = {p: PartitionLoad(bytes_per_s=rate(at), backlog_bytes=0.0) for p, rate in rates.items()}
        loads, status = forecaster.forecast_load(at, seen, STARTUP)
    return at, loads, status


@pytest.mark.parametrize("jitter", [0.0, 3.0])
def test_what_is_required_is_what_a_new_replica_will_meet(jitter: float) -> None:
    """After two seasons partitions require the write rate of when a replica that starts now has joined."""
    at, loads, status = run({A: wave, B: wave}, 3.3, jitter=jitter)
    assert loads[A].weight == pytest.approx(wave(at + STARTUP), abs=1 + jitter)
    assert loads[A].bytes_per_s == pytest.approx(wave(at))
    assert (status.is_used, status.by_partition, status.horizon) == (True, 2, STARTUP)
    assert status.change == pytest.approx(2 * (wave(at + STARTUP) - wave(at)), abs=2 + 2 * jitter)


def test_a_rise_is_told_of_the_time_looked_ahead() -> None:
    """While it falls: that it is not yet as low. Before a rise: its extent. Without a forecast: unknown."""
    falling, rising, early = 3.3, 3.7, 1.9
    for seasons, least, most in ((falling, 0.0, 0.05), (rising, 0.1, 0.6)):
        forecaster = LoadForecaster(SEASON, INTERVAL, look_ahead=80.0)
        _, _, status = run({A: wave, B: wave}, seasons, forecaster=forecaster)
        assert status.rise is not None
        assert least <= status.rise <= most
        assert f"at most {status.rise:.0%} more while a scale-down would wait" in status.format_line()
    assert run({A: wave}, early)[2].rise is None


def test_an_unexpected_fall_is_expected_to_end() -> None:
    """Also within a bin: the rates of this iteration are held against those of the bins before."""
    forecaster = LoadForecaster(SEASON, INTERVAL, look_ahead=80.0)
    at, _, _ = run({A: wave}, 3.3, forecaster=forecaster)
    _, status = forecaster.forecast_load(at + 1, {A: PartitionLoad(bytes_per_s=wave(at) / 2)}, STARTUP)
    assert status.rise is not None
    assert status.rise > 0.9


LOOK_AHEAD = 12.0


def forecast_season(
    monkeypatch: pytest.MonkeyPatch, rate: Callable[[float], float], startup: float = STARTUP
) -> dict[float, tuple[float, ForecastStatus]]:
    """Return a partition's load and the status by the fourth season's second, in 20 bins of 15 iterations."""
    monkeypatch.setattr(load_forecast, "MAX_BINS", 20)
    forecaster = LoadForecaster(SEASON, 2.0, look_ahead=LOOK_AHEAD)
    told = {}
    for number in range(round(4 * SEASON / 2)):
        seen = {p: PartitionLoad(bytes_per_s=rate(number * 2.0 % SEASON)) for p in (A, B)}
        loads, status = forecaster.forecast_load(number * 2.0, seen, startup)
        told[number * 2.0 - 3 * SEASON] = loads[A].weight or 0.0, status
    return {at: one for at, one in told.items() if at >= 0}


def test_a_forecast_fall_is_no_reason_before_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fall within a bin lowers the whole bin's forecast: until it comes, the load may be what it is."""
    told = forecast_season(monkeypatch, lambda at: 100.0 if at < 320 else 40.0)
    near = {at: status for at, (_, status) in told.items() if 300 <= at < 400}
    assert all(one.is_used for one in near.values())
    assert all((one.rise or 0) > 0.2 for at, one in near.items() if at < 320)
    assert near[396].rise == pytest.approx(0, abs=0.01)


def test_a_load_that_returns_is_seen_in_each_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also from the last one, whose window begins where the bin ends."""
    told = forecast_season(monkeypatch, lambda at: 60.0 if 240 <= at < 360 else 100.0)
    late = [status for at, (_, status) in told.items() if 360 - LOOK_AHEAD <= at < 360]
    assert late
    assert all(one.change > 0 or (one.rise or 0) > 0.4 for one in late)


def test_a_fall_counts_no_earlier_than_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is required is what a replica of the next iteration meets, which starts within a bin."""
    startup = 4.0
    told = forecast_season(monkeypatch, wave, startup)
    assert all(status.is_used for _, status in told.values())
    missing = [wave(at + 2 + startup) - required for at, (required, _) in told.items()]
    assert max(missing) < 2.0  # bytes/s; the wave falls by up to 19 a bin
    assert min(missing) > -20.0


def test_a_fall_that_has_come_counts_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step in the middle of a bin: before it the share that is due counts, after it nothing."""
    told = forecast_season(monkeypatch, lambda at: 100.0 if at < 315 else 10.0, 4.0)
    assert all(status.is_used for _, status in told.values())
    assert all(required >= (80 if at < 315 else 10 - 1e-9) for at, (required, _) in told.items())


def test_a_backlog_that_has_ended_may_return() -> None:
    """For as long as one looks ahead: catching up, the consumers were needed."""
    forecaster = LoadForecaster(SEASON, INTERVAL, look_ahead=20.0)
    at, _, _ = run({A: lambda _: 100.0 + _ % SEASON / 60}, 3.0, forecaster=forecaster)
    rises = {}
    for number, required in enumerate((200.0, None, None, None), start=1):
        rate = 100.0 + (at + number * INTERVAL) % SEASON / 60
        load = PartitionLoad(bytes_per_s=rate, required_bytes_per_s=required)
        rises[number] = forecaster.forecast_load(at + number * INTERVAL, {A: load}, STARTUP)[1].rise
    assert (rises[1], rises[2]) == (pytest.approx(0, abs=0.15), pytest.approx(0.95, abs=0.15))
    assert rises[4] == pytest.approx(0, abs=0.15)


def test_no_rise_is_told_after_a_start() -> None:
    """For as long as one looks ahead, and two bins: the bins before were measured by another one."""
    restarted = LoadForecaster(SEASON, INTERVAL, look_ahead=40.0)
    begin = EPOCH + 3.3 * SEASON
    restarted.forecast_load(begin, {A: PartitionLoad(bytes_per_s=wave(begin))}, STARTUP)
    restarted.restore(record({A: wave}, 3.3, EPOCH))
    known = {}
    for number in range(1, 10):
        at = begin + number * INTERVAL
        seen = {A: PartitionLoad(bytes_per_s=wave(at))}
        known[number * INTERVAL] = restarted.forecast_load(at, seen, STARTUP)[1].rise is not None
    assert known == {after: after >= 60 for after in known}


def test_no_rise_is_told_where_records_weigh() -> None:
    """A forecast of bytes in all does not tell what partitions of other weights require."""
    forecaster = LoadForecaster(SEASON, INTERVAL)
    at, _, before = run({A: wave}, 3.3, forecaster=forecaster)
    seen = {A: PartitionLoad(bytes_per_s=3 * wave(at))}
    _, status = forecaster.forecast_load(at + 1, seen, STARTUP, {A: 3.0})
    assert before.rise is not None
    assert (status.is_used, status.rise) == (True, None)


def test_nothing_is_forecast_without_two_seasons() -> None:
    """One season to learn from, and one of record."""
    at, loads, status = run({A: wave}, 1.9)
    assert loads[A].weight == pytest.approx(wave(at))
    assert (status.is_used, status.error_ratio) == (False, None)
    assert status.format_line() == "Forecast: none until two seasons have been measured"


def test_a_record_that_is_no_better_leaves_the_load_as_it_is() -> None:
    """Write rates without a season follow no forecast, and the status says why."""
    noise = np.random.default_rng(7)
    _, loads, status = run({A: lambda _: float(noise.uniform(0, 100))}, 4)
    assert loads[A].weight == loads[A].bytes_per_s
    assert not status.is_used
    assert status.error_ratio is not None
    assert status.error_ratio > 0.7
    assert "not used; over the last season its squared errors are" in status.format_line()


def test_the_season_of_many_iterations_a_bin() -> None:
    """A bin has the mean of its iterations: of a day at most `MAX_BINS` are kept."""
    forecaster = LoadForecaster(SEASON, 0.5)
    at = 0.0
    for number in range(round(3.2 * SEASON / 0.5)):
        at = number * 0.5
        loads, _ = forecaster.forecast_load(at, {A: PartitionLoad(bytes_per_s=wave(at))}, STARTUP)
    bin_s = SEASON / load_forecast.MAX_BINS
    assert loads[A].weight == pytest.approx(wave(at + STARTUP), abs=60 * 2 * math.pi * 2 * bin_s / SEASON)


def test_a_gap_in_the_measurement_repeats_what_was_measured_before() -> None:
    """The seasons stay in step over a pause of the sidecar, and over unknown rates."""
    forecaster = LoadForecaster(SEASON, INTERVAL)
    run({A: wave}, 3, forecaster=forecaster)
    run({A: lambda _: None}, 0.1, forecaster=forecaster, begin=3 * SEASON)
    at, loads, status = run({A: wave}, 2.3, forecaster=forecaster, begin=3.2 * SEASON)
    assert status.is_used
    assert loads[A].weight == pytest.approx(wave(at + STARTUP), abs=6)


def test_partitions_come_and_go() -> None:
    """A new one has no history, one that is away keeps its own, and the others' stays."""
    forecaster = LoadForecaster(SEASON, INTERVAL)
    run({B: wave}, 2.5, forecaster=forecaster)
    run({A: wave}, 0.2, forecaster=forecaster, begin=2.5 * SEASON)
    at, loads, status = run({A: wave, B: wave}, 0.6, forecaster=forecaster, begin=2.7 * SEASON)
    assert loads[B].weight == pytest.approx(wave(at + STARTUP), abs=1)
    assert loads.keys() == {A, B}
    at, loads, status = run({A: wave}, 2, forecaster=forecaster, begin=3.3 * SEASON)
    assert (loads.keys(), status.by_partition) == ({A}, 1)


def test_a_large_group_follows_its_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """All partitions change by the factor of the sum, whatever their own history."""
    monkeypatch.setattr(load_forecast, "MAX_PARTITIONS", 2)
    rates = {TopicPartition("t", n): lambda at, n=n: wave(at) * (n + 1) for n in range(3)}
    at, loads, status = run(rates, 3.3)
    for n, load in enumerate(loads.values()):
        assert load.weight == pytest.approx(wave(at + STARTUP) * (n + 1), rel=0.02)
    assert (status.by_group, status.by_partition) == (True, 0)


def test_an_unknown_load_stays_unknown() -> None:
    """A forecast adds to what is measured; it replaces no measurement."""
    forecaster = LoadForecaster(SEASON, INTERVAL)
    run({A: wave, B: wave}, 3, forecaster=forecaster)
    _, loads, _ = run({A: wave, B: lambda _: None}, 0.1, forecaster=forecaster, begin=3 * SEASON)
    assert loads[B].weight is None
    assert loads[A].weight is not None


def test_another_horizon_is_scored_by_what_it_would_have_forecast() -> None:
    """At once, from the bins that are there: a slower start-up needs no season of its own."""
    forecaster = LoadForecaster(SEASON, INTERVAL)
    at, _, status = run({A: wave}, 3, forecaster=forecaster)
    assert (status.is_used, status.horizon) == (True, STARTUP)
    seen = {A: PartitionLoad(bytes_per_s=wave(at))}
    loads, status = forecaster.forecast_load(at + 1, seen, 3 * STARTUP)
    assert (status.is_used, status.horizon) == (True, 3 * STARTUP)
    assert loads[A].weight == pytest.approx(wave(at + 3 * STARTUP), abs=2)


def test_another_horizon_of_no_season_is_not_used() -> None:
    """Its record is that of noise, too."""
    noise = np.random.default_rng(7)
    forecaster = LoadForecaster(SEASON, INTERVAL)
    at, _, _ = run({A: lambda _: float(noise.uniform(0, 100))}, 4, forecaster=forecaster)
    loads, status = forecaster.forecast_load(at + 1, {A: PartitionLoad(bytes_per_s=50.0)}, 3 * STARTUP)
    assert (loads[A].weight, status.is_used) == (50.0, False)
    assert status.error_ratio is not None


def test_the_horizon_follows_the_start_up_time() -> None:
    """It shrinks only to less than half: each horizon needs a record of its own."""
    forecaster = LoadForecaster(SEASON, INTERVAL, lag=15.0)
    startups = (None, 50.0, 20.0, 5.0, 1e9)
    told = [forecaster.forecast_load(n * INTERVAL, {}, s)[1].horizon for n, s in enumerate(startups)]
    assert told == [40.0, 70.0, 70.0, 20.0, SEASON]


def record(rates: Mapping[TopicPartition, Rate], seasons: float, begin: float) -> list[SeasonChunk]:
    """Return the chunks that a forecaster of so many seasons has recorded, the last one of each place."""
    forecaster, kept = LoadForecaster(SEASON, INTERVAL), dict[int, SeasonChunk]()
    for number in range(round(seasons * SEASON / INTERVAL)):
        at = begin + number * INTERVAL
        seen = {p: PartitionLoad(bytes_per_s=rate(at)) for p, rate in rates.items()}
        forecaster.forecast_load(at, seen, STARTUP)
        if (chunk := forecaster.build_chunk()) is not None:
            kept[chunk.first // load_forecast.CHUNK_BINS] = chunk
    return list(kept.values())


EPOCH = 1.7e9 // SEASON * SEASON


@pytest.mark.parametrize("gap", [1, 4])
@pytest.mark.parametrize("phase", [0.0, 4.0])
def test_a_restarted_forecaster_goes_on(gap: int, phase: float) -> None:
    """From its first iteration on, though its iterations come at other times and some bins are missing."""
    chunks = record({A: wave, B: wave}, 3.3, EPOCH)
    at = EPOCH + 3.3 * SEASON + gap * INTERVAL + phase
    restarted = LoadForecaster(SEASON, INTERVAL)
    seen = {p: PartitionLoad(bytes_per_s=wave(at)) for p in (A, B)}
    _, empty = restarted.forecast_load(at, seen, None)
    assert not empty.is_used
    assert restarted.restore(chunks) == round(3.3 * SEASON / INTERVAL)
    loads, status = restarted.forecast_load(at + 1, seen, STARTUP)
    assert (status.is_used, status.by_partition) == (True, 2)
    assert loads[A].weight == pytest.approx(wave(at + STARTUP), abs=6 * gap)
    at, loads, status = run({A: wave, B: wave}, 0.5, forecaster=restarted, begin=at)
    assert status.by_partition == 2
    assert loads[A].weight == pytest.approx(wave(at + STARTUP), abs=5)


def test_what_it_has_measured_itself_counts_before_what_was_recorded() -> None:
    """A standby that takes over has bins of its own, and needs only those before them."""
    own = LoadForecaster(SEASON, INTERVAL)
    at, _, _ = run({A: wave}, 1, forecaster=own, begin=EPOCH + 2 * SEASON)
    chunks = record({A: wave}, 3, EPOCH)
    assert own.restore(chunks) == 2 * SEASON / INTERVAL
    assert own.restore(chunks) == 0
    loads, status = own.forecast_load(at + 1, {A: PartitionLoad(bytes_per_s=wave(at))}, STARTUP)
    assert status.is_used
    assert loads[A].weight == pytest.approx(wave(at + STARTUP), abs=1)


def test_what_is_too_old_is_not_restored() -> None:
    """Of bins more than `SEASONS` ago nothing is forecast."""
    chunks = record({A: wave}, 2, EPOCH)
    late = LoadForecaster(SEASON, INTERVAL)
    late.forecast_load(EPOCH + 8.5 * SEASON, {A: PartitionLoad(bytes_per_s=1.0)}, STARTUP)
    assert late.restore(chunks) == 0.5 * SEASON / INTERVAL - 1  # its own first bin has ended
    later = LoadForecaster(SEASON, INTERVAL)
    later.forecast_load(EPOCH + 10 * SEASON, {A: PartitionLoad(bytes_per_s=1.0)}, STARTUP)
    assert later.restore(chunks) == 0


def test_partitions_of_before_and_after_a_restart() -> None:
    """One that is gone keeps its bins, a new one has none."""
    chunks = record({A: wave}, 3, EPOCH)
    restarted = LoadForecaster(SEASON, INTERVAL)
    at = EPOCH + 3 * SEASON
    restarted.forecast_load(at, {B: PartitionLoad(bytes_per_s=wave(at))}, STARTUP)
    restarted.restore(chunks)
    _, loads, status = run({A: wave, B: wave}, 0.1, forecaster=restarted, begin=at + INTERVAL)
    assert (loads.keys(), status.by_partition) == ({A, B}, 1)


def test_a_partition_that_had_vanished_before_is_not_restored() -> None:
    """Else each restart would keep it for as long as all seasons last."""
    chunks = []
    for chunk in record({A: wave}, 1, EPOCH):
        rates = np.column_stack([chunk.rates[:, 0], np.full(len(chunk.rates), np.nan)])
        chunks.append(replace(chunk, columns=(A, B), rates=rates))
    restarted = LoadForecaster(SEASON, INTERVAL)
    at = EPOCH + SEASON
    restarted.forecast_load(at, {A: PartitionLoad(bytes_per_s=wave(at))}, STARTUP)
    assert restarted.restore(chunks)
    run({A: wave}, 0.1, forecaster=restarted, begin=at + INTERVAL)
    chunk = restarted.build_chunk()
    assert chunk is not None
    assert chunk.columns == (A,)
