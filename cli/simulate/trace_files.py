"""Traces of real traffic: CSV files with the columns time, partition and bytes_per_s."""

import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np

from trimtab.assignor.analysis.streams.resampling import RateSamples
from trimtab.assignor.analysis.streams.stream import MAX_BYTES_PER_S
from trimtab.assignor.model import TopicPartition
from trimtab.common.errors import CallerError, InvalidStreamError, SettingError

CSV_COLUMNS: Final = ("time", "partition", "bytes_per_s")
OWN_TOPIC: Final = "trace"  # of a partition without a topic
MIN_TIME, MAX_TIME = (
    datetime(1970, 1, 1, tzinfo=UTC).timestamp(),
    datetime(9999, 1, 1, tzinfo=UTC).timestamp(),
)


def read_csv_trace(file: Path) -> dict[TopicPartition, RateSamples]:
    """Return the samples of a user's file, in bytes/s. Raises InvalidStreamError, SettingError."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            return collect_samples(_iter_csv_samples(csv.reader(lines)))
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


def collect_samples(
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
