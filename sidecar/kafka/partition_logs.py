"""Logs of partitions as their leaders keep them: sizes on disk, headers of record batches, open transactions.

By kafka-python: confluent-kafka offers neither DescribeLogDirs nor batches nor DescribeProducers.
"""

# ruff: noqa: SLF001 - kafka-python sends to a broker of choice by private calls

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from kafka.errors import (
    ClusterAuthorizationFailedError,
    CorruptRecordError,
    KafkaError,
    KafkaTimeoutError,
    for_code,
)
from kafka.protocol.admin import DescribeLogDirsRequest
from kafka.protocol.consumer import FetchRequest
from kafka.structs import TopicPartition as RawPartition

from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import Clock
from trimtab.sidecar.kafka.cluster_client import NO_LEADER, PartitionOffsets
from trimtab.sidecar.kafka.coordinator_client import CoordinatorClient
from trimtab.sidecar.measurement.open_transactions import OpenProducer
from trimtab.sidecar.settings.settings import SidecarSettings

TIMEOUT_S: Final = 1.0  # of an iteration, which must not wait for slow leaders
FETCHED_BYTES: Final = 65_536  # of a partition
READ_COMMITTED: Final = 1
LAST_VERSION_BY_NAME: Final = 12  # later ones name topics by id
# Base offset, length, leader epoch, magic, CRC, attributes, last offset delta, two times, producer id and
# epoch, sequence, record count: https://kafka.apache.org/documentation/#recordbatch
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_LENGTH_ENDS_AT: Final = 12  # the length counts what follows it
_MAGIC: Final = 2
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_UNTYPED_FETCH: Final[Any] = FetchRequest
_UNTYPED_SIZES: Final[Any] = DescribeLogDirsRequest
_Answers = tuple[dict[int, Any], dict[int, KafkaError]]  # by broker


class RecordBatch(NamedTuple):
    """A batch by its header."""

    base_offset: int
    next_offset: int
    log_bytes: int  # on disk, with the header
    records: int
    is_control: bool  # the end of a transaction
    is_transactional: bool


class FetchedBatches(NamedTuple):
    """Batches by partition, partitions in which a transaction is open, and why others were not read."""

    batches: Mapping[TopicPartition, Sequence[RecordBatch]]
    held: frozenset[TopicPartition] = frozenset()
    errors: Mapping[TopicPartition, Exception] = MappingProxyType({})


class PartitionLogs:
    """Asks all leaders at once, by one connection to each; threads may share it.

    What a leader does not answer in time is absent: the sizes of records are known without it for a while.
    """

    def __init__(self, settings: SidecarSettings, clock: Clock) -> None:
        self._brokers = CoordinatorClient(settings, clock)
        self._clock = clock
        self._timeout = min(settings.timeout, TIMEOUT_S)

    def fetch_replica_sizes(self, leaders: Mapping[TopicPartition, int]) -> PartitionOffsets:
        """Return the bytes of each leader's replica, and errors."""
        requests = {
            broker: _ask_sizes(chosen) for broker, chosen in _group_by_leader(leaders, leaders).items()
        }
        try:
            answers, errors = self._send(requests)
            for answer in answers.values():
                if not answer.results:  # before version 3 a refusal is an empty response
                    raise for_code(answer.error_code or ClusterAuthorizationFailedError.errno)
        except KafkaError as error:
            denied = isinstance(error, ClusterAuthorizationFailedError)
            remedy = "; grant Describe on cluster" if denied else ""
            return PartitionOffsets({}, (f"log directories: {type(error).__name__}: {error}{remedy}",))
        return PartitionOffsets(
            {
                TopicPartition(topic.name, part.partition_index): int(part.partition_size)
                for answer in answers.values()
                for folder in answer.results
                for topic in folder.topics
                for part in topic.partitions
                if not part.is_future_key  # a copy that is being moved to another disk
            },
            tuple(f"log directories of broker {b}: {type(e).__name__}: {e}" for b, e in errors.items()),
        )

    def fetch_batches(
        self, starts: Mapping[TopicPartition, int], leaders: Mapping[TopicPartition, int]
    ) -> FetchedBatches:
        """Return the batches of about `FETCHED_BYTES` from the one of this offset on. Raises KafkaError."""
        by_leader = _group_by_leader(starts, leaders)
        requests = {b: _ask_records({p: starts[p] for p in chosen}) for b, chosen in by_leader.items()}
        answers, errors = self._send(requests)
        parts = [
            (TopicPartition(topic.topic, part.partition_index), part)
            for answer in answers.values()
            for topic in answer.responses
            for part in topic.partitions
        ]
        failed = {p: error for broker, error in errors.items() for p in by_leader[broker]}
        batches, unread = _parse_parts(parts)
        held = frozenset(p for p, part in parts if 0 <= part.last_stable_offset < part.high_watermark)
        return FetchedBatches(batches, held, failed | unread)

    def find_producer(self, partition: TopicPartition, offset: int) -> OpenProducer | None:
        """Return the producer whose open transaction begins at this offset; None if no broker tells it."""
        raw = RawPartition(*partition)
        try:
            producers = self._brokers.call(lambda admin: admin.describe_producers([raw]))[
                raw
            ].active_producers
            ids = (p.producer_id for p in producers if p.current_transaction_start_offset == offset)
            producer = next(ids, None)
        except KafkaError:
            return None
        return None if producer is None else OpenProducer(producer, self._find_transactional_id(producer))

    def close(self) -> None:
        """Close the connections; the next request opens others."""
        self._brokers.close()

    def _find_transactional_id(self, producer: int) -> str | None:
        try:
            named = self._brokers.call(lambda a: a.list_transactions(producer_id_filters=[producer]))
        except KafkaError:
            return None
        return next((one.transactional_id for of_broker in named.values() for one in of_broker), None)

    def _send(self, requests: Mapping[int, Any]) -> _Answers:
        """Return the responses that came in time, and why the others did not. Raises KafkaError."""

        async def send(admin: Any) -> _Answers:
            sent = {broker: admin._manager.send(request, broker) for broker, request in requests.items()}
            deadline = self._clock.monotonic() + self._timeout  # of all: several leaders may hang
            answers: dict[int, Any] = {}
            errors: dict[int, KafkaError] = {}
            for broker, answer in sent.items():
                left = max(0.0, deadline - self._clock.monotonic())
                try:
                    answers[broker] = await admin._manager.wait_for(answer, 1000 * left)
                except KafkaTimeoutError:  # whose text tells what was left of the deadline
                    errors[broker] = KafkaTimeoutError(f"no answer in {self._timeout:g} s")
                except KafkaError as error:
                    errors[broker] = error
            return answers, errors

        def run(admin: Any) -> _Answers:
            answered: _Answers = admin._manager.run(send, admin)
            return answered

        return self._brokers.call(run)


def _group_by_leader(
    partitions: Iterable[TopicPartition], leaders: Mapping[TopicPartition, int]
) -> dict[int, list[TopicPartition]]:
    by_leader: dict[int, list[TopicPartition]] = {}
    for partition in partitions:
        if leaders[partition] != NO_LEADER:
            by_leader.setdefault(leaders[partition], []).append(partition)
    return by_leader


def _ask_sizes(partitions: Iterable[TopicPartition]) -> Any:
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        topics[topic].append(partition)
    wanted = _UNTYPED_SIZES.DescribableLogDirTopic
    return _UNTYPED_SIZES(topics=[wanted(topic=topic, partitions=chosen) for topic, chosen in topics.items()])


def _ask_records(starts: Mapping[TopicPartition, int]) -> Any:
    topics: defaultdict[str, list[Any]] = defaultdict(list)
    wanted = _UNTYPED_FETCH.FetchTopic
    for (topic, partition), offset in starts.items():
        limit = {"fetch_offset": offset, "partition_max_bytes": FETCHED_BYTES}
        topics[topic].append(wanted.FetchPartition(partition=partition, **limit))
    return _UNTYPED_FETCH(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=FETCHED_BYTES * len(starts),
        isolation_level=READ_COMMITTED,
        session_epoch=-1,  # no fetch session
        topics=[wanted(topic=topic, partitions=chosen) for topic, chosen in topics.items()],
        min_version=4,
        max_version=LAST_VERSION_BY_NAME,
    )


def _parse_parts(
    parts: Iterable[tuple[TopicPartition, Any]],
) -> tuple[dict[TopicPartition, Sequence[RecordBatch]], dict[TopicPartition, KafkaError]]:
    batches: dict[TopicPartition, Sequence[RecordBatch]] = {}
    errors: dict[TopicPartition, KafkaError] = {}
    for partition, part in parts:
        try:
            if part.error_code:
                raise for_code(part.error_code)
            if part.records:
                batches[partition] = tuple(parse_batches(bytes(part.records)))
        except KafkaError as error:
            errors[partition] = error
    return batches, errors


def parse_batches(records: bytes) -> Iterator[RecordBatch]:
    """Yield the batches whose header is there; the last one's records may be cut off.

    Raises CorruptRecordError.
    """
    position = 0
    while position + _HEADER.size <= len(records):
        base, length, _, magic, _, attributes, last, *_, count = _HEADER.unpack_from(records, position)
        if magic != _MAGIC:
            return  # as written before Kafka 0.11
        size = _LENGTH_ENDS_AT + length
        if size < _HEADER.size:
            raise CorruptRecordError(f"a batch at offset {base} has {size} bytes")
        is_control, is_transactional = bool(attributes & _CONTROL), bool(attributes & _TRANSACTIONAL)
        yield RecordBatch(base, base + last + 1, size, count, is_control, is_transactional)
        position += size
