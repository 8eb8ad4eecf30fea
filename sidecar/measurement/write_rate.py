"""Computes write rates and backlog from log readings, and defines what counts as known.

1. A rate is (last - first) / time over the readings in a sliding window (section V-A of "Kafka
   Consumer Group Autoscaler").
2. Only the unbroken run up to the newest reading counts. A missing reading, or one below its
   predecessor (retention, compaction, a recreated topic, another leader), breaks the run. After a
   pause longer than the window the reading before the pause counts until others do.
3. A run shorter than `min_span_s` seconds gives unknown. Unknown is None, never 0.
4. Bytes and records are offsets x what an offset is (`record_sizes`): of unknown size they are unknown, but
   0 offsets are 0 bytes. Each record weighs `weights.record` bytes beyond its own, and these as `weights`
   tells, in all rates and backlogs.
5. A backlog counts from the group's commit to what can be read: an open transaction ends it. A vanished
   commit (expired or deleted) makes it unknown until the next one.
6. In a `kmq` queue messages in flight are part of the backlog; if the sum is 0, but the in-flight
   count is inexact, the backlog is unknown (`queue_backlog`).
7. Consumption is the growth of committed offsets, over a window long enough for batches.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.common.lag import compute_lag
from trimtab.sidecar.measurement.record_sizes import LogReading, RecordSize, RecordSizes
from trimtab.sidecar.model.queue_backlog import InFlightMessages
from trimtab.sidecar.model.record_weights import BYTES_ALONE, RecordWeights


@dataclass(frozen=True, slots=True)
class CounterSample:
    """One reading of growing counters (offsets or bytes); missing answers are absent."""

    time: float  # monotonic, in seconds
    values: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """Readings of the last `length_s` seconds; a rate needs a run of `min_span_s` seconds."""

    length_s: float
    min_span_s: float
    samples: tuple[CounterSample, ...] = ()
    min_spacing_s: float = 0.0  # keeps long windows of thousands of partitions small

    def add_sample(self, sample: CounterSample) -> "SlidingWindow":
        """Append a reading and drop those that are too old."""
        kept = [s for s in self.samples if s.time >= sample.time - self.length_s]
        if not kept or sample.time - kept[0].time < self.min_span_s:
            # Keep one old reading: a slow iteration must not make rates unknown.
            kept = [*self.samples[-1 - len(kept) :]]
        if len(kept) > 1 and kept[-1].time - kept[-2].time < self.min_spacing_s:
            kept.pop()  # only now: the newest reading is needed until the next one
        return replace(self, samples=(*kept, sample))

    def compute_rates(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, float | None]:
        """Return units/s of each partition (rules 1 to 3)."""
        return {p: self._compute_rate(p) for p in partitions}

    def _compute_rate(self, partition: TopicPartition) -> float | None:
        if not self.samples:
            return None
        last = self.samples[-1].values.get(partition)
        first, since = last, self.samples[-1].time
        for sample in reversed(self.samples):
            value = sample.values.get(partition)
            if value is None or first is None or value > first:  # the run is broken (rule 2)
                break
            first, since = value, sample.time
        span = self.samples[-1].time - since
        if last is None or first is None or span <= 0 or span < self.min_span_s:
            return None
        return (last - first) / span


@dataclass(frozen=True, slots=True)
class OffsetReadings:
    """Readings of one iteration; missing answers are absent, or None for a whole map."""

    partitions: tuple[TopicPartition, ...]
    end_offsets: Mapping[TopicPartition, int]
    beginning_offsets: Mapping[TopicPartition, int]
    committed_offsets: Mapping[TopicPartition, int] | None
    reset_to_earliest: bool = True  # auto.offset.reset: without a commit all records are unread, or none
    log_sizes: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])  # of leaders
    leaders: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    # Last stable offsets of partitions with transactions: nothing beyond can be read yet.
    stable_offsets: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    in_flight: Mapping[TopicPartition, InFlightMessages] | None = None  # `kmq` only
    commit_metadata: Mapping[TopicPartition, str] = field(default_factory=dict[TopicPartition, str])

    def get_readable_end(self, partition: TopicPartition) -> int | None:
        """Return the offset after the last one that can be read; None if it is unknown."""
        end, stable = self.end_offsets.get(partition), self.stable_offsets.get(partition)
        if end is None or stable is None:
            return end
        committed = (self.committed_offsets or {}).get(partition, 0)
        return end if committed > stable else min(end, stable)  # the group reads uncommitted records, too

    def list_logs(self, time: float) -> dict[TopicPartition, LogReading]:
        """Return the logs of which all is known."""
        ends, begins = self.end_offsets, self.beginning_offsets
        return {
            p: LogReading(time, self.leaders.get(p, 0), begins[p], ends[p], size)
            for p, size in self.log_sizes.items()
            if p in ends and p in begins
        }


def compute_backlog(readings: OffsetReadings, partition: TopicPartition) -> int | None:
    """Return the records not yet committed; None if an offset is unknown."""
    end = readings.get_readable_end(partition)
    if end is None or readings.committed_offsets is None:
        return None
    begin = readings.beginning_offsets.get(partition)
    committed = readings.committed_offsets.get(partition)
    if begin is None and committed is None and readings.reset_to_earliest:
        return None
    # From the beginning offset: records deleted by retention do not count.
    return compute_lag(end, committed, begin or 0, from_beginning=readings.reset_to_earliest)


@dataclass(frozen=True, slots=True)
class WriteRateMeter:
    """State between iterations: windows of readings and record sizes."""

    end_offset_window: SlidingWindow
    commit_window: SlidingWindow | None = None  # None if consumption is not measured
    record_sizes: RecordSizes = field(default_factory=RecordSizes)
    weights: RecordWeights = BYTES_ALONE
    ever_committed: frozenset[TopicPartition] = frozenset()  # partitions with a commit at any time

    def add_readings(self, time: float, readings: OffsetReadings) -> "WriteRateMeter":
        """Return the meter with readings added."""
        committed = readings.committed_offsets or {}
        commits = self.commit_window
        sizes = self.record_sizes.add_log_sizes(time, readings.list_logs(time))
        existing = committed.keys() | set(readings.partitions or self.ever_committed)
        ever = self.ever_committed
        if not committed.keys() <= ever <= existing:  # rare: no copy of a large set
            ever = (ever & existing) | committed.keys()
        return replace(
            self,
            end_offset_window=self.end_offset_window.add_sample(CounterSample(time, readings.end_offsets)),
            commit_window=commits and commits.add_sample(CounterSample(time, committed)),
            ever_committed=ever,
            record_sizes=sizes.forget_missing(existing) if readings.partitions else sizes,
        )

    def measure_partitions(self, readings: OffsetReadings) -> dict[TopicPartition, PartitionLoad]:
        """Return write rate and backlog of every partition of the readings."""
        offsets = self.end_offset_window.compute_rates(readings.partitions)
        sizes = self.estimate_record_sizes(readings)
        measured: dict[TopicPartition, PartitionLoad] = {}
        for p in readings.partitions:
            size = sizes.get(p)
            density = 1.0 if size is None else size.records
            unread = self._compute_backlog(readings, p)
            backlog = _add_in_flight(None if unread is None else math.ceil(unread * density), readings, p)
            rate = self._weigh_offsets(offsets[p], size)
            measured[p] = PartitionLoad(
                bytes_per_s=rate,
                records_per_s=_multiply(offsets[p], density),
                backlog_bytes=self._weigh_records(backlog, size),
                backlog_records=backlog,
                error_bytes_per_s=(rate * size.error or None) if rate and size else None,
            )
        return measured

    def compute_consumption_rates(self, readings: OffsetReadings) -> dict[TopicPartition, float]:
        """Return the committed bytes/s of each partition; unknown ones are absent."""
        if self.commit_window is None:
            return {}
        sizes, rates = (
            self.estimate_record_sizes(readings),
            self.commit_window.compute_rates(readings.partitions),
        )
        by_partition = ((p, self._weigh_offsets(rate, sizes.get(p))) for p, rate in rates.items())
        return {p: rate for p, rate in by_partition if rate is not None}

    def _compute_backlog(self, readings: OffsetReadings, partition: TopicPartition) -> int | None:
        known = readings.committed_offsets is None or partition in readings.committed_offsets
        if not known and partition in self.ever_committed:
            return None  # rule 5: auto.offset.reset would make it the whole log, or nothing
        return compute_backlog(readings, partition)

    # The one place of the weights: whatever is counted in offsets or records is counted by these.
    def _weigh_offsets(self, offsets: float | None, size: RecordSize | None) -> float | None:
        byte, record = self.weights
        return _multiply(offsets, None if size is None else byte * size.bytes + record * size.records)

    def _weigh_records(self, records: float | None, size: RecordSize | None) -> float | None:
        weight = self._weigh_offsets(1.0, size)
        return _multiply(records, None if size is None or weight is None else weight / (size.records or 1.0))

    def weigh_bytes(self, readings: OffsetReadings) -> dict[TopicPartition, float]:
        """Return what a byte weighs with its part of a record, by partition; absent ones weigh 1."""
        byte, record = self.weights
        if not record:
            return {}
        sizes = self.estimate_record_sizes(readings)
        return {p: byte + record * size.records / size.bytes for p, size in sizes.items() if size.bytes}

    def estimate_record_sizes(self, readings: OffsetReadings) -> dict[TopicPartition, RecordSize]:
        """Return what an offset of each partition is; unknown ones are absent."""
        return self.record_sizes.estimate_sizes(readings.partitions)


def _add_in_flight(backlog: int | None, readings: OffsetReadings, partition: TopicPartition) -> int | None:
    if backlog is None or readings.in_flight is None:
        return backlog
    in_flight = readings.in_flight.get(partition, InFlightMessages())
    total = backlog + in_flight.in_flight_count
    if total == 0 and not in_flight.is_exact:
        return None  # rule 6
    return total


def _multiply(count: float | None, size: float | None) -> float | None:
    if not count:
        return count  # 0 offsets are 0 bytes, whatever their size (rule 4)
    return None if size is None else count * size
