"""Measured write rates and backlogs of a topic, as published to the write-rate topic."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from trimtab.common.control_topics import versioned_json
from trimtab.common.control_topics.number_ranges import Count, Figure, Int32, Timestamp

CERTAIN_DEVIATIONS: Final = 2.0  # beyond them a rate lies by chance in one of 40 windows


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """Measurement of one partition; None where unknown."""

    bytes_per_s: Figure | None = None
    records_per_s: Figure | None = None
    backlog_bytes: Figure | None = None
    backlog_records: Count | None = None
    required_bytes_per_s: Figure | None = None  # write rate plus the partition's share of catching up
    stddev_bytes_per_s: Figure | None = None  # of the write rate between decisions
    error_bytes_per_s: Figure | None = None  # standard error of the write rate: sizes are estimated

    @property
    def least_bytes_per_s(self) -> float:
        """Bytes/s that the write rate certainly has, for a while: without its error and its changes."""
        noise = math.hypot(self.error_bytes_per_s or 0.0, self.stddev_bytes_per_s or 0.0)
        return max(0.0, (self.bytes_per_s or 0.0) - CERTAIN_DEVIATIONS * noise)

    @property
    def weight(self) -> float | None:
        """Bytes/s that a placement counts: the required rate if known, else the write rate."""
        return self.bytes_per_s if self.required_bytes_per_s is None else self.required_bytes_per_s


@dataclass(frozen=True, slots=True)
class TopicWriteRates:
    """Write rates of one topic, measured over `window` seconds up to `time`."""

    group: str
    topic: str
    time: Timestamp  # seconds since the epoch
    window: Figure
    source: str
    partitions: Mapping[Int32, PartitionLoad]

    @property
    def key(self) -> str:
        """Record key."""
        return json.dumps([self.group, self.topic])  # both names may hold any separator

    def encode(self) -> bytes:
        """Return the record value; equal values give equal bytes."""
        return versioned_json.encode_control_value(versioned_json.list_fields(self))

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """Read a record value. Raises InvalidPayloadError."""
        return versioned_json.decode_control_value(cls, value, "write rates")
