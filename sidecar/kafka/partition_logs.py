"""Logs of partitions as their leaders keep them: sizes on disk, headers of record batches, open transactions.

confluent-kafka offers neither DescribeLogDirs nor batches nor DescribeProducers.
"""

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import Clock
from trimtab.common.kafka_protocol import apis
from trimtab.common.kafka_protocol.connection import Request
from trimtab.common.kafka_protocol.errors import (
    ClusterDeniedError,
    KafkaRequestError,
    MalformedMessageError,
    raise_for_code,
)
from trimtab.sidecar.kafka.brokers import connect_brokers
from trimtab.sidecar.kafka.cluster_client import NO_LEADER, PartitionOffsets
from trimtab.sidecar.measurement.open_transactions import OpenProducer
from trimtab.sidecar.settings.settings import SidecarSettings

TIMEOUT_S: Final = 1.0  # of an iteration, which must not wait for slow leaders
FETCHED_BYTES: Final = 65_536  # of a partition
READ_COMMITTED: Final = 1
# Base offset, length, leader epoch, magic, CRC, attributes, last offset delta, two times, producer id and
# epoch, sequence, record count: https://kafka.apache.org/documentation/#recordbatch
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_LENGTH_ENDS_AT: Final = 12  # the length counts what follows it
_MAGIC: Final = 2
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20


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
        self._brokers = connect_brokers(settings, clock)
        self._timeout = min(settings.timeout, TIMEOUT_S)

    def fetch_replica_sizes(self, leaders: Mapping[TopicPartition, int]) -> PartitionOffsets:
        """Return the bytes of each leader's replica, and errors."""
        requests = {
            broker: _ask_sizes(chosen) for broker, chosen in _group_by_leader(leaders, leaders).items()
        }
        try:
            answers, errors = self._brokers.ask_each(requests, self._timeout)
            for answer in answers.values():
                if not answer.results:  # before version 3 a refusal is an empty response
                    raise_for_code(answer.error_code or ClusterDeniedError.code)
        except KafkaRequestError as error:
            denied = isinstance(error, ClusterDeniedError)
            remedy = "; grant Describe on cluster" if denied else ""
            return PartitionOffsets({}, (f"log directories: {error}{remedy}",))
        return PartitionOffsets(
            {
                TopicPartition(topic.name, part.partition_index): int(part.partition_size)
                for answer in answers.values()
                for folder in answer.results
                for topic in folder.topics
                for part in topic.partitions
                if not part.is_future_key  # a copy that is being moved to another disk
            },
            tuple(f"log directories of broker {b}: {e}" for b, e in errors.items()),
        )

    def fetch_batches(
        self, starts: Mapping[TopicPartition, int], leaders: Mapping[TopicPartition, int]
    ) -> FetchedBatches:
        """Return the batches of about `FETCHED_BYTES` from this offset on. Raises KafkaRequestError."""
        by_leader = _group_by_leader(starts, leaders)
        requests = {b: _ask_records({p: starts[p] for p in chosen}) for b, chosen in by_leader.items()}
        answers, errors = self._brokers.ask_each(requests, self._timeout)
        for answer in answers.values():
            raise_for_code(answer.error_code)
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
        try:
            producers = self._list_producers(partition)
        except KafkaRequestError:
            return None
        found = next((p.producer_id for p in producers if p.current_txn_start_offset == offset), None)
        return None if found is None else OpenProducer(found, self._find_transactional_id(found))

    def close(self) -> None:
        """Close the connections; the next request opens others."""
        self._brokers.close()

    def _find_transactional_id(self, producer: int) -> str | None:
        try:
            answers = self._brokers.ask_all(apis.LIST_TRANSACTIONS, {"producer_id_filters": [producer]})
        except KafkaRequestError:
            return None
        return next((one.transactional_id for a in answers for one in a.transaction_states), None)

    def _list_producers(self, partition: TopicPartition) -> Sequence[Any]:
        topics = self._brokers.ask(apis.METADATA, {"topics": [{"name": partition.topic}]}).topics
        leaders = (
            p.leader_id for t in topics for p in t.partitions if p.partition_index == partition.partition
        )
        leader = next(leaders, NO_LEADER)
        wanted = {"topics": [{"name": partition.topic, "partition_indexes": [partition.partition]}]}
        (answer,) = self._brokers.ask_broker(leader, [Request(apis.DESCRIBE_PRODUCERS, wanted)])
        return [one for t in answer.topics for p in t.partitions for one in p.active_producers]


def _group_by_leader(
    partitions: Iterable[TopicPartition], leaders: Mapping[TopicPartition, int]
) -> dict[int, list[TopicPartition]]:
    by_leader: dict[int, list[TopicPartition]] = {}
    for partition in partitions:
        if leaders[partition] != NO_LEADER:
            by_leader.setdefault(leaders[partition], []).append(partition)
    return by_leader


def _ask_sizes(partitions: Iterable[TopicPartition]) -> Request:
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        topics[topic].append(partition)
    wanted = [{"topic": topic, "partitions": chosen} for topic, chosen in topics.items()]
    return Request(apis.DESCRIBE_LOG_DIRS, {"topics": wanted})


def _ask_records(starts: Mapping[TopicPartition, int]) -> Request:
    topics: defaultdict[str, list[Any]] = defaultdict(list)
    for (topic, partition), offset in starts.items():
        limit = {"fetch_offset": offset, "partition_max_bytes": FETCHED_BYTES}
        topics[topic].append({"partition": partition, **limit})
    fields = {
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": FETCHED_BYTES * len(starts),
        "isolation_level": READ_COMMITTED,
        "topics": [{"topic": topic, "partitions": chosen} for topic, chosen in topics.items()],
    }
    return Request(apis.FETCH, fields)


def _parse_parts(
    parts: Iterable[tuple[TopicPartition, Any]],
) -> tuple[dict[TopicPartition, Sequence[RecordBatch]], dict[TopicPartition, KafkaRequestError]]:
    batches: dict[TopicPartition, Sequence[RecordBatch]] = {}
    errors: dict[TopicPartition, KafkaRequestError] = {}
    for partition, part in parts:
        try:
            raise_for_code(part.error_code)
            if part.records:
                batches[partition] = tuple(parse_batches(part.records))
        except KafkaRequestError as error:
            errors[partition] = error
    return batches, errors


def parse_batches(records: bytes) -> Iterator[RecordBatch]:
    """Yield the batches whose header is there; the last one's records may be cut off.

    Raises MalformedMessageError.
    """
    position = 0
    while position + _HEADER.size <= len(records):
        base, length, _, magic, _, attributes, last, *_, count = _HEADER.unpack_from(records, position)
        if magic != _MAGIC:
            return  # as written before Kafka 0.11
        size = _LENGTH_ENDS_AT + length
        if size < _HEADER.size:
            raise MalformedMessageError(f"a batch at offset {base} has {size} bytes")
        is_control, is_transactional = bool(attributes & _CONTROL), bool(attributes & _TRANSACTIONAL)
        yield RecordBatch(base, base + last + 1, size, count, is_control, is_transactional)
        position += size
