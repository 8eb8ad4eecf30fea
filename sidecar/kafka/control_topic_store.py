"""The sidecar's control topics: created if missing, written with acknowledgement, read to their end.

All are compacted: the newest value of a key is in force, and a new sidecar continues with it.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final, Protocol, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as RawPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.record_parts import MAX_RECORD_BYTES, PartAssembler, split_value
from trimtab.common.control_topics.write_rates import TopicWriteRates
from trimtab.common.errors import InvalidPayloadError
from trimtab.common.librdkafka_settings import IDEMPOTENT_PRODUCER_SETTINGS
from trimtab.common.units import format_count
from trimtab.sidecar.errors import BrokerTimeoutError, NoBrokersAvailableError
from trimtab.sidecar.kafka.cluster_client import (
    explain_unreachable_brokers,
    format_error_with_grant,
    format_kafka_error,
    is_authorization_error,
)
from trimtab.sidecar.records.decision_record import RECORD_SLOTS, DecisionRecord
from trimtab.sidecar.records.sample_record import (
    DECISION_KEY_KIND,
    SAMPLE_KEY_KIND,
    SEASON_KEY_KIND,
    SampleRecord,
    read_key_kind,
)
from trimtab.sidecar.records.season_record import SeasonRecord
from trimtab.sidecar.settings.settings import SidecarSettings

log = logging.getLogger("trimtab.sidecar")

ControlValueT = TypeVar(
    "ControlValueT", GroupPlan, TopicWriteRates, DecisionRecord, SampleRecord, SeasonRecord
)

COMPACTED_TOPIC_CONFIG: Final = {
    "cleanup.policy": "compact",
    "compression.type": "zstd",
    # Only closed segments are compacted: the broker's 1 GB and a week keep hundreds of old values, and
    # a starting consumer has 3 s to read them.
    "segment.bytes": "4194304",
    "segment.ms": "3600000",
}
DECISION_TOPIC_CONFIG: Final = {
    **COMPACTED_TOPIC_CONFIG,
    "message.timestamp.type": "LogAppendTime",  # shows `trimtab doctor` how far clocks differ
}
CONTROL_TOPIC_PARTITIONS: Final = 1
CONTROL_READER_GROUP_ID: Final = "trimtab-sidecar-control-topics"  # never joined, so it needs no ACL
READ_BATCH_RECORDS: Final = 500
READ_BATCH_TIMEOUT_S: Final = 0.1
MIN_MESSAGE_LIMIT_BYTES: Final = MAX_RECORD_BYTES + 50_000  # for key and batch
MAX_REMEMBERED_RECORDS: Final = 1000  # that were skipped
FLUSH_GRACE_S: Final = 1.0  # librdkafka reports its own timeout first


class PlanStore(Protocol):
    """Storage of plans and write rates."""

    def read_plan(self) -> GroupPlan | None:
        """Return the group's newest plan; None without one. Raises BrokerTimeoutError."""
        ...

    def publish(self, values: Iterable[GroupPlan | TopicWriteRates]) -> None:
        """Write and wait for the acknowledgements. Raises BrokerTimeoutError."""
        ...


class ControlTopicStore:
    """Reads and writes the control topics of one group.

    The loop and the recorder's thread have one each: a failing decision topic delays no iteration.
    """

    def __init__(self, settings: SidecarSettings, admin: AdminClient) -> None:
        self._settings = settings
        self._admin = admin
        self._created_topics: set[str] = set()
        self._next_decision_offsets: dict[int, int] = {}  # by partition
        self._decision_parts = PartAssembler(settings.group)
        self._decisions_denied = False
        self._skipped_records: set[tuple[str | None, int | None, int | None]] = set()

    def read_plan(self) -> GroupPlan | None:
        """Return the group's newest plan; None without one. Raises BrokerTimeoutError."""
        messages = self._read_messages(self._settings.plan_topic, {})
        plans = list(self._decode_own(GroupPlan.decode, messages))
        return plans[-1] if plans else None

    def read_write_rates(self) -> dict[str, TopicWriteRates]:
        """Return the group's newest write rates by topic. Raises BrokerTimeoutError."""
        messages = self._read_messages(self._settings.write_rate_topic, {})
        return {rates.topic: rates for rates in self._decode_own(TopicWriteRates.decode, messages)}

    def read_decisions(self) -> tuple[DecisionRecord, ...]:
        """Return the group's stored decisions, the newest last. Raises BrokerTimeoutError."""
        messages = self._read_kind(DECISION_KEY_KIND)
        # until the topic is compacted it has several records of a slot: the last one is in force
        newest = {r.number % RECORD_SLOTS: r for r in self._decode_own(DecisionRecord.decode, messages)}
        return tuple(sorted(newest.values(), key=lambda r: r.number))

    def read_samples(self) -> tuple[SampleRecord, ...]:
        """Return the group's stored samples. Raises BrokerTimeoutError."""
        messages = self._read_kind(SAMPLE_KEY_KIND)
        return tuple({r.slot: r for r in self._decode_own(SampleRecord.decode, messages)}.values())

    def read_seasons(self) -> tuple[SeasonRecord, ...]:
        """Return the group's stored seasons. Raises BrokerTimeoutError."""
        messages = self._read_kind(SEASON_KEY_KIND)
        return tuple({r.slot: r for r in self._decode_own(SeasonRecord.decode, messages)}.values())

    def read_new_decisions(self) -> tuple[DecisionRecord, ...]:
        """Return the group's decisions since the last call, in order. Raises BrokerTimeoutError."""
        if self._decisions_denied:
            return ()
        messages: list[Message] = []
        offsets = dict(self._next_decision_offsets)
        try:
            for message in self._read_messages(self._settings.decision_topic, offsets):
                offsets[message.partition() or 0] = (message.offset() or 0) + 1
                if read_key_kind(message.key()) == DECISION_KEY_KIND:
                    messages.append(message)
            # last: after a timeout the next call reads the same records again
            self._next_decision_offsets = offsets
        except BrokerTimeoutError as error:
            cause = error.__cause__
            if not isinstance(cause, KafkaException) or not is_authorization_error(cause):
                raise
            # a missing right is not an outage: the sidecar works on, without peer detection
            self._decisions_denied = True
            log.warning("other sidecars of this group cannot be detected: %s", error)
        return tuple(self._decode_own(DecisionRecord.decode, messages, self._decision_parts))

    def publish(self, values: Iterable[GroupPlan | TopicWriteRates]) -> None:
        """Write and wait for the acknowledgements. Raises BrokerTimeoutError."""
        s = self._settings
        self._create_missing_topics(s.plan_topic, s.write_rate_topic)
        # after a timeout the values may have been written: the caller reads the plan back
        self._produce(
            (s.plan_topic if isinstance(v, GroupPlan) else s.write_rate_topic, *record)
            for v in values
            for record in split_value(v.group, v.key, v.encode())
        )

    def write_decision(self, record: DecisionRecord) -> None:
        """Write a decision and wait for the acknowledgement. Raises BrokerTimeoutError."""
        self._write_record(record)

    def write_sample(self, record: SampleRecord) -> None:
        """Write a sample and wait for the acknowledgement. Raises BrokerTimeoutError."""
        self._write_record(record)

    def write_season(self, record: SeasonRecord) -> None:
        """Write bins of a season and wait for the acknowledgement. Raises BrokerTimeoutError."""
        self._write_record(record)

    def _write_record(self, record: DecisionRecord | SampleRecord | SeasonRecord) -> None:
        self._create_missing_topics(self._settings.decision_topic)
        records = split_value(record.group, record.key, record.encode())
        self._produce((self._settings.decision_topic, *r) for r in records)

    def _produce(self, records: Iterable[tuple[str, str, bytes]]) -> None:
        failures: list[str] = []

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(_explain_write_failure(KafkaException(error), str(message.topic())))

        for topic, key, value in records:
            try:
                self._producer.produce(topic, value, key, on_delivery=on_delivery)
            except BufferError as error:
                raise BrokerTimeoutError(f"control topic {topic}: {error}") from error
            except KafkaException as error:
                failures.append(_explain_write_failure(error, topic))
        unacknowledged = self._producer.flush(self._settings.timeout + FLUSH_GRACE_S)
        if failures or unacknowledged:
            reason = failures[0] if failures else f"{format_count(unacknowledged, 'record')} not acknowledged"
            raise BrokerTimeoutError(f"control topics could not be written: {reason}")

    @cached_property  # a reader needs no right to write
    def _producer(self) -> Producer:
        return Producer(
            {
                **self._settings.client_config,
                **IDEMPOTENT_PRODUCER_SETTINGS,
                "compression.type": "zstd",
                "linger.ms": 5,
                "message.timeout.ms": int(self._settings.timeout * 1000),
            }
        )

    def _create_missing_topics(self, *names: str) -> None:
        s = self._settings
        topics = [
            NewTopic(name, CONTROL_TOPIC_PARTITIONS, s.replication_factor, config=self._get_config(name))
            for name in names
            if name not in self._created_topics
        ]
        if not topics:
            return
        for name, future in self._admin.create_topics(topics, request_timeout=s.timeout).items():
            try:
                future.result(timeout=s.timeout + FLUSH_GRACE_S)
                log.info("created the control topic %s", name)
            except (KafkaException, TimeoutError) as error:
                if not is_topic_exists_error(error):
                    raise BrokerTimeoutError(
                        f"control topic {name} could not be created: {_explain_create_failure(error, name)}"
                    ) from error
        self._created_topics.update(names)

    def _get_config(self, topic: str) -> dict[str, str]:
        is_decision_topic = topic == self._settings.decision_topic
        return dict(DECISION_TOPIC_CONFIG if is_decision_topic else COMPACTED_TOPIC_CONFIG)

    def _decode_own(
        self,
        decode: Callable[[bytes], ControlValueT],
        messages: Iterable[Message],
        assembler: PartAssembler | None = None,
    ) -> Iterator[ControlValueT]:
        assembler = assembler or PartAssembler(self._settings.group)
        for message in messages:
            try:
                # compaction keeps the tombstone of a deleted key for a while
                value = assembler.add_record(message.value() or b"")
                decoded = decode(value) if value else None
            except InvalidPayloadError as error:
                self._log_skipped(message, error)
                continue
            if decoded is not None and decoded.group == self._settings.group:
                yield decoded

    def _log_skipped(self, message: Message, error: InvalidPayloadError) -> None:
        record = (message.topic(), message.partition(), message.offset())
        if record not in self._skipped_records:  # a topic is read more than once
            log.warning("control topic %s-%s, offset %s: skipped: %s", *record, error)
        if len(self._skipped_records) >= MAX_REMEMBERED_RECORDS:
            self._skipped_records.clear()  # a repeated warning is cheaper than an LRU
        self._skipped_records.add(record)

    def _read_kind(self, kind: str) -> list[Message]:
        found = self._read_messages(self._settings.decision_topic, {})
        return [message for message in found if read_key_kind(message.key()) == kind]

    def _read_messages(self, topic: str, offsets: Mapping[int, int]) -> Iterator[Message]:
        """Yield the messages from these offsets (else all) up to the end; none without the topic."""
        consumer = Consumer(build_reader_config(self._settings))
        try:
            yield from self._consume_until_end(consumer, topic, offsets)
        except KafkaException as error:
            unreachable = explain_unreachable_brokers(error, self._settings.bootstrap)
            if unreachable is not None:
                raise NoBrokersAvailableError(unreachable) from error
            text = format_error_with_grant(error, f"Read on topic {topic}")
            raise BrokerTimeoutError(f"control topic {topic}: {text}") from error
        finally:
            consumer.close()

    def _consume_until_end(
        self, consumer: Consumer, topic: str, offsets: Mapping[int, int]
    ) -> Iterator[Message]:
        timeout = self._settings.timeout
        metadata = consumer.list_topics(topic, timeout=timeout).topics[topic]
        if metadata.error is not None:
            if metadata.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return
            raise_for_error(metadata.error)
        unfinished = set(metadata.partitions)
        consumer.assign([RawPartition(topic, p, offsets.get(p, OFFSET_BEGINNING)) for p in unfinished])
        silence = 0.0
        while unfinished:
            messages = consumer.consume(READ_BATCH_RECORDS, timeout=READ_BATCH_TIMEOUT_S)
            silence = 0.0 if messages else silence + READ_BATCH_TIMEOUT_S
            if silence > timeout:
                raise BrokerTimeoutError(f"control topic {topic}: no response in {timeout:g} s")
            unfinished -= {m.partition() for m in messages if is_partition_end(m)}
            yield from (m for m in messages if m.error() is None)


def raise_for_error(error: KafkaError | None) -> None:
    """Raise KafkaException for an error."""
    if error is not None:
        raise KafkaException(error)


def build_reader_config(settings: SidecarSettings) -> dict[str, Any]:
    """Return librdkafka's configuration of a reader of control topics."""
    return {
        **settings.client_config,
        "group.id": CONTROL_READER_GROUP_ID,  # librdkafka requires one
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",  # a recreated topic begins anew
        "fetch.wait.max.ms": 20,  # a longer wait meets the next value, never the end
    }


def is_partition_end(message: Message) -> bool:
    """Return whether the message marks the end of a partition. Raises KafkaException."""
    error = message.error()
    # librdkafka looks up the coordinator of any group, although this one is never joined
    if error is None or error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
        return False
    if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - the name it is documented by
        raise KafkaException(error)
    return True


def is_topic_exists_error(error: Any) -> bool:
    """Return whether a topic was there already."""
    inner: Any = error.args[0] if error.args else None
    return bool(hasattr(inner, "code") and inner.code() == KafkaError.TOPIC_ALREADY_EXISTS)


def _explain_write_failure(error: KafkaException, topic: str) -> str:
    if error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return (
            f"{topic}: {format_kafka_error(error)}; set max.message.bytes of topic {topic}, and "
            f"message.max.bytes of the sidecar's client, to at least {MIN_MESSAGE_LIMIT_BYTES}"
        )
    return f"{topic}: {format_error_with_grant(error, f'Write on topic {topic}')}"


def _explain_create_failure(error: Exception, topic: str) -> str:
    if not isinstance(error, KafkaException):
        return "no response in time"
    return format_error_with_grant(error, f"Create on topic {topic}")
