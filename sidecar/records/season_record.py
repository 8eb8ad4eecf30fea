"""Seasons of the load forecast in the decision topic: a sidecar that starts goes on with those of before.

1. A record has up to `CHUNK_BINS` bins. It is written again whenever one of them ends, so that a sidecar that
   was killed loses the bin that filled. A group has a ring of `SEASON_SLOTS` keys.
2. Rates are multiples of `scale` as half floats in Base64, bin by bin; a topic's partitions are in the order
   of their numbers. The topic "" is the sum of a large group.
3. A record that could not be written is kept for the next try, unless a newer one takes its key.
4. Nothing is written before the topic's records were read, else a new process would write a chunk without its
   first bins.
5. Records of other bins, or in another unit, are not used: the season is learned anew, and a warning says so.
"""

import json
import logging
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from threading import Lock
from typing import Annotated, Final

import numpy as np

from trimtab.assignor.model import FloatArray, TopicPartition
from trimtab.common.control_topics.number_ranges import LEAST_DIVISOR, Count, NumberRange, PositiveFigure
from trimtab.common.control_topics.versioned_json import decode_control_value, encode_control_value
from trimtab.common.errors import InvalidPayloadError
from trimtab.common.units import format_count
from trimtab.sidecar.measurement.load_forecast import (
    CHUNK_BINS,
    MAX_BINS,
    Column,
    LoadForecaster,
    SeasonChunk,
)
from trimtab.sidecar.measurement.seasonal_forecast import SEASONS
from trimtab.sidecar.records.sample_record import SEASON_KEY_KIND
from trimtab.sidecar.settings.settings import SidecarSettings

log = logging.getLogger("trimtab.sidecar")

SEASON_SLOTS: Final = SEASONS * MAX_BINS // CHUNK_BINS + 2  # neither the first nor the last one is full
RATE_TYPE: Final = "<f2"  # 0.05 %
SUM_TOPIC: Final = ""  # no topic of Kafka's has this name


@dataclass(frozen=True, slots=True)
class SeasonRecord:
    """Write rates of a group's partitions in consecutive bins."""

    group: str
    unit: str  # of the rates: bytes as written, or a query
    bin_s: PositiveFigure
    first: Count  # bins since the epoch
    bins: Annotated[int, NumberRange(ge=1, le=CHUNK_BINS)]
    scale: PositiveFigure
    rates: Mapping[str, str]  # by topic

    @property
    def slot(self) -> int:
        """Its place in the ring."""
        return self.first // CHUNK_BINS % SEASON_SLOTS

    @property
    def key(self) -> str:
        """Key of the record in the decision topic."""
        return json.dumps([self.group, SEASON_KEY_KIND, self.slot])

    def encode(self) -> bytes:
        """Return the record's value."""
        return encode_control_value(asdict(self))

    @classmethod
    def decode(cls, value: bytes) -> "SeasonRecord":
        """Read a record's value. Raises InvalidPayloadError."""
        record = decode_control_value(cls, value, "season")
        record.read_chunk()
        return record

    def read_chunk(self) -> SeasonChunk:
        """Return the rates. Raises InvalidPayloadError."""
        columns: list[Column] = []
        parts: list[FloatArray] = [np.empty((self.bins, 0))]
        for topic, text in self.rates.items():
            part = self._read_rates(topic, text)
            parts.append(part)
            numbers = range(part.shape[1])
            columns += [TopicPartition(topic, n) if topic != SUM_TOPIC else None for n in numbers]
        return SeasonChunk(self.bin_s, self.first, tuple(columns), np.concatenate(parts, axis=1))

    def _read_rates(self, topic: str, text: str) -> FloatArray:
        name = f"season of {self.group}: rates of {topic!r}"
        try:
            rates = np.frombuffer(b64decode(text, validate=True), RATE_TYPE).reshape(self.bins, -1)
        except ValueError as error:
            raise InvalidPayloadError(f"{name}: {error}") from None
        if (rates < 0).any() or np.isinf(rates).any() or (topic == SUM_TOPIC and rates.shape[1] != 1):
            raise InvalidPayloadError(f"{name}: not {self.bins} bins of finite rates")
        return np.where(np.isnan(rates), np.nan, rates).astype(np.float64) * self.scale  # one kind of NaN


def build_season_record(group: str, unit: str, chunk: SeasonChunk) -> SeasonRecord:
    """Return the record of a chunk."""
    scale = max(float(np.nanmax(chunk.rates, initial=0.0)), LEAST_DIVISOR)
    names = [(SUM_TOPIC, 0) if column is None else column for column in chunk.columns]
    widths = {topic: number + 1 for topic, number in names}  # columns are sorted: the last one counts
    tables = {topic: np.full((len(chunk.rates), width), np.nan) for topic, width in widths.items()}
    for (topic, number), rates in zip(names, (chunk.rates / scale).T, strict=True):
        tables[topic][:, number] = rates
    encoded = {t: b64encode(table.astype(RATE_TYPE).tobytes()).decode() for t, table in tables.items()}
    return SeasonRecord(group, unit, chunk.bin_s, chunk.first, len(chunk.rates), scale, encoded)


class SeasonArchive:
    """Hands chunks from the control loop to the recorder's thread, and those of before the start back."""

    def __init__(self, group: str, unit: str) -> None:
        self._group = group
        self._unit = unit
        self._restored: Sequence[SeasonRecord] | None = None
        self._is_read = False  # rule 4
        self._offered = 0  # number after that of the last bin
        self._changing = Lock()
        self._pending: dict[int, SeasonRecord] = {}  # by slot, the oldest first

    def restore(self, records: Sequence[SeasonRecord]) -> None:
        """Take what the topic has; the recorder's thread calls this."""
        self._restored = records

    def take_record(self) -> SeasonRecord | None:
        """Return a record to write; None if there is none. The recorder's thread calls this."""
        with self._changing:
            return self._pending.pop(next(iter(self._pending))) if self._pending else None

    def give_back(self, record: SeasonRecord) -> None:
        """Keep a record that could not be written (rule 3)."""
        with self._changing:
            self._pending.setdefault(record.slot, record)

    def exchange(self, forecaster: LoadForecaster) -> None:
        """Restore what was read, and offer the last chunk if a bin has ended; the loop calls this."""
        if (restored := self._restored) is not None:
            self._restored = None
            self._restore(forecaster, restored)
            self._is_read = True
        chunk = forecaster.build_chunk() if self._is_read else None
        if chunk is not None and chunk.list_numbers().stop != self._offered:
            self._offered = chunk.list_numbers().stop
            record = build_season_record(self._group, self._unit, chunk)
            with self._changing:
                self._pending[record.slot] = record

    def _restore(self, forecaster: LoadForecaster, records: Iterable[SeasonRecord]) -> None:
        terms = self._unit, forecaster.bin_s
        fitting = [record for record in records if (record.unit, record.bin_s) == terms]
        if records and not fitting:  # rule 5
            text = "group %s: no recorded season is in %s and has bins of %g s: it is learned anew"
            log.warning(text, self._group, *terms)
        if count := forecaster.restore(record.read_chunk() for record in fitting):
            log.info("group %s: %s of earlier seasons restored", self._group, format_count(count, "bin"))


def build_season_archive(settings: SidecarSettings) -> SeasonArchive | None:
    """Return the archive of a group's seasons; None without the setting `season`."""
    if settings.season is None:
        return None
    # without the cost of records: bins are of bytes as written (`load_forecast`, rule 6)
    unit = settings.weight_query or f"bytes as written, by {settings.load_source}"
    return SeasonArchive(settings.group, unit)
