"""Measured write rates and backlogs of a topic, as published to the write-rate topic."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Self

from trimtab.common.control_topics import versioned_json
from trimtab.common.errors import InvalidPayloadError


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """Measurement of one partition; None where unknown."""

    bytes_per_s: float | None = None
    records_per_s: float | None = None
    backlog_bytes: float | None = None
    backlog_records: int | None = None
    required_bytes_per_s: float | None = None  # write rate plus the partition's share of catching up
    stddev_bytes_per_s: float | None = None  # of the write rate between decisions

    @property
    def weight(self) -> float | None:
        """Bytes/s that a placement counts: the required rate if known, else the write rate."""
        return self.bytes_per_s if self.required_bytes_per_s is None else self.required_bytes_per_s


@dataclass(frozen=True, slots=True)
class TopicWriteRates:
    """Write rates of one topic, measured over `window` seconds up to `time`."""

    group: str
    topic: str
    time: float  # seconds since the epoch
    window: float
    source: str
    partitions: Mapping[int, PartitionLoad]

    @property
    def key(self) -> str:
        """Record key."""
        return json.dumps([self.group, self.topic])  # both names may hold any separator

    def encode(self) -> bytes:
        """Return the record value; equal values give equal bytes."""
        body = asdict(self)
        body["partitions"] = {str(p): asdict(s) for p, s in sorted(self.partitions.items())}
        return versioned_json.encode_control_value(body)

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """Read a record value. Raises InvalidPayloadError."""
        body = versioned_json.decode_control_value(value, "write rates")
        try:
            loads = body["partitions"].items()
            body["partitions"] = {int(p): versioned_json.build_dataclass(PartitionLoad, s) for p, s in loads}
            rates = versioned_json.build_dataclass(cls, body)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise InvalidPayloadError(f"write rates are malformed: {error}") from error
        _check_write_rates(rates)
        return rates


def _check_write_rates(rates: TopicWriteRates) -> None:
    versioned_json.check_text("group, topic or source of write rates", rates.group, rates.topic, rates.source)
    for number, load in rates.partitions.items():
        for name, figure in asdict(load).items():
            if figure is not None:
                versioned_json.check_non_negative(f"{name} of {rates.topic}-{number}", figure)
    versioned_json.check_non_negative(f"time of {rates.topic}", rates.time)
