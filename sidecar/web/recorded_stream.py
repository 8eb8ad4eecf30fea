"""The recorded write rates of a group as a stream for the simulation, and what happened meanwhile. Pure.

1. A sample has a byte for each partition, in the order of the names: rate ÷ capacity on the scale of
   `quantize_load`, to 2 %, `UNKNOWN_LOAD`, or `ABSENT` for a partition that does not exist.
2. Ticks are as far apart as the samples usually are. A missing sample repeats the one before.
3. An unknown rate is the last known one, before the first known one that one.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from trimtab.assignor.analysis.streams.stream import WriteRateStream
from trimtab.assignor.model import FloatArray, TopicPartition
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.web.sample import (
    FULL_STEP,
    STEPS_PER_DOUBLING,
    UNKNOWN_LOAD,
    HistorySample,
    quantize_load,
)

ABSENT: Final = UNKNOWN_LOAD - 1
UNKNOWN_RATE: Final = -1.0  # decoded
MAX_TICKS: Final = 36_000  # an hour in steps of 0.1 s; times of recorded samples may be any
MIN_TICKS: Final = 3  # a stream has a first decision, and ticks in which it has effects


@dataclass(frozen=True, slots=True)
class RecordedStream:
    """A recorded stream, and what the group cost while it was recorded."""

    begin: float  # seconds since the epoch
    tick: float  # seconds
    stream: WriteRateStream
    consumers: tuple[int | None, ...]  # running at each tick
    moves: int
    moved_consumers: float  # moved load ÷ capacity: the R-score
    rebalances: int  # samples with moves
    late_ticks: int  # with overdue backlog
    pause: float | None  # median of the measured handovers, seconds; None without one

    @property
    def seconds(self) -> float:
        """Length of the stream."""
        return self.tick * len(self.consumers)

    @property
    def consumer_hours(self) -> float:
        """Consumer-hours, where the count is known."""
        return sum(n for n in self.consumers if n is not None) * self.tick / 3600


def encode_rates(
    table: Mapping[TopicPartition, int], loads: Mapping[TopicPartition, PartitionLoad], capacity: float
) -> bytes:
    """Return the write rates of the table's partitions (rule 1)."""
    known = (loads.get(partition) for partition in table)
    return bytes(ABSENT if load is None else _encode_rate(load.bytes_per_s, capacity) for load in known)


def _encode_rate(rate: float | None, capacity: float) -> int:
    code = quantize_load(rate, capacity)
    return code if code == UNKNOWN_LOAD else min(code, ABSENT - 1)


def build_recorded_stream(
    partitions: Sequence[TopicPartition], samples: Sequence[HistorySample], capacity: float
) -> RecordedStream | None:
    """Return the stream of the samples that have rates; None if they are too few or nothing is known."""
    recorded = [sample for sample in samples if sample.rates]
    if len(recorded) < MIN_TICKS:
        return None
    times = np.array([sample.time for sample in recorded])
    tick = float(np.median(np.diff(times)))
    if tick <= 0 or times[-1] - times[0] > MAX_TICKS * tick:
        return None
    chosen = _select_samples(times, tick)
    rates = _fill_unknown(_stack_rates([recorded[n] for n in chosen], len(partitions)))
    known = [bool(np.isfinite(column).any()) for column in rates.T]
    if not any(known):
        return None
    order = [n for n in sorted(range(len(partitions)), key=partitions.__getitem__) if known[n]]
    stream = WriteRateStream(tuple(partitions[n] for n in order), rates[:, order] * capacity)
    metrics = [json.loads(recorded[n].text)["metrics"] for n in chosen]
    # restored decisions have moves, and no rates
    facts: list[dict[str, Any]] = [json.loads(one.text) for one in samples if one.time >= times[0]]
    pauses = [seconds for one in facts for *_, seconds in one.get("handovers", ())]
    return RecordedStream(
        begin=float(times[0]),
        tick=tick,
        stream=stream,
        consumers=tuple(one.get("running_replicas") for one in metrics),
        moves=sum(one["moved"] for one in facts),
        moved_consumers=sum(one["moved_rate"] / one["capacity"] for one in facts),
        rebalances=sum(bool(one["moved"]) for one in facts),
        late_ticks=sum(bool(one.get("overdue_backlog_bytes")) for one in metrics),
        pause=float(np.median(pauses)) if pauses else None,
    )


def _select_samples(times: FloatArray, tick: float) -> list[int]:
    """Return for each tick the newest sample that is not later than half a tick after it."""
    count = round(float(times[-1] - times[0]) / tick) + 1
    middles = times[0] + tick * (np.arange(count) + 0.5)
    selected: list[int] = (np.searchsorted(times, middles) - 1).tolist()
    return selected


def _stack_rates(samples: Sequence[HistorySample], count: int) -> FloatArray:
    codes = np.full((len(samples), count), ABSENT, dtype=np.uint8)
    for row, sample in enumerate(samples):
        codes[row, : len(sample.rates)] = np.frombuffer(sample.rates, dtype=np.uint8)
    return _build_decoding_table()[codes]


def _build_decoding_table() -> FloatArray:
    rates = 2.0 ** ((np.arange(UNKNOWN_LOAD + 1) - FULL_STEP) / STEPS_PER_DOUBLING)
    rates[0], rates[ABSENT], rates[UNKNOWN_LOAD] = 0.0, np.nan, UNKNOWN_RATE
    return rates


def _fill_unknown(rates: FloatArray) -> FloatArray:
    for column in rates.T:
        unknown = column == UNKNOWN_RATE
        known = np.flatnonzero(column >= 0)
        if not len(known):
            column[unknown] = np.nan
            continue
        before = np.maximum(np.searchsorted(known, np.flatnonzero(unknown)) - 1, 0)
        column[unknown] = column[known[before]]
    return rates
