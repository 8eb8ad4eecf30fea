"""Reads the two control topics: the newest plan of our group, the newest speeds of its topics.

Every member reads them, since any member may become the leader. A topic that does not exist (no
sidecar) is looked for again now and then; a value that cannot be decoded is skipped, the one before
stays in force.
"""

import logging
from collections.abc import Sequence
from threading import Event, Thread
from typing import Final, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Message
from confluent_kafka import Consumer as DataConsumer
from confluent_kafka import TopicPartition as RawPartition
from confluent_kafka.admin import AdminClient

from trimtab.assignor.load_arrays import Column, Measured
from trimtab.assignor.model import Load, TopicPartition
from trimtab.assignor.rebalance.leader import View
from trimtab.common.clock import Clock
from trimtab.common.control_topics.values import GroupPlan, WriteSpeeds
from trimtab.common.errors import BadPayload
from trimtab.common.kafka_security import connection
from trimtab.consumer_sdk.consumer.settings import Settings
from trimtab.consumer_sdk.log_rate_limit import LIBRDKAFKA
from trimtab.consumer_sdk.membership.group_lag import measure

log = logging.getLogger("trimtab.consumer_sdk")

LAG_AWARE: Final = "lag-aware"
APPLICATIONS: Final = {"stats_cb", "error_cb", "throttle_cb", "logger", "statistics.interval.ms"}
"""Settings whose callbacks belong to the application's thread."""

LOOK_AGAIN: Final = 5.0
"""Seconds between two looks for a control topic that does not exist."""

TURN: Final = 0.1
"""Seconds of one turn: how late a new plan can be noticed."""

LEAVING: Final = 5.0
"""Seconds in which the client must have let go at the end."""


class ControlTopics:
    """The newest values, kept up to date by a thread of its own."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.plan: GroupPlan | None = None
        self._speeds: dict[str, _Columns] = {}
        self._settings = settings
        self._clock = clock
        self._closing = Event()
        self._wanted = {t for t in (settings.plan_topic, settings.speed_topic) if t}
        self._look_at = clock.monotonic()
        self._topics: Sequence[str] = ()
        self._lags: dict[TopicPartition, int] = {}
        self._unread: set[tuple[str | None, int | None]] = set()
        self._read = Event()
        self._denied: set[str] = set()
        self._thread = Thread(target=self._run, name="trimtab-control-topics", daemon=True)

    def start(self, topics: Sequence[str] = ()) -> None:
        """Begin to read; `topics` are those whose lags a lag-aware leader must know."""
        self._topics = topics if self._settings.heuristic == LAG_AWARE else ()
        if self._wanted or self._topics:
            self._thread.start()
        else:
            self._read.set()

    def wait(self, timeout: float) -> bool:
        """Wait until everything that there was at the start is read; True if it is."""
        return self._read.wait(timeout)

    def stop(self) -> None:
        """End the thread; leave it behind where its client does not let go.

        librdkafka's close (2.16) was seen to spin for ever once its broker had gone.
        """
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(LEAVING)

    def view(self) -> View:
        """Return what the leader may know; speeds past `trimtab.speed.max.age` are unknown."""
        horizon = self._clock.wall() - self._settings.speed_max_age
        newest = {t: s for t, s in tuple(self._speeds.items()) if s.time >= horizon}
        speeds = Measured({topic: s.speed for topic, s in newest.items()})
        lags = Measured({topic: s.lag for topic, s in newest.items()})
        known = {**self._lags, **dict(lags.pairs())} if self._lags else lags
        deviations = Measured({topic: s.deviation for topic, s in newest.items()})
        return View(Load(speeds, known, deviations), self.plan)

    def take(self, message: Message) -> None:
        """Take in one record of a control topic."""
        value = message.value()
        if value is None:
            return
        try:
            if message.topic() == self._settings.plan_topic:
                self._take_plan(GroupPlan.decode(value))
            else:
                self._take_speeds(WriteSpeeds.decode(value))
        except BadPayload as error:
            log.warning("%s, offset %s: skipped: %s", message.topic(), message.offset(), error)

    def _take_plan(self, plan: GroupPlan) -> None:
        if plan.group == self._settings.group:
            self.plan = plan

    def _take_speeds(self, speeds: WriteSpeeds) -> None:
        if speeds.group == self._settings.group:
            self._speeds[speeds.topic] = _columns(speeds)

    def _run(self) -> None:
        own = {k: v for k, v in self._settings.data.items() if k not in APPLICATIONS}
        consumer = DataConsumer({**own, "logger": LIBRDKAFKA, "enable.partition.eof": True})
        try:
            while not self._closing.is_set():
                self._try_turn(consumer)
        finally:
            consumer.close()

    def _try_turn(self, consumer: DataConsumer) -> None:
        try:
            self._turn(consumer)
        except Exception as error:  # noqa: BLE001 - whatever it was, the plan must not go stale
            log.warning("control topics: %r; reading on", error)
            self._closing.wait(TURN)

    def _turn(self, consumer: DataConsumer) -> None:
        if (self._wanted or self._topics) and self._clock.monotonic() >= self._look_at:
            self._look(consumer)
        if not consumer.assignment():
            self._closing.wait(TURN)
            return
        for message in consumer.consume(100, timeout=TURN):
            error = message.error()
            if error is None:
                self.take(message)
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                self._unread.discard((message.topic(), message.partition()))
            elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                self._deny({str(message.topic())})
                self._unread.discard((message.topic(), message.partition()))
        if not self._unread:
            self._read.set()

    def _look(self, consumer: DataConsumer) -> None:
        if self._topics:
            self._measure(consumer)
        found, denied = _partitions_of(consumer, self._wanted)
        self._deny(denied)
        if found:
            consumer.incremental_assign(found)
            self._wanted -= {p.topic for p in found}
            self._unread |= {(p.topic, p.partition) for p in found}
        elif not self._unread:
            self._read.set()
        self._look_at = self._clock.monotonic() + LOOK_AGAIN

    def _deny(self, topics: set[str]) -> None:
        """Say once that a control topic may not be read: without it no plan is followed."""
        for topic in sorted(topics - self._denied):
            log.warning(
                "control topic %s may not be read, so no sidecar's word is followed; grant Read on "
                "topic %s",
                topic,
                topic,
            )
        self._denied |= topics

    def _measure(self, consumer: DataConsumer) -> None:
        reset = str(self._settings.data.get("auto.offset.reset", "latest"))
        try:
            self._lags = measure(
                consumer,
                AdminClient({**connection.of(self._settings.data), "log_level": 2}),
                self._topics,
                from_beginning=reset in ("earliest", "smallest", "beginning"),
            )
        except KafkaException as error:
            log.warning("lags are not known, so the last ones count: %s", error)


class _Columns(NamedTuple):
    """One topic's newest measurement in arrays, so that a rebalance finds them ready."""

    time: float
    speed: Column
    lag: Column
    deviation: Column


def _columns(measured: WriteSpeeds) -> _Columns:
    speed = {n: s.weight for n, s in measured.partitions.items()}
    lag = {n: s.backlog_records for n, s in measured.partitions.items()}
    deviation = {n: s.deviation_bytes_per_s for n, s in measured.partitions.items()}
    return _Columns(
        measured.time,
        Column.of(speed),
        Column.of({n: v for n, v in lag.items() if v is not None}),
        Column.of(deviation),
    )


def _partitions_of(consumer: DataConsumer, topics: set[str]) -> tuple[list[RawPartition], set[str]]:
    """Return the partitions of topics, and the topics that we may not see."""
    found: list[RawPartition] = []
    denied: set[str] = set()
    for topic in topics:
        try:
            metadata = consumer.list_topics(topic, timeout=5).topics[topic]
        except KafkaException as error:
            log.debug("control topic %s: %s", topic, error)
            continue
        if metadata.error is None:
            found += [RawPartition(topic, p, OFFSET_BEGINNING) for p in metadata.partitions]
        elif metadata.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            denied.add(topic)
    return found, denied
