"""Samples record batches with a consumer that neither joins a group nor commits.

1. A sample is the batches of about 64 kB from an offset that is drawn from those written since the last one:
   the newest records alone are not like the others.
2. A batch's size on disk is in its header. What a reader gets of it is read by librdkafka, which knows all
   codecs and skips aborted transactions and markers.
3. A topic is sampled in its first iterations, then rarely: the relation of the two changes slowly.
"""

import math
import random
import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import methodcaller
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaException, Message
from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import Clock
from trimtab.common.kafka_protocol.errors import KafkaRequestError, TopicDeniedError
from trimtab.sidecar.kafka.cluster_client import PartitionOffsets
from trimtab.sidecar.kafka.partition_logs import FETCHED_BYTES, PartitionLogs, RecordBatch
from trimtab.sidecar.measurement.open_transactions import OpenProducer
from trimtab.sidecar.measurement.record_sizes import SampledBatch
from trimtab.sidecar.settings.settings import SidecarSettings

MAX_SAMPLED_PARTITIONS: Final = 64  # per iteration: thousands of partitions are sampled in turn
SAMPLE_TIMEOUT_S: Final = 0.5  # of an iteration, which must not wait for slow leaders
LEARNING_SAMPLES: Final = 24  # of a topic's partitions
RESAMPLE_INTERVAL_S: Final = 60.0  # with DescribeLogDirs no more requests than samples every 30 s
UNMEASURED_INTERVAL_S: Final = 30.0  # of partitions whose logs may not be measured: samples tell their size
FORGET_AFTER_S: Final = 3600.0  # partitions of deleted topics, which are asked for no more
FIRST_SPAN: Final = 10_000  # offsets from which the first sample is drawn
REPORTED_ATTEMPTS: Final = 3  # a leader may have moved at one
MAX_CONSUMED: Final = 1_000_000  # librdkafka's limit of one call
SAMPLER_GROUP_ID: Final = "trimtab-sidecar-record-sampler"  # never joined, so it needs no ACL
# Not `message.headers()`: a specialized call loses the error (`consumer_sdk.readable_headers`).
_read_headers: Final[Any] = methodcaller("headers")


class _Failure(NamedTuple):
    """Why a topic could not be sampled."""

    partition: TopicPartition  # one of those tried last
    attempts: int  # in a row
    error: Exception


class RecordSampler:
    """Samples batches of the least recently sampled partitions in one thread; others may call the rest."""

    def __init__(self, settings: SidecarSettings, clock: Clock) -> None:
        self._client = settings.client_config
        self._logs = PartitionLogs(settings, clock)
        self._consumer: Consumer | None = None  # until something is sampled
        self._sizes_asked_again_at = -math.inf
        self._attempted_at: dict[TopicPartition, float] = {}
        self._sampled_at: dict[TopicPartition, float] = {}
        self._counts: dict[str, int] = {}  # by topic
        self._passed_at = -math.inf  # when partitions of known topics were sampled
        self._ends: dict[TopicPartition, int] = {}  # at the last sample
        self._random = random.Random()  # noqa: S311 - which records are sampled is no secret
        self._resample_interval = UNMEASURED_INTERVAL_S
        self.transactional: frozenset[TopicPartition] = frozenset()  # a transaction was seen in them
        self._failures: dict[str, _Failure] = {}  # by topic
        self.errors: Mapping[str, str] = {}  # why sizes are unknown, by topic

    def fetch_log_sizes(self, leaders: Mapping[TopicPartition, int], now: float) -> PartitionOffsets:
        """Return the bytes of each leader's replica, and errors; after an error nothing for a while."""
        if now < self._sizes_asked_again_at:
            return PartitionOffsets({})
        found = self._logs.fetch_replica_sizes(leaders)
        self._resample_interval = RESAMPLE_INTERVAL_S if found.values else UNMEASURED_INTERVAL_S
        if not found.values and found.errors:
            self._sizes_asked_again_at = now + UNMEASURED_INTERVAL_S
        return found

    def find_producer(self, partition: TopicPartition, offset: int) -> OpenProducer | None:
        """Return the producer whose open transaction begins at this offset; None if no broker tells it."""
        return self._logs.find_producer(partition, offset)

    def sample_batches(
        self,
        ends: Mapping[TopicPartition, int],
        begins: Mapping[TopicPartition, int],
        leaders: Mapping[TopicPartition, int],
        now: float,
    ) -> Mapping[TopicPartition, Sequence[SampledBatch]]:
        """Return batches of partitions that are due."""
        self._forget_old(now)
        self._forget_recreated(ends)
        chosen = self._choose_due(ends, begins, leaders, now)
        # by attempt, not by success: else unresponsive partitions would starve the others
        self._attempted_at.update(dict.fromkeys(chosen, now))
        samples = self._sample(chosen, ends, begins, leaders) if chosen else {}
        self._record_samples({p: ends[p] for p in samples}, now)
        self._failures = {topic: f for topic, f in self._failures.items() if f.partition in leaders}
        self.errors = {t: _explain(t, f.error) for t, f in self._failures.items() if self._is_reported(t, f)}
        return samples

    def close(self) -> None:
        """Close the connections."""
        self._logs.close()
        if self._consumer is not None:
            self._consumer.close()

    def _sample(
        self,
        chosen: Sequence[TopicPartition],
        ends: Mapping[TopicPartition, int],
        begins: Mapping[TopicPartition, int],
        leaders: Mapping[TopicPartition, int],
    ) -> Mapping[TopicPartition, Sequence[SampledBatch]]:
        starts = {p: self._draw_start(begins[p], ends[p], self._ends.get(p)) for p in chosen}
        try:
            batches, held, errors = self._logs.fetch_batches(starts, leaders)
            messages = self._read_records(batches)
        except (KafkaException, KafkaRequestError, OSError, ValueError, struct.error) as error:
            self._count_failures(chosen, (), dict.fromkeys(chosen, error))
            return {}  # sampled again in the next iteration
        seen = {p for p, found in batches.items() if any(b.is_transactional for b in found)}
        self.transactional |= held | seen
        read = _group_sizes_by_partition(messages)
        measured = {p: measure_batches(found, read.get(p, {})) for p, found in batches.items() if found}
        samples = {p: found for p, found in measured.items() if found}
        # of aborted transactions nothing is read
        unread = dict.fromkeys(measured.keys() - samples.keys() - seen, TimeoutError("no record was read"))
        self._count_failures(chosen, samples, {**errors, **unread, **_group_errors_by_partition(messages)})
        return samples

    def _count_failures(
        self,
        chosen: Iterable[TopicPartition],
        sampled: Iterable[TopicPartition],
        errors: Mapping[TopicPartition, Exception],
    ) -> None:
        failed = {p.topic: p for p in errors}
        for topic in {p.topic for p in chosen}:
            before = self._failures.pop(topic, None)
            if topic in failed.keys() - {p.topic for p in sampled}:
                attempts = 1 if before is None else before.attempts + 1
                self._failures[topic] = _Failure(failed[topic], attempts, errors[failed[topic]])

    def _is_reported(self, topic: str, failure: _Failure) -> bool:
        if isinstance(failure.error, TopicDeniedError):
            return True
        return failure.attempts >= REPORTED_ATTEMPTS and topic not in self._counts

    def _forget_old(self, now: float) -> None:
        self._attempted_at = {p: at for p, at in self._attempted_at.items() if now - at < FORGET_AFTER_S}
        for partition in self._sampled_at.keys() - self._attempted_at.keys():
            del self._sampled_at[partition], self._ends[partition]
        for topic in self._counts.keys() - {p.topic for p in self._attempted_at}:
            del self._counts[topic]
        self.transactional = self.transactional.intersection(self._attempted_at)

    def _forget_recreated(self, ends: Mapping[TopicPartition, int]) -> None:
        """Forget what ends before its last sample: its topic was recreated, or its log truncated."""
        for partition in [p for p, last in self._ends.items() if ends.get(p, last) < last]:
            del self._sampled_at[partition], self._ends[partition]
            self._counts.pop(partition.topic, None)

    def _choose_due(
        self,
        ends: Mapping[TopicPartition, int],
        begins: Mapping[TopicPartition, int],
        leaders: Mapping[TopicPartition, int],
        now: float,
    ) -> list[TopicPartition]:
        is_measured = self._resample_interval == RESAMPLE_INTERVAL_S

        def is_due(partition: TopicPartition) -> bool:
            if self._counts.get(partition.topic, 0) < LEARNING_SAMPLES:
                return True
            # if logs are measured, those of all partitions at once, for fewer requests
            last = self._passed_at if is_measured else self._sampled_at.get(partition, -math.inf)
            return now - last >= self._resample_interval

        filled = (p for p in ends if ends[p] > max(begins.get(p, ends[p]), self._ends.get(p, 0)))
        due = [p for p in filled if p in leaders and is_due(p)]
        due.sort(key=lambda p: (self._attempted_at.get(p, float("-inf")), p))
        return due[:MAX_SAMPLED_PARTITIONS]

    def _draw_start(self, begin: int, end: int, last_end: int | None) -> int:
        return self._random.randrange(max(begin, end - FIRST_SPAN if last_end is None else last_end), end)

    def _record_samples(self, ends: Mapping[TopicPartition, int], now: float) -> None:
        self._ends.update(ends)
        self._sampled_at.update(dict.fromkeys(ends, now))
        for partition in ends:
            self._counts[partition.topic] = self._counts.get(partition.topic, 0) + 1
        if any(self._counts[p.topic] >= LEARNING_SAMPLES for p in ends):
            self._passed_at = now

    def _read_records(self, batches: Mapping[TopicPartition, Sequence[RecordBatch]]) -> list[Message]:
        count = sum(b.records for found in batches.values() for b in found if not b.is_control)
        starts = [RawPartition(*p, found[0].base_offset) for p, found in batches.items() if found]
        if not count:
            return []
        consumer = self._consumer = self._consumer or self._open_consumer()
        consumer.assign(starts)
        try:
            return consumer.consume(min(count, MAX_CONSUMED), timeout=SAMPLE_TIMEOUT_S)
        finally:
            consumer.unassign()

    def _open_consumer(self) -> Consumer:
        return Consumer(
            {
                **self._client,
                "group.id": SAMPLER_GROUP_ID,  # librdkafka requires one
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "latest",
                "fetch.wait.max.ms": 50,
                "fetch.message.max.bytes": FETCHED_BYTES,
                "queued.max.messages.kbytes": 4096,
            }
        )


def measure_batches(batches: Sequence[RecordBatch], sizes: Mapping[int, int]) -> list[SampledBatch]:
    """Return the batches that were read to their end, with their records (sizes by offset)."""
    last = max(sizes, default=batches[0].base_offset - 1)
    found: list[SampledBatch] = []
    for batch in batches:
        # of a marker nothing is read, so it has been read to its end once the batch before it has
        if batch.next_offset - batch.is_control > last + 1:
            break
        read = [sizes[n] for n in range(batch.base_offset, batch.next_offset) if n in sizes]
        offsets = batch.next_offset - batch.base_offset
        found.append(SampledBatch(offsets, batch.log_bytes, len(read), sum(read)))
    return found


def _group_sizes_by_partition(messages: Iterable[Message]) -> dict[TopicPartition, dict[int, int]]:
    sizes: defaultdict[TopicPartition, dict[int, int]] = defaultdict(dict)
    for message in messages:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if message.error() is None and topic is not None and partition is not None and offset is not None:
            sizes[TopicPartition(topic, partition)][offset] = _compute_size(message)
    return dict(sizes)


def _group_errors_by_partition(messages: Iterable[Message]) -> dict[TopicPartition, Exception]:
    failed = ((m.topic(), m.partition(), m.error()) for m in messages)
    return {TopicPartition(t, p): KafkaException(e) for t, p, e in failed if e and t and p is not None}


def _explain(topic: str, error: Exception) -> str:
    if isinstance(error, TopicDeniedError):
        return (
            f"topic {topic} may not be read, so record sizes are unknown: grant Read on "
            f"topic {topic}, or use source=log-dirs"
        )
    reason = f"{type(error).__name__}: {error}"
    return f"topic {topic}: record sizes are unknown, since it could not be sampled: {reason}"


def _compute_size(message: Message) -> int:
    try:
        headers: Any = _read_headers(message) or ()
    except (SystemError, UnicodeDecodeError):  # a name that is not UTF-8; a second read would end the process
        headers = ()
    in_headers = sum(len(name) + len(value or b"") for name, value in headers)
    return len(message.key() or b"") + len(message.value() or b"") + in_headers
