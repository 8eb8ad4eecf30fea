"""From readings of a log to write speeds and backlog; the rules of what counts as known.

1. A speed is (last - first) / time over the readings of a sliding window (section V-A of "Kafka
   Consumer Group Autoscaler").
2. Only the unbroken run up to the newest reading counts. A reading that is missing, or smaller
   than the one before it (retention, compaction, a topic made anew, another leader), breaks the
   run. After a pause longer than the window the reading before it counts until others do.
3. A run shorter than `least` seconds gives unknown. Unknown is None, never 0.
4. Of `offsets`, bytes are records x mean record size, and a size that was never seen is unknown,
   except that no records are no bytes. Of `log-dirs`, bytes are the growth of the leader replica's
   files.
5. A backlog counts from the group's commit. A commit that was there and is gone (it expired, or
   was deleted) makes it unknown until the next one: the whole log is no backlog for that.
6. Of a `kmq` queue, what is in work is part of the backlog; where the two come to nothing, but what
   is in work is not known for sure, the records are unknown (`queued`).
7. Consumption is the growth of the committed offsets, over a window long enough for batches.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Final

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.values import PartitionSpeed
from trimtab.common.lag import lag_of
from trimtab.sidecar.measurement.queue_backlog import Work

SOURCES: Final = ("offsets", "log-dirs")


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading of growing numbers (end offsets, or bytes); what did not answer is absent."""

    time: float  # seconds, of a clock that never goes back
    values: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Window:
    """The readings of the last `length` seconds; `least` is the shortest run that gives a speed.

    A reading less than `grain` seconds after the one before it goes when the next one comes: a long
    window of thousands of partitions stays small.
    """

    length: float
    least: float
    samples: tuple[Sample, ...] = ()
    grain: float = 0.0

    def add(self, sample: Sample) -> "Window":
        """Return the window with this reading at its end, without those that are too old.

        One that is too old stays while the others are too close together to give a speed: a slow
        turn is not to make speeds unknown.
        """
        kept = [s for s in self.samples if s.time >= sample.time - self.length]
        if not kept or sample.time - kept[0].time < self.least:
            kept = [*self.samples[-1 - len(kept) :]]
        if len(kept) > 1 and kept[-1].time - kept[-2].time < self.grain:
            kept.pop()
        return replace(self, samples=(*kept, sample))

    def rates(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, float | None]:
        """Return units/s of each partition (rules 1 to 3)."""
        return {p: self._rate(p) for p in partitions}

    def _rate(self, partition: TopicPartition) -> float | None:
        if not self.samples:
            return None
        last = self.samples[-1].values.get(partition)
        first, since = last, self.samples[-1].time
        for sample in reversed(self.samples):
            value = sample.values.get(partition)
            if value is None or first is None or value > first:
                break
            first, since = value, sample.time
        span = self.samples[-1].time - since
        if last is None or first is None or span <= 0 or span < self.least:
            return None
        return (last - first) / span


@dataclass(frozen=True, slots=True)
class RecordSizes:
    """Mean record size of each partition in bytes, exponentially weighted."""

    weight: float = 0.3  # of the newest sample
    means: Mapping[TopicPartition, float] = field(default_factory=dict[TopicPartition, float])

    def learn(self, samples: Mapping[TopicPartition, Sequence[int]]) -> "RecordSizes":
        """Return the means with these record sizes (bytes) taken in."""
        means = dict(self.means)
        for partition, sizes in samples.items():
            if sizes:
                seen = fmean(sizes)
                old = means.get(partition, seen)
                means[partition] = old + self.weight * (seen - old)
        return replace(self, means=means)

    def of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, float]:
        """Return each partition's mean, else its topic's; unseen topics are absent."""
        by_topic: dict[str, list[float]] = {}
        for partition, mean in self.means.items():
            by_topic.setdefault(partition.topic, []).append(mean)
        topics = {topic: fmean(means) for topic, means in by_topic.items()}
        known = {p: self.means.get(p, topics.get(p.topic)) for p in partitions}
        return {p: mean for p, mean in known.items() if mean is not None}


@dataclass(frozen=True, slots=True)
class Readings:
    """One look at the brokers; what did not answer is absent (`committed`, `sizes`: None).

    `sizes` are bytes of the leader replicas (`log-dirs` only). `from_start` tells what a partition
    without a commit means: everything is still to be read (auto.offset.reset=earliest), or
    nothing. `work` is what is in work in a `kmq` queue, None of anything else.
    """

    partitions: tuple[TopicPartition, ...]
    ends: Mapping[TopicPartition, int]
    begins: Mapping[TopicPartition, int]
    committed: Mapping[TopicPartition, int] | None
    from_start: bool = True
    sizes: Mapping[TopicPartition, int] | None = None
    work: Mapping[TopicPartition, Work] | None = None


def backlog(readings: Readings, partition: TopicPartition) -> int | None:
    """Return the records appended and not yet committed; None where an offset is unknown.

    Records that retention has deleted are not counted: nobody can read them any more.
    """
    end = readings.ends.get(partition)
    if end is None or readings.committed is None:
        return None
    begin = readings.begins.get(partition)
    committed = readings.committed.get(partition)
    if begin is None and committed is None and readings.from_start:
        return None
    return lag_of(end, committed, begin or 0, from_beginning=readings.from_start)


@dataclass(frozen=True, slots=True)
class Meter:
    """What is kept between turns to tell speeds: the windows and the record sizes."""

    records: Window
    growth: Window | None = None  # of the files, `log-dirs` only
    commits: Window | None = None  # of committed offsets; None where consumption is not asked for
    sizes: RecordSizes = field(default_factory=RecordSizes)
    committed: frozenset[TopicPartition] = frozenset()  # what had a commit at any time

    def add(self, time: float, readings: Readings) -> "Meter":
        """Return the meter with these readings taken in."""
        found = readings.committed or {}
        new = found.keys() - self.committed
        return replace(
            self,
            records=self.records.add(Sample(time, readings.ends)),
            growth=self.growth and self.growth.add(Sample(time, readings.sizes or {})),
            commits=self.commits and self.commits.add(Sample(time, found)),
            committed=self.committed | new if new else self.committed,
        )

    def measure(self, readings: Readings) -> dict[TopicPartition, PartitionSpeed]:
        """Return speed and backlog of every partition of the readings."""
        records = self.records.rates(readings.partitions)
        sizes = self._sizes(readings)
        grown = None if self.growth is None else self.growth.rates(readings.partitions)
        measured: dict[TopicPartition, PartitionSpeed] = {}
        for partition in readings.partitions:
            rate, size = records[partition], sizes.get(partition)
            waiting = _with_work(self._backlog(readings, partition), readings, partition)
            measured[partition] = PartitionSpeed(
                bytes_per_s=_bytes(rate, size) if grown is None else grown[partition],
                records_per_s=rate,
                backlog_bytes=_bytes(waiting, size),
                backlog_records=waiting,
            )
        return measured

    def consumed(self, readings: Readings) -> dict[TopicPartition, float]:
        """Return the bytes/s that each partition's reader commits; what is unknown is absent."""
        if self.commits is None:
            return {}
        sizes, rates = self._sizes(readings), self.commits.rates(readings.partitions)
        found = {p: _bytes(rate, sizes.get(p)) for p, rate in rates.items()}
        return {p: rate for p, rate in found.items() if rate is not None}

    def _backlog(self, readings: Readings, partition: TopicPartition) -> int | None:
        """Return the backlog in records (rule 5)."""
        known = readings.committed is None or partition in readings.committed
        if not known and partition in self.committed:
            return None
        return backlog(readings, partition)

    def _sizes(self, readings: Readings) -> dict[TopicPartition, float]:
        if readings.sizes is None:
            return self.sizes.of(readings.partitions)
        sizes: dict[TopicPartition, float] = {}
        for partition, size in readings.sizes.items():
            end, begin = readings.ends.get(partition), readings.begins.get(partition)
            if end is not None and begin is not None and end > begin:
                sizes[partition] = size / (end - begin)
        return sizes


def _with_work(waiting: int | None, readings: Readings, partition: TopicPartition) -> int | None:
    """Return the backlog with what is in work (rule 6)."""
    if waiting is None or readings.work is None:
        return waiting
    work = readings.work.get(partition, Work())
    return waiting + work.working or (0 if work.sure else None)


def _bytes(records: float | None, size: float | None) -> float | None:
    if not records:
        return records
    return None if size is None else records * size


@dataclass(frozen=True, slots=True)
class Drain:
    """How fast a backlog is to be worked off.

    What was written in the last `allowance` seconds is on its way (batches being filled) and
    counts as no backlog; the rest is to be read within `target` seconds.
    """

    target: float = 120.0
    allowance: float = 15.0


def needed(
    speeds: Mapping[TopicPartition, PartitionSpeed], drain: Drain, room: float
) -> dict[TopicPartition, PartitionSpeed]:
    """Return the speeds with `needed_bytes_per_s` = write speed + backlog / target.

    `room` is the bytes/s that one consumer may be filled with: a backlog never asks for more than
    that, because one consumer is all that a partition can get.
    """
    return {p: replace(s, needed_bytes_per_s=_need(s, drain, room)) for p, s in speeds.items()}


def late(speed: PartitionSpeed, drain: Drain) -> float | None:
    """Return the bytes that wait for longer than the allowance; None where that is not known."""
    if speed.bytes_per_s is None or speed.backlog_bytes is None:
        return None
    return max(0.0, speed.backlog_bytes - speed.bytes_per_s * drain.allowance)


def _need(speed: PartitionSpeed, drain: Drain, room: float) -> float | None:
    if speed.bytes_per_s is None:
        return None
    behind = late(speed, drain) or 0.0
    return min(speed.bytes_per_s + behind / drain.target, max(speed.bytes_per_s, room))
