"""The control topics: made when missing, written with care, read back at the start.

All are compacted: the newest value of a key is the truth, and what a killed sidecar knew is there
for the next one. Plans and speeds are what the loop needs; verdicts are for people, and have a
board of their own (`recorder`), so that whatever is wrong with them holds nothing up.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final, Protocol

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as RawPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import TopicWriteRates
from trimtab.common.errors import InvalidPayloadError
from trimtab.sidecar.errors import BrokerTimeoutError, NoBrokersAvailableError
from trimtab.sidecar.kafka.broker_client import (
    explain_unreachable_brokers,
    format_error_with_grant,
    is_authorization_error,
)
from trimtab.sidecar.reporting.decision_record import RECORD_SLOTS, DecisionRecord
from trimtab.sidecar.settings.settings import SidecarSettings

log = logging.getLogger("trimtab.sidecar")

COMPACTED_TOPIC_CONFIG: Final = {"cleanup.policy": "compact", "compression.type": "zstd"}
DECISION_TOPIC_CONFIG: Final = {
    **COMPACTED_TOPIC_CONFIG,
    "segment.ms": "3600000",
    "message.timestamp.type": "LogAppendTime",
}
"""Of verdicts, which come with each turn: only what is not written to any more is compacted. The
broker's own times tell `trimtab doctor` how far apart clocks are."""

CONTROL_TOPIC_PARTITIONS: Final = 1
CONTROL_READER_GROUP_ID: Final = "trimtab-sidecar-control-topics"
"""Group of the reader of the control topics, which needs no right."""

READ_BATCH_RECORDS: Final = 500  # records read at once
READ_BATCH_TIMEOUT_S: Final = 0.1  # seconds that a batch may take to fill


class PlanStore(Protocol):
    """Where plans and speeds are published and read back."""

    def read_plan(self) -> GroupPlan | None:
        """Return the newest plan of the group. Raises BrokerTimeoutError."""
        ...

    def publish(self, values: Iterable[GroupPlan | TopicWriteRates]) -> None:
        """Write and wait until all are safe. Raises BrokerTimeoutError."""
        ...


class ControlTopicStore:
    """The board that Kafka keeps."""

    def __init__(self, settings: SidecarSettings, admin: AdminClient) -> None:
        self._settings = settings
        self._admin = admin
        self._created_topics: set[str] = set()
        self._next_decision_offsets: dict[
            int, int
        ] = {}  # partition of the verdict topic -> offset to go on from
        self._decisions_denied = False

    def read_plan(self) -> GroupPlan | None:
        """Return the newest plan of the group.

        None if there never was one. Raises BrokerTimeoutError.
        """
        newest: GroupPlan | None = None
        for value in self._read_values(self._settings.plan_topic):
            plan = _decode_plan(value)
            if plan is not None and plan.group == self._settings.group:
                newest = plan
        return newest

    def read_write_rates(self) -> dict[str, TopicWriteRates]:
        """Return the newest published speeds of the group, by topic. Raises BrokerTimeoutError."""
        newest: dict[str, TopicWriteRates] = {}
        for value in self._read_values(self._settings.write_rate_topic):
            speeds = _decode_write_rates(value)
            if speeds is not None and speeds.group == self._settings.group:
                newest[speeds.topic] = speeds
        return newest

    def read_decisions(self) -> tuple[DecisionRecord, ...]:
        """Return the verdicts of the group that are kept, the newest last.

        Raises BrokerTimeoutError.
        """
        kept: dict[int, DecisionRecord] = {}
        for value in self._read_values(self._settings.decision_topic):
            record = _decode_decision(value)
            if record is not None and record.group == self._settings.group:
                kept[record.number % RECORD_SLOTS] = record
        return tuple(sorted(kept.values(), key=lambda r: r.number))

    def read_new_decisions(self) -> tuple[DecisionRecord, ...]:
        """Return the group's verdicts that were left since the last look, in order.

        None where they may not be read, which is logged once. Raises BrokerTimeoutError.
        """
        if self._decisions_denied:
            return ()
        found: list[DecisionRecord] = []
        try:
            for message in self._read_messages(self._settings.decision_topic, self._next_decision_offsets):
                self._next_decision_offsets[message.partition() or 0] = (message.offset() or 0) + 1
                record = _decode_decision(message.value() or b"")
                if record is not None and record.group == self._settings.group:
                    found.append(record)
        except BrokerTimeoutError as error:
            self._decisions_denied = isinstance(error.__cause__, KafkaException) and is_authorization_error(
                error.__cause__
            )
            if not self._decisions_denied:
                raise
            log.warning("whether another sidecar steers this group cannot be known: %s", error)
        return tuple(found)

    def publish(self, values: Iterable[GroupPlan | TopicWriteRates]) -> None:
        """Write and wait until all are safe; makes the topics when they are missing.

        Raises BrokerTimeoutError; what was written then is unknown, and read back before the next
        plan is made.
        """
        self._create_missing_topics(self._settings.plan_topic, self._settings.write_rate_topic)
        self._produce_records((self._select_topic(value), value.key, value.encode()) for value in values)

    def write_decision(self, record: DecisionRecord) -> None:
        """Write a verdict, as `publish` writes. Raises BrokerTimeoutError."""
        self._create_missing_topics(self._settings.decision_topic)
        self._produce_records([(self._settings.decision_topic, record.key, record.encode())])

    def _produce_records(self, records: Iterable[tuple[str, str, bytes]]) -> None:
        failed: list[str] = []

        def told(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                topic = message.topic()
                said = format_error_with_grant(KafkaException(error), f"Write on topic {topic}")
                failed.append(f"{topic}: {said}")

        for topic, key, value in records:
            try:
                self._producer.produce(topic, value, key, on_delivery=told)
            except BufferError as error:
                raise BrokerTimeoutError(f"control topic {topic}: {error}") from error
        left = self._producer.flush(self._settings.timeout + 1)
        if failed or left:
            what = failed[0] if failed else f"{left} records unanswered"
            raise BrokerTimeoutError(f"control topics could not be written: {what}")

    @cached_property
    def _producer(self) -> Producer:
        """Made when something is written: one who only reads needs no right to write."""
        return Producer(
            {
                **self._settings.client_config,
                "enable.idempotence": True,
                "compression.type": "zstd",
                "linger.ms": 5,
                "message.timeout.ms": int(self._settings.timeout * 1000),
            }
        )

    def _select_topic(self, value: GroupPlan | TopicWriteRates) -> str:
        plan = isinstance(value, GroupPlan)
        return self._settings.plan_topic if plan else self._settings.write_rate_topic

    def _create_missing_topics(self, *names: str) -> None:
        wanted = [
            NewTopic(
                name,
                CONTROL_TOPIC_PARTITIONS,
                self._settings.replication_factor,
                config=self._get_topic_config(name),
            )
            for name in names
            if name not in self._created_topics
        ]
        if not wanted:
            return
        asked = self._admin.create_topics(wanted, request_timeout=self._settings.timeout)
        for name, answer in asked.items():
            try:
                answer.result(timeout=self._settings.timeout + 1)
                log.info("made the control topic %s", name)
            except (KafkaException, TimeoutError) as error:
                if not _is_topic_exists_error(error):
                    raise BrokerTimeoutError(
                        f"control topic {name} cannot be made: {_explain_create_failure(error, name)}"
                    ) from error
        self._created_topics.update(names)

    def _get_topic_config(self, name: str) -> dict[str, str]:
        return dict(
            DECISION_TOPIC_CONFIG if name == self._settings.decision_topic else COMPACTED_TOPIC_CONFIG
        )

    def _read_values(self, topic: str) -> Iterator[bytes]:
        """Yield every value of a topic up to its present end; none if it does not exist."""
        return (v for m in self._read_messages(topic, {}) if (v := m.value()) is not None)

    def _read_messages(self, topic: str, begin: Mapping[int, int]) -> Iterator[Message]:
        """Yield the messages from these offsets (else all) up to the present end."""
        consumer = Consumer(
            {
                **self._settings.client_config,
                "group.id": CONTROL_READER_GROUP_ID,  # librdkafka wants one; it is never joined
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",  # a topic that was made anew begins anew
                "fetch.wait.max.ms": 20,  # a longer wait meets the next value, never the end
            }
        )
        try:
            yield from self._consume_until_end(consumer, topic, begin)
        except KafkaException as error:
            away = explain_unreachable_brokers(error, self._settings.bootstrap)
            if away is not None:
                raise NoBrokersAvailableError(away) from error
            said = format_error_with_grant(error, f"Read on topic {topic}")
            raise BrokerTimeoutError(f"control topic {topic}: {said}") from error
        finally:
            consumer.close()

    def _consume_until_end(
        self, consumer: Consumer, topic: str, begin: Mapping[int, int]
    ) -> Iterator[Message]:
        metadata = consumer.list_topics(topic, timeout=self._settings.timeout).topics[topic]
        if metadata.error is not None:
            if metadata.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return
            raise KafkaException(metadata.error)
        open_partitions = set(metadata.partitions)
        consumer.assign([RawPartition(topic, p, begin.get(p, OFFSET_BEGINNING)) for p in open_partitions])
        silent = 0.0
        while open_partitions:
            messages = consumer.consume(READ_BATCH_RECORDS, timeout=READ_BATCH_TIMEOUT_S)
            silent = 0.0 if messages else silent + READ_BATCH_TIMEOUT_S
            if silent > self._settings.timeout:
                raise BrokerTimeoutError(f"control topic {topic}: no answer in {self._settings.timeout:g} s")
            ended = {m.partition() for m in messages if _is_partition_end(m)}
            open_partitions -= ended
            yield from (m for m in messages if m.error() is None)


def _is_partition_end(message: Message) -> bool:
    """Tell whether this marks the end of a partition. Raises KafkaException for any other error.

    librdkafka looks for the coordinator of every reader's group; this one needs none.
    """
    error = message.error()
    if error is None or error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
        return False
    if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - the name it is documented by
        raise KafkaException(error)
    return True


def _decode_plan(value: bytes) -> GroupPlan | None:
    try:
        return GroupPlan.decode(value)
    except InvalidPayloadError as error:
        log.warning("a plan is skipped: %s", error)
        return None


def _decode_write_rates(value: bytes) -> TopicWriteRates | None:
    try:
        return TopicWriteRates.decode(value)
    except InvalidPayloadError as error:
        log.warning("write speeds are skipped: %s", error)
        return None


def _decode_decision(value: bytes) -> DecisionRecord | None:
    try:
        return DecisionRecord.decode(value)
    except InvalidPayloadError as error:
        log.warning("a verdict is skipped: %s", error)
        return None


def _is_topic_exists_error(error: Any) -> bool:
    inner: Any = error.args[0] if error.args else None
    return bool(hasattr(inner, "code") and inner.code() == KafkaError.TOPIC_ALREADY_EXISTS)


def _explain_create_failure(error: Exception, topic: str) -> str:
    if not isinstance(error, KafkaException):
        return "no answer in time"
    return format_error_with_grant(error, f"Create on topic {topic}")
