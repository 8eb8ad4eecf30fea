"""Seasons in the decision topic: what a record keeps, what is refused, and when one is written."""

import logging
from dataclasses import replace

import numpy as np
import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.common.errors import InvalidPayloadError
from trimtab.sidecar.measurement.load_forecast import LoadForecaster, SeasonChunk
from trimtab.sidecar.records.season_record import (
    SEASON_SLOTS,
    SeasonArchive,
    SeasonRecord,
    build_season_archive,
    build_season_record,
)
from trimtab.sidecar.settings.settings import load_settings

A, C, U = TopicPartition("t", 0), TopicPartition("t", 2), TopicPartition("u", 1)
RATES = np.array([[1e6, np.nan, 0.0], [2.5e6, 3.0, 7e-3]])
CHUNK = SeasonChunk(300.0, 24 * 7 + 3, (A, C, U), RATES)
UNIT = "bytes as written, by offsets"
SEASON, INTERVAL = 600.0, 10.0


def test_a_record_keeps_the_rates_of_its_bins() -> None:
    """Within a thousandth of each, or a millionth of the largest; absent partitions stay absent."""
    made = build_season_record("g", UNIT, CHUNK)
    read = SeasonRecord.decode(made.encode())
    assert read == made
    assert (read.slot, read.key) == (7, '["g", "season", 7]')
    chunk = read.read_chunk()
    known = [chunk.columns.index(column) for column in CHUNK.columns]
    assert chunk.rates[:, known] == pytest.approx(RATES, rel=1e-3, abs=2.5, nan_ok=True)
    assert np.isnan(chunk.rates[:, chunk.columns.index(TopicPartition("t", 1))]).all()
    assert (chunk.bin_s, chunk.first) == (300.0, CHUNK.first)


def test_the_sum_of_a_large_group_is_kept() -> None:
    """It has no partition."""
    chunk = SeasonChunk(300.0, 0, (None,), np.array([[5e9]]))
    read = build_season_record("g", UNIT, chunk).read_chunk()
    assert (read.columns, read.rates.tolist()) == ((None,), [[5e9]])


def test_a_group_has_a_ring_of_keys() -> None:
    """Seven seasons of the most bins, of which neither the first nor the last chunk is full."""
    keys = {build_season_record("g", UNIT, replace(CHUNK, first=n)).key for n in range(24 * 300)}
    assert len(keys) == SEASON_SLOTS


@pytest.mark.parametrize(
    "bad",
    [
        {"rates": {"t": "%"}},
        {"rates": {"t": "AAA="}},
        {"rates": {"t": "AAAAAAAAAAA="}, "bins": 3},
        {"rates": {"t": "AHwAAA=="}},  # infinite
        {"rates": {"t": "ALwAAA=="}},  # negative
        {"rates": {"": "AAAAAAAAAAA="}},  # two sums
        {"bins": 25},
        {"bins": 0},
        {"first": -1},
        {"scale": 0.0},
        {"bin_s": 0.0},
    ],
)
def test_rates_that_cannot_be_read_are_refused(bad: dict[str, object]) -> None:
    """By the error that lets readers skip a record alone."""
    broken = replace(build_season_record("g", UNIT, CHUNK), **bad)
    with pytest.raises(InvalidPayloadError, match="season of g"):
        SeasonRecord.decode(broken.encode())


def measure(
    forecaster: LoadForecaster, archive: SeasonArchive, begin: float, bins: int
) -> list[SeasonRecord]:
    """Iterate for so many bins; return what is to be written."""
    written: list[SeasonRecord] = []
    for number in range(bins):
        at = begin + number * INTERVAL
        forecaster.forecast_load(at, {A: PartitionLoad(bytes_per_s=100.0)}, None)
        archive.exchange(forecaster)
        if (record := archive.take_record()) is not None:
            written.append(record)
    return written


def test_nothing_is_written_before_the_topic_was_read() -> None:
    """A new process would replace the first bins of a chunk by none."""
    first, forecaster = SeasonArchive("g", UNIT), LoadForecaster(SEASON, INTERVAL)
    assert measure(forecaster, first, 0.0, 3) == []
    first.restore(())
    written = measure(forecaster, first, 3 * INTERVAL, 27)
    assert [(record.slot, record.bins) for record in written] == [
        *((0, bins) for bins in range(4, 25)),
        *((1, bins) for bins in range(1, 7)),
    ]
    second, restarted = SeasonArchive("g", UNIT), LoadForecaster(SEASON, INTERVAL)
    second.restore((written[20], written[-1]))
    assert [(r.slot, r.bins) for r in measure(restarted, second, 30 * INTERVAL, 1)] == [(1, 7)]
    second.restore((written[20], written[-1]))
    assert measure(restarted, second, 30 * INTERVAL + 1, 1) == [], "no bin has ended"


def test_a_record_that_could_not_be_written_is_kept() -> None:
    """Until it is written, or a newer one of its chunk takes its place."""
    archive, forecaster = SeasonArchive("g", UNIT), LoadForecaster(SEASON, INTERVAL)
    archive.restore(())
    *_, failed = measure(forecaster, archive, 0.0, 3)
    archive.give_back(failed)
    assert archive.take_record() == failed
    archive.give_back(failed)
    (newer,) = measure(forecaster, archive, 3 * INTERVAL, 1)
    assert (newer.slot, newer.bins) == (failed.slot, failed.bins + 1)
    archive.give_back(newer)
    archive.give_back(failed)
    assert archive.take_record() == newer
    assert archive.take_record() is None


@pytest.mark.parametrize(
    "other", [{"unit": "sum(cpu)"}, {"unit": "offsets + 0 B a record"}, {"bin_s": 300.0}]
)
def test_seasons_of_other_settings_are_learned_anew(
    other: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    """A warning names what the settings ask for."""
    caplog.set_level(logging.INFO)
    record = replace(build_season_record("g", UNIT, replace(CHUNK, bin_s=INTERVAL, first=0)), **other)
    archive, forecaster = SeasonArchive("g", UNIT), LoadForecaster(SEASON, INTERVAL)
    archive.restore((record,))
    measure(forecaster, archive, 50.0, 1)
    text = f"group g: no recorded season is in {UNIT} and has bins of 10 s: it is learned anew"
    assert [(one.levelname, one.getMessage()) for one in caplog.records] == [("WARNING", text)]
    archive.restore((replace(record, unit=UNIT, bin_s=INTERVAL),))
    measure(forecaster, archive, 60.0, 1)
    assert caplog.messages[1:] == ["group g: 2 bins of earlier seasons restored"]


def test_only_a_season_is_recorded() -> None:
    """Without the setting there is no archive; what weighs tells the unit."""
    values = {"bootstrap": "b:1", "group": "g", "capacity": 1}
    assert build_season_archive(load_settings(None, values)) is None
    assert build_season_archive(load_settings(None, {**values, "season": "1 d"})) is not None
