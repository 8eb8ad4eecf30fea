"""The control topics: made when missing, written with care, read back at the start.

All are compacted: the newest value of a key is the truth, and what a killed sidecar knew is there
for the next one. Plans and speeds are what the loop needs; verdicts are for people, and have a
board of their own (`recorder`), so that whatever is wrong with them holds nothing up.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final, Protocol

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
)
from confluent_kafka import TopicPartition as RawPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from trimtab.common.control_topics.values import GroupPlan, WriteSpeeds
from trimtab.common.errors import BadPayload
from trimtab.sidecar.errors import KafkaAway, NoBroker
from trimtab.sidecar.kafka.broker_client import granting, is_denied, unreachable
from trimtab.sidecar.reporting.decision_record import SLOTS, VerdictRecord
from trimtab.sidecar.settings.settings import Settings

log = logging.getLogger("trimtab.sidecar")

SHAPE: Final = {"cleanup.policy": "compact", "compression.type": "zstd"}
SHORT: Final = {**SHAPE, "segment.ms": "3600000", "message.timestamp.type": "LogAppendTime"}
"""Of verdicts, which come with each turn: only what is not written to any more is compacted. The
broker's own times tell `trimtab doctor` how far apart clocks are."""

PARTITIONS: Final = 1
BOARD: Final = "trimtab-sidecar-board"
"""Group of the reader of the control topics, which needs no right."""

BATCH: Final = 500  # records read at once
MOMENT: Final = 0.1  # seconds that a batch may take to fill


class Board(Protocol):
    """Where plans and speeds are published and read back."""

    def plan(self) -> GroupPlan | None:
        """Return the newest plan of the group. Raises KafkaAway."""
        ...

    def publish(self, values: Iterable[GroupPlan | WriteSpeeds]) -> None:
        """Write and wait until all are safe. Raises KafkaAway."""
        ...


class ControlTopics:
    """The board that Kafka keeps."""

    def __init__(self, settings: Settings, admin: AdminClient) -> None:
        self._settings = settings
        self._admin = admin
        self._made: set[str] = set()
        self._heard: dict[int, int] = {}  # partition of the verdict topic -> offset to go on from
        self._denied = False

    def plan(self) -> GroupPlan | None:
        """Return the newest plan of the group; None if there never was one. Raises KafkaAway."""
        newest: GroupPlan | None = None
        for value in self._values(self._settings.plan_topic):
            plan = _plan(value)
            if plan is not None and plan.group == self._settings.group:
                newest = plan
        return newest

    def speeds(self) -> dict[str, WriteSpeeds]:
        """Return the newest published speeds of the group, by topic. Raises KafkaAway."""
        newest: dict[str, WriteSpeeds] = {}
        for value in self._values(self._settings.speed_topic):
            speeds = _speeds(value)
            if speeds is not None and speeds.group == self._settings.group:
                newest[speeds.topic] = speeds
        return newest

    def verdicts(self) -> tuple[VerdictRecord, ...]:
        """Return the verdicts of the group that are kept, the newest last. Raises KafkaAway."""
        kept: dict[int, VerdictRecord] = {}
        for value in self._values(self._settings.verdict_topic):
            record = _verdict(value)
            if record is not None and record.group == self._settings.group:
                kept[record.number % SLOTS] = record
        return tuple(sorted(kept.values(), key=lambda r: r.number))

    def news(self) -> tuple[VerdictRecord, ...]:
        """Return the group's verdicts that were left since the last look, in order.

        None where they may not be read, which is logged once. Raises KafkaAway.
        """
        if self._denied:
            return ()
        found: list[VerdictRecord] = []
        try:
            for message in self._messages(self._settings.verdict_topic, self._heard):
                self._heard[message.partition() or 0] = (message.offset() or 0) + 1
                record = _verdict(message.value() or b"")
                if record is not None and record.group == self._settings.group:
                    found.append(record)
        except KafkaAway as error:
            self._denied = isinstance(error.__cause__, KafkaException) and is_denied(
                error.__cause__
            )
            if not self._denied:
                raise
            log.warning("whether another sidecar steers this group cannot be known: %s", error)
        return tuple(found)

    def publish(self, values: Iterable[GroupPlan | WriteSpeeds]) -> None:
        """Write and wait until all are safe; makes the topics when they are missing.

        Raises KafkaAway; what was written then is unknown, and read back before the next plan is
        made.
        """
        self._make(self._settings.plan_topic, self._settings.speed_topic)
        self._write((self._topic(value), value.key, value.encode()) for value in values)

    def record(self, verdict: VerdictRecord) -> None:
        """Write a verdict, as `publish` writes. Raises KafkaAway."""
        self._make(self._settings.verdict_topic)
        self._write([(self._settings.verdict_topic, verdict.key, verdict.encode())])

    def _write(self, records: Iterable[tuple[str, str, bytes]]) -> None:
        failed: list[str] = []

        def told(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                topic = message.topic()
                said = granting(KafkaException(error), f"Write on topic {topic}")
                failed.append(f"{topic}: {said}")

        for topic, key, value in records:
            try:
                self._producer.produce(topic, value, key, on_delivery=told)
            except BufferError as error:
                raise KafkaAway(f"control topic {topic}: {error}") from error
        left = self._producer.flush(self._settings.timeout + 1)
        if failed or left:
            what = failed[0] if failed else f"{left} records unanswered"
            raise KafkaAway(f"control topics could not be written: {what}")

    @cached_property
    def _producer(self) -> Producer:
        """Made when something is written: one who only reads needs no right to write."""
        return Producer(
            {
                **self._settings.client,
                "enable.idempotence": True,
                "compression.type": "zstd",
                "linger.ms": 5,
                "message.timeout.ms": int(self._settings.timeout * 1000),
            }
        )

    def _topic(self, value: GroupPlan | WriteSpeeds) -> str:
        plan = isinstance(value, GroupPlan)
        return self._settings.plan_topic if plan else self._settings.speed_topic

    def _make(self, *names: str) -> None:
        wanted = [
            NewTopic(name, PARTITIONS, self._settings.replication_factor, config=self._shape(name))
            for name in names
            if name not in self._made
        ]
        if not wanted:
            return
        asked = self._admin.create_topics(wanted, request_timeout=self._settings.timeout)
        for name, answer in asked.items():
            try:
                answer.result(timeout=self._settings.timeout + 1)
                log.info("made the control topic %s", name)
            except (KafkaException, TimeoutError) as error:
                if not _exists(error):
                    raise KafkaAway(
                        f"control topic {name} cannot be made: {_said(error, name)}"
                    ) from error
        self._made.update(names)

    def _shape(self, name: str) -> dict[str, str]:
        return dict(SHORT if name == self._settings.verdict_topic else SHAPE)

    def _values(self, topic: str) -> Iterator[bytes]:
        """Yield every value of a topic up to its present end; none if it does not exist."""
        return (v for m in self._messages(topic, {}) if (v := m.value()) is not None)

    def _messages(self, topic: str, begin: Mapping[int, int]) -> Iterator[Message]:
        """Yield the messages from these offsets (else all) up to the present end."""
        consumer = Consumer(
            {
                **self._settings.client,
                "group.id": BOARD,  # librdkafka wants one; it is never joined
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",  # a topic that was made anew begins anew
                "fetch.wait.max.ms": 20,  # a longer wait meets the next value, never the end
            }
        )
        try:
            yield from self._read(consumer, topic, begin)
        except KafkaException as error:
            away = unreachable(error, self._settings.bootstrap)
            if away is not None:
                raise NoBroker(away) from error
            said = granting(error, f"Read on topic {topic}")
            raise KafkaAway(f"control topic {topic}: {said}") from error
        finally:
            consumer.close()

    def _read(self, consumer: Consumer, topic: str, begin: Mapping[int, int]) -> Iterator[Message]:
        metadata = consumer.list_topics(topic, timeout=self._settings.timeout).topics[topic]
        if metadata.error is not None:
            if metadata.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return
            raise KafkaException(metadata.error)
        open_partitions = set(metadata.partitions)
        consumer.assign(
            [RawPartition(topic, p, begin.get(p, OFFSET_BEGINNING)) for p in open_partitions]
        )
        silent = 0.0
        while open_partitions:
            messages = consumer.consume(BATCH, timeout=MOMENT)
            silent = 0.0 if messages else silent + MOMENT
            if silent > self._settings.timeout:
                raise KafkaAway(f"control topic {topic}: no answer in {self._settings.timeout:g} s")
            ended = {m.partition() for m in messages if _is_end(m)}
            open_partitions -= ended
            yield from (m for m in messages if m.error() is None)


def _is_end(message: Message) -> bool:
    """Tell whether this marks the end of a partition. Raises KafkaException for any other error.

    librdkafka looks for the coordinator of every reader's group; this one needs none.
    """
    error = message.error()
    if error is None or error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
        return False
    if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - the name it is documented by
        raise KafkaException(error)
    return True


def _plan(value: bytes) -> GroupPlan | None:
    try:
        return GroupPlan.decode(value)
    except BadPayload as error:
        log.warning("a plan is skipped: %s", error)
        return None


def _speeds(value: bytes) -> WriteSpeeds | None:
    try:
        return WriteSpeeds.decode(value)
    except BadPayload as error:
        log.warning("write speeds are skipped: %s", error)
        return None


def _verdict(value: bytes) -> VerdictRecord | None:
    try:
        return VerdictRecord.decode(value)
    except BadPayload as error:
        log.warning("a verdict is skipped: %s", error)
        return None


def _exists(error: Any) -> bool:
    inner: Any = error.args[0] if error.args else None
    return bool(hasattr(inner, "code") and inner.code() == KafkaError.TOPIC_ALREADY_EXISTS)


def _said(error: Exception, topic: str) -> str:
    if not isinstance(error, KafkaException):
        return "no answer in time"
    return granting(error, f"Create on topic {topic}")
