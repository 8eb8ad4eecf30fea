"""Estimates the bytes that a reader gets for an offset, from growth of logs and sampled batches. Pure.

1. The leader's log grows by what is written: its growth / the offsets written are the *log bytes* of an
   offset, exact for any distribution of sizes. An interval in which the log shrank, its beginning moved
   (retention) or its leader changed does not count.
2. The last window is exact, but few large records in it vary; the mean of the last minutes is steady, but
   late. The estimate is the middle of the two, half as wrong as the worse one. If all of a window lies to
   one side of the past, and by more than chance explains, sizes have changed: the past is forgotten.
3. Samples tell how bytes read follow from log bytes: a regression over batches, through their means. It
   covers compression, headers of batches, markers and aborted transactions (of which a reader gets nothing),
   and topics in which large and small records compress differently. Partitions share what their topic has
   learned, until they have samples of their own. Batches that all refute it, as after a change of
   compression, make it forget its past.
4. *Density* is the share of offsets that a reader gets: no markers, aborted records, or holes of compaction.
5. Without growth (no right to describe the cluster) the sampled mean counts, with its larger error.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.number_ranges import Count, Figure
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.common.units import format_count

MEMORY_S: Final = 300.0  # of the past growth
SAMPLE_MEMORY: Final = 0.9  # of the past batches, when a partition is sampled again
TOPIC_OFFSETS: Final = 500.0  # sampled offsets that a partition's own samples weigh as much as its topic's
SLOPE_PRIOR: Final = 0.05  # relative variance of log bytes below which bytes read are in proportion to them
LEAST_REFUTING: Final = 4  # batches: of fewer, those of one of two producers may be drawn by chance
REFUTING_CHANGE: Final = 0.25
LEAST_PAST: Final = 6  # intervals from which chance is judged
CHANGE_DEVIATIONS: Final = 4.0
CHANGE_TOLERANCE: Final = 0.03  # offsets and sizes are not read at the same time


class SampledBatch(NamedTuple):
    """A record batch: what it takes on disk, and what a reader gets of it."""

    offsets: int
    log_bytes: int
    records: int
    bytes: int  # of keys, values and headers


@dataclass(frozen=True, slots=True)
class SizeStatus:
    """How the sizes of records are known."""

    measured_partitions: Count  # by the growth of their logs
    sampled_partitions: Count  # by samples alone
    error: Figure  # relative standard error of the sum of all write rates

    @classmethod
    def of_loads(cls, measured: int, loads: Collection[PartitionLoad]) -> "SizeStatus | None":
        """Return the status; None while no size is known."""
        known = [load for load in loads if load.bytes_per_s]
        if not known:
            return None
        error = math.hypot(*(load.error_bytes_per_s or 0.0 for load in known))
        return cls(
            measured, max(0, len(loads) - measured), error / sum(load.bytes_per_s or 0.0 for load in known)
        )

    def format_line(self) -> str:
        """Return how they are known, and how certainly, as one sentence."""
        error = f"standard error of the write rate {self.error:.1%}"
        if not self.sampled_partitions:
            return f"Record sizes: by the growth of the logs; {error}"
        sampled = format_count(self.sampled_partitions, "partition")
        return (
            f"Record sizes: of {sampled} by samples alone; {error}. Describe on the cluster makes them exact"
        )


class RecordSize(NamedTuple):
    """What an offset of a partition is to a reader."""

    bytes: float
    records: float = 1.0
    error: float = 0.0  # relative standard error of the bytes


class BatchSums(NamedTuple):
    """Sums over sampled batches; each batch counts by its offsets."""

    batches: float = 0.0
    offsets: float = 0.0
    log_bytes: float = 0.0
    records: float = 0.0
    bytes: float = 0.0
    log_squares: float = 0.0
    byte_squares: float = 0.0
    products: float = 0.0

    def add(self, other: Sequence[float], share: float = 1.0) -> "BatchSums":
        """Return the sums with a share of others added."""
        return BatchSums(*(mine + share * theirs for mine, theirs in zip(self, other, strict=True)))

    @classmethod
    def of_batches(cls, batches: Iterable[SampledBatch]) -> "BatchSums":
        """Sum up batches."""
        total = cls()
        for n, log, records, read in batches:
            squares = (log * log / n, read * read / n, log * read / n)
            total = total.add((1, n, log, records, read, *squares))
        return total

    def predict(self, log_bytes: float | None) -> RecordSize:
        """Return what an offset of so many log bytes is; None: of the sampled mean."""
        log_mean, mean = self.log_bytes / self.offsets, self.bytes / self.offsets
        log_variance = max(0.0, self.log_squares / self.offsets - log_mean**2)
        variance = max(0.0, self.byte_squares / self.offsets - mean**2)
        covariance = self.products / self.offsets - log_mean * mean
        slope, size = 0.0, mean
        if log_bytes is not None:
            # little variance tells no slope: then bytes read are in proportion to log bytes
            prior = SLOPE_PRIOR * log_mean**2
            slope = max(0.0, (covariance + prior * mean / log_mean) / (log_variance + prior))
            size = max(0.0, mean + slope * (log_bytes - log_mean))
        residual = max(0.0, variance - 2 * slope * covariance + slope**2 * log_variance)
        error = math.sqrt(residual / self.batches) / size if size else 0.0
        return RecordSize(size, self.density, error)

    def is_refuted_by(self, batches: Sequence[SampledBatch]) -> bool:
        """Return whether a reader gets much more of all these batches than the sums tell, or much less."""
        read = [batch for batch in batches if batch.records]  # of markers nothing is read
        told = [self.predict(b.log_bytes / b.offsets).bytes * b.offsets for b in read]
        more = {batch.bytes > size for batch, size in zip(read, told, strict=True)}
        change = sum(b.bytes for b in read) / sum(told) - 1 if sum(told) else 0.0
        return len(read) >= LEAST_REFUTING and len(more) == 1 and abs(change) > REFUTING_CHANGE

    @property
    def density(self) -> float:
        """The records of an offset."""
        return self.records / self.offsets


class Growth(NamedTuple):
    """What was written in an interval."""

    time: float  # of its end
    seconds: float
    offsets: int
    log_bytes: int


class LogReading(NamedTuple):
    """A log at one time."""

    time: float  # monotonic, in seconds
    leader: int
    beginning: int
    end: int
    size: int


@dataclass(frozen=True, slots=True)
class LogGrowth:
    """The growth of a log in the last window, and before."""

    last: LogReading
    window: tuple[Growth, ...] = ()
    past_offsets: float = 0.0
    past_bytes: float = 0.0
    past_squares: float = 0.0  # of deviations from the mean
    past_count: float = 0.0

    def add_reading(self, reading: LogReading, length_s: float) -> "LogGrowth":
        """Add a reading, and move what is older than the window into the past."""
        last, window = self.last, self.window
        offsets, grown = reading.end - last.end, reading.size - last.size
        is_whole = (reading.leader, reading.beginning) == (last.leader, last.beginning)
        if is_whole and offsets > 0 and grown > 0:
            window = (*window, Growth(reading.time, reading.time - last.time, offsets, grown))
        old = [g for g in window if g.time <= reading.time - length_s]
        moved = replace(self, last=reading, window=window[len(old) :])
        for growth in old:
            moved = moved._remember(growth)  # noqa: SLF001 - of this class
        return moved._forget_changed()  # noqa: SLF001 - of this class

    def _remember(self, growth: Growth) -> "LogGrowth":
        kept = max(0.0, 1 - growth.seconds / MEMORY_S)
        mean = self._past_mean or growth.log_bytes / growth.offsets
        return replace(
            self,
            past_offsets=kept * self.past_offsets + growth.offsets,
            past_bytes=kept * self.past_bytes + growth.log_bytes,
            past_squares=kept * self.past_squares + (growth.log_bytes - mean * growth.offsets) ** 2,
            past_count=kept * self.past_count + 1,
        )

    @property
    def _past_mean(self) -> float:
        return self.past_bytes / self.past_offsets if self.past_offsets else 0.0

    def _forget_changed(self) -> "LogGrowth":
        offsets, grown = self._sum_window()
        if self.past_count < LEAST_PAST or len(self.window) < 2:  # noqa: PLR2004 - one may hold one large record
            return self
        mean = self._past_mean
        larger = {g.log_bytes > mean * g.offsets for g in self.window}
        chance = CHANGE_DEVIATIONS * self._compute_error(offsets) + CHANGE_TOLERANCE
        if len(larger) > 1 or abs(grown / offsets / mean - 1) < chance:
            return self
        return LogGrowth(self.last, self.window)

    def _compute_error(self, offsets: float) -> float:
        """Return the relative standard error of the mean of so many offsets."""
        if not self.past_offsets:
            return 0.0
        return math.sqrt(self.past_squares / self.past_offsets / offsets) / self._past_mean

    def _sum_window(self) -> tuple[int, int]:
        return sum(g.offsets for g in self.window), sum(g.log_bytes for g in self.window)

    def estimate(self) -> tuple[float, float] | None:
        """Return the log bytes of an offset with their relative standard error; None for an empty log."""
        offsets, grown = self._sum_window()
        total = offsets + self.past_offsets
        if not total:  # nothing was written yet: as what the log holds
            kept = self.last.end - self.last.beginning
            return (self.last.size / kept, 0.0) if kept > 0 and self.last.size else None
        mean = (grown + self.past_bytes) / total
        if not offsets:
            return mean, self._compute_error(total)
        now = grown / offsets
        middle = (now + mean) / 2
        return middle, max(abs(now - mean) / 2 / middle, self._compute_error(offsets) / 2)


@dataclass(frozen=True, slots=True)
class RecordSizes:
    """Growth of logs and samples of batches, by partition."""

    window_s: float = 30.0
    on_disk: bool = False  # bytes are those of the log, not those that a reader gets
    growths: Mapping[TopicPartition, LogGrowth] = field(default_factory=dict[TopicPartition, LogGrowth])
    samples: Mapping[TopicPartition, BatchSums] = field(default_factory=dict[TopicPartition, BatchSums])

    def add_samples(self, batches: Mapping[TopicPartition, Sequence[SampledBatch]]) -> "RecordSizes":
        """Add sampled batches."""
        found_of = defaultdict[str, list[SampledBatch]](list)
        for partition, found in batches.items():
            found_of[partition.topic] += found
        topics = self._sum_topics(found_of)
        changed = {topic for topic, past in topics.items() if past.is_refuted_by(found_of[topic])}
        samples = {p: sums for p, sums in self.samples.items() if p.topic not in changed}
        growths = {
            p: LogGrowth(g.last, g.window[-1:]) if p.topic in changed else g for p, g in self.growths.items()
        }
        for partition, found in batches.items():
            if found:
                before = samples.get(partition, BatchSums())
                samples[partition] = BatchSums.of_batches(found).add(before, SAMPLE_MEMORY)
        return replace(self, samples=samples, growths=growths)

    def _sum_topics(self, of: Collection[str]) -> dict[str, BatchSums]:
        topics: dict[str, BatchSums] = {}
        for p, sums in self.samples.items():
            if p.topic in of:
                topics[p.topic] = topics.get(p.topic, BatchSums()).add(sums)
        return topics

    def add_log_sizes(self, now: float, readings: Mapping[TopicPartition, LogReading]) -> "RecordSizes":
        """Add readings of logs, and forget those that were not read for long: samples are newer."""
        growths = {p: growth for p, growth in self.growths.items() if now - growth.last.time < MEMORY_S}
        for p, reading in readings.items():
            growths[p] = growths.get(p, LogGrowth(reading)).add_reading(reading, self.window_s)
        return replace(self, growths=growths)

    def forget_missing(self, existing: Collection[TopicPartition]) -> "RecordSizes":
        """Return the sizes without those of deleted topics."""
        there = set(existing)
        if self.growths.keys() <= there and self.samples.keys() <= there:
            return self
        return replace(
            self,
            growths={p: growth for p, growth in self.growths.items() if p in there},
            samples={p: sums for p, sums in self.samples.items() if p in there},
        )

    def estimate_sizes(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, RecordSize]:
        """Return the size of each partition's offsets; those that nothing is known of are absent."""
        partitions = tuple(partitions)
        topics = self._sum_topics({p.topic for p in partitions})
        found = ((p, self._estimate_size(p, topics.get(p.topic))) for p in partitions)
        return {p: size for p, size in found if size is not None}

    def describe(self, loads: Mapping[TopicPartition, PartitionLoad]) -> SizeStatus | None:
        """Return how the sizes behind these loads are known."""
        return SizeStatus.of_loads(sum(p in self.growths for p in loads), loads.values())

    def _estimate_size(self, partition: TopicPartition, topic: BatchSums | None) -> RecordSize | None:
        growth = self.growths.get(partition)
        grown = None if growth is None else growth.estimate()
        if self.on_disk:
            return None if grown is None else RecordSize(grown[0], 1.0, grown[1])
        if topic is None:
            return None
        own = self.samples.get(partition)
        if grown is None:
            return (own or topic).predict(None)
        share = min(1.0, TOPIC_OFFSETS / topic.offsets)
        size = (own or BatchSums()).add(topic, share).predict(grown[0])
        return RecordSize(size.bytes, (own or topic).density, math.hypot(size.error, grown[1]))
