"""Reads the newest plan of the group and the newest write rates from the control topics.

Every member reads them, since any member may become the leader.
"""

import logging
from collections.abc import Callable, Mapping
from threading import Event, Thread
from typing import Any, Final, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Message
from confluent_kafka import Consumer as DataConsumer
from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.model import Load, TopicPartition
from trimtab.assignor.model.load_arrays import PartitionMeasurements, TopicMeasurements
from trimtab.assignor.model.partition_index import PartitionIndex
from trimtab.assignor.rebalance.leader import LeaderView
from trimtab.common.clock import Clock
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.record_parts import PartAssembler
from trimtab.common.control_topics.write_rates import TopicWriteRates
from trimtab.common.errors import InvalidPayloadError
from trimtab.consumer_sdk.client.settings import ConsumerSettings
from trimtab.consumer_sdk.log_rate_limit import LIBRDKAFKA_LOGGER, QUIET_LOG_LEVEL
from trimtab.consumer_sdk.membership.group_lag import GroupLag

log = logging.getLogger("trimtab.consumer_sdk")

# Their callbacks must run on the application's thread.
APPLICATION_CALLBACK_SETTINGS: Final = {
    "stats_cb", "error_cb", "on_commit", "throttle_cb", "statistics.interval.ms",
}  # fmt: skip

READER_SETTINGS: Final[Mapping[str, Any]] = {
    "logger": LIBRDKAFKA_LOGGER,
    "enable.partition.eof": True,
    # else librdkafka asks for a missing topic three times a second, for it might have just been created
    "topic.metadata.propagation.max.ms": 0,
}

CONTROL_TOPICS_READ_TIMEOUT_S: Final = 3.0  # delays the first join, which needs the load and plan in them
CONTROL_TOPIC_LOOKUP_INTERVAL_S: Final = 5.0  # of a missing control topic
CONTROL_TOPIC_POLL_S: Final = 0.19  # a record ends it, a stop does not; confluent-kafka wakes after 0.2 s
RETRY_DELAY_S: Final = 0.1
# librdkafka's close (2.16) was seen to spin for ever after its broker had gone.
CONTROL_CLIENT_CLOSE_TIMEOUT_S: Final = 5.0


class ControlTopicReader:
    """Newest values of the control topics, updated by a thread."""

    def __init__(
        self, settings: ConsumerSettings, clock: Clock, on_plan: Callable[[], object] = lambda: None
    ) -> None:
        self._on_plan = on_plan  # called on the reader's thread
        self.plan: GroupPlan | None = None
        self._write_rates: dict[str, _TopicMeasurement] = {}
        self._part_assemblers: dict[str | None, PartAssembler] = {}  # by control topic
        self._settings = settings
        self._clock = clock
        self._closing = Event()
        self._missing_topics = {t for t in (settings.plan_topic, settings.write_rate_topic) if t}
        self._next_lookup_at = clock.monotonic()
        self._group_lag = GroupLag(settings.group, settings.librdkafka_config)
        self._unread_partitions: set[tuple[str | None, int | None]] = set()
        self._is_reading = False
        self._initial_read_done = Event()  # also set if there is nothing to read
        self._denied_topics: set[str] = set()
        self._consumer: DataConsumer | None = None  # of the thread
        self._thread = Thread(target=self._read_topics, name="trimtab-control-topics", daemon=True)

    def start(self) -> None:
        """Start to read."""
        if self._missing_topics:
            self._thread.start()
        else:
            self._initial_read_done.set()

    def wait_until_read(self, timeout: float) -> bool:
        """Wait until the records that existed at the start are read; return whether they are."""
        return self._initial_read_done.wait(timeout)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use these at the next login of each connection."""
        if self._consumer is not None:  # else the settings have them
            self._consumer.set_sasl_credentials(username, password)

    def stop(self) -> None:
        """End the thread; abandon it if its client does not close in time."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(CONTROL_CLIENT_CLOSE_TIMEOUT_S)

    def build_leader_view(self) -> LeaderView:
        """Return the plan, and the load without rates older than `trimtab.write.rate.max.age`."""
        horizon = self._clock.wall() - self._settings.write_rate_max_age
        # A tuple, since the reader's thread may add a topic meanwhile.
        newest = {t: s for t, s in tuple(self._write_rates.items()) if s.time >= horizon}
        write_rates = PartitionMeasurements({topic: s.write_rate for topic, s in newest.items()})
        lags = PartitionMeasurements({topic: s.lag for topic, s in newest.items()})
        deviations = PartitionMeasurements({topic: s.deviation for topic, s in newest.items()})
        return LeaderView(Load(write_rates, lags, deviations), self.plan, load_lags=self.load_lags)

    def load_lags(self, partition_index: PartitionIndex) -> Mapping[TopicPartition, int]:
        """Ask the brokers for the lag of each partition, for `LAG_TIMEOUT_S` at most."""
        return self._group_lag.measure(partition_index)

    def apply_record(self, message: Message) -> None:
        """Apply one record of a control topic."""
        topic = message.topic()
        assembler = self._part_assemblers.setdefault(topic, PartAssembler(self._settings.group))
        try:
            # empty: a tombstone or the part of a value; the previous value stays in force
            if value := assembler.add_record(message.value() or b""):
                self._apply_value(topic, value)
        except InvalidPayloadError as error:
            log.warning("%s, offset %s: skipped: %s", topic, message.offset(), error)

    def _apply_value(self, topic: str | None, value: bytes) -> None:
        # One topic holds the values of all groups.
        if topic == self._settings.plan_topic:
            plan = GroupPlan.decode(value)
            if plan.group == self._settings.group:
                self.plan = plan
                self._on_plan()
        else:
            rates = TopicWriteRates.decode(value)
            if rates.group == self._settings.group:
                self._write_rates[rates.topic] = _to_measurement(rates)

    def _read_topics(self) -> None:
        config = self._settings.librdkafka_config
        own = {name: value for name, value in config.items() if name not in APPLICATION_CALLBACK_SETTINGS}
        # Quiet, since the consumer beside it reports brokers that it cannot reach.
        consumer = DataConsumer({"log_level": QUIET_LOG_LEVEL, **own, **READER_SETTINGS})
        self._consumer = consumer
        try:
            while not self._closing.is_set():
                try:
                    self._run_iteration(consumer)
                except Exception as error:  # noqa: BLE001 - a dead thread would leave an outdated plan
                    log.warning("control topics: %r; retrying", error)
                    self._closing.wait(RETRY_DELAY_S)
        finally:  # may hang in librdkafka, which is why stop() waits for a limited time
            consumer.close()

    def _run_iteration(self, consumer: DataConsumer) -> None:
        # A missing topic may appear: a sidecar creates it when it starts.
        if self._missing_topics and self._clock.monotonic() >= self._next_lookup_at:
            self._look_up_topics(consumer)
        if not self._is_reading:
            self._closing.wait(max(0.0, self._next_lookup_at - self._clock.monotonic()))
            return
        for message in _read_records(consumer):
            error = message.error()
            if error is None:
                self.apply_record(message)
                continue
            denied = error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
            if denied:
                self._log_denied_topics({str(message.topic())})
            if denied or error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                self._unread_partitions.discard((message.topic(), message.partition()))
        # Each partition has reported its end (enable.partition.eof).
        if not self._unread_partitions:
            self._initial_read_done.set()

    def _look_up_topics(self, consumer: DataConsumer) -> None:
        found, denied = _list_control_partitions(consumer, self._missing_topics)
        self._log_denied_topics(denied)
        if found:
            consumer.incremental_assign(found)
            self._is_reading = True
            self._missing_topics -= {p.topic for p in found}
            self._unread_partitions |= {(p.topic, p.partition) for p in found}
        elif not self._unread_partitions:
            self._initial_read_done.set()
        self._next_lookup_at = self._clock.monotonic() + CONTROL_TOPIC_LOOKUP_INTERVAL_S

    def _log_denied_topics(self, topics: set[str]) -> None:
        for topic in sorted(topics - self._denied_topics):
            log.warning(
                "no permission to read control topic %s, so the sidecar's plans or write rates are ignored; "
                "grant Read on topic %s",
                topic,
                topic,
            )
        self._denied_topics |= topics


class _TopicMeasurement(NamedTuple):
    """Newest measurement of one topic; arrays, since a leader computes on thousands of partitions."""

    time: float
    write_rate: TopicMeasurements
    lag: TopicMeasurements
    deviation: TopicMeasurements


def _to_measurement(rates: TopicWriteRates) -> _TopicMeasurement:
    partitions = rates.partitions.items()
    lag = {n: s.backlog_records for n, s in partitions if s.backlog_records is not None}
    return _TopicMeasurement(
        rates.time,
        TopicMeasurements.from_values({n: s.weight for n, s in partitions}),
        TopicMeasurements.from_values(lag),
        TopicMeasurements.from_values({n: s.stddev_bytes_per_s for n, s in partitions}),
    )


def _read_records(consumer: DataConsumer) -> list[Message]:
    first = consumer.poll(CONTROL_TOPIC_POLL_S)  # `consume` of many would wait for as many
    return [] if first is None else [first, *consumer.consume(100, timeout=0)]


def _list_control_partitions(consumer: DataConsumer, topics: set[str]) -> tuple[list[RawPartition], set[str]]:
    """Return the topics' partitions, and the topics without permission to read."""
    found: list[RawPartition] = []
    denied: set[str] = set()
    # One by one: without a name list_topics returns the metadata of the whole cluster.
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
