"""Group monitor, control topics and what-if measurement on a real broker."""

from collections.abc import Callable, Iterator
from threading import Event, Thread
from time import monotonic, time
from typing import Any, Protocol

import numpy as np
import pytest
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka import TopicPartition as RawPartition
from confluent_kafka.admin import AdminClient

from support.steady import SIZE, steady
from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import SystemClock
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad, TopicWriteRates
from trimtab.consumer_sdk.consumer.consumer import Consumer as ConsumerOfSdk
from trimtab.sidecar.diagnostics.group_snapshot import LiveGroupReader
from trimtab.sidecar.diagnostics.what_if import evaluate_heuristics, measure_baseline
from trimtab.sidecar.errors import BrokerTimeoutError, SidecarSettingError
from trimtab.sidecar.kafka.broker_client import BrokerClient
from trimtab.sidecar.kafka.control_topic_store import ControlTopicStore
from trimtab.sidecar.measurement.freshness import AgeSample, estimate_freshness, sample_ages
from trimtab.sidecar.measurement.handler_work import HandlerWork, HandlerWorkTracker
from trimtab.sidecar.measurement.record_sizes import RecordSize
from trimtab.sidecar.measurement.write_rate import OffsetReadings
from trimtab.sidecar.model.observation import GroupState
from trimtab.sidecar.readings.group_monitor import UNKNOWN_TOPICS, GroupMeasurement, GroupMonitor
from trimtab.sidecar.settings.settings import SidecarSettings, load_settings

UNREACHABLE = "127.0.0.1:1"
TopicFactory = Callable[..., str]


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


def settings(bootstrap: str, group: str, **extra: Any) -> SidecarSettings:
    values = {"capacity": "1 MB/s", "window": "4 s", "interval": "500 ms", "timeout": "5 s"}
    return load_settings(None, {"bootstrap": bootstrap, "group": group, **values, **extra})


@pytest.fixture
def open_monitor(bootstrap: str, group: str) -> Iterator[Callable[..., GroupMonitor]]:
    """Open group monitors; they are closed after the test."""
    opened: list[GroupMonitor] = []

    def start(**extra: Any) -> GroupMonitor:
        address = extra.pop("bootstrap", bootstrap)
        opened.append(GroupMonitor(settings(address, group, **extra), SystemClock()))
        return opened[-1]

    yield start
    for monitor in opened:
        monitor.close()


@pytest.mark.broker
@pytest.mark.parametrize("source", ["offsets", "log-dirs"])
def test_monitor_measures_write_rates(
    bootstrap: str,
    topic: TopicFactory,
    open_monitor: Callable[..., GroupMonitor],
    eventually: Eventually,
    source: str,
) -> None:
    """Both sources measure every partition within 15 % of the producer's rate."""
    name = topic(partitions=3)
    monitor, pause = open_monitor(topics=name, source=source), Event()

    def is_measured() -> bool:
        pause.wait(0.5)
        last = monitor.measure()
        assert last.errors == ()
        rates = {p.partition: load.bytes_per_s for p, load in last.load.write_rates.items()}
        # a producer that a busy machine held up is faster for a window
        return rates == pytest.approx({n: 200 * (n + 1) * SIZE for n in range(3)}, rel=0.15)

    with steady(bootstrap, name, 3, unit=200):
        eventually(is_measured)


@pytest.mark.broker
def test_monitor_reads_members_and_backlog(
    bootstrap: str,
    topic: TopicFactory,
    group: str,
    open_monitor: Callable[..., GroupMonitor],
    eventually: Eventually,
) -> None:
    """The monitor discovers the group's topics and reads members, partitions, backlog and metadata."""
    name = topic(partitions=2)
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(10):
        producer.produce(name, b"x" * SIZE, partition=0)
    producer.flush(10)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "client.id": "worker-1"})
    consumer.subscribe([name])
    monitor, measurements = open_monitor(offset_reset="earliest"), list[GroupMeasurement]()
    try:

        def joined() -> bool:
            consumer.poll(0.05)
            measurements.append(monitor.measure())
            return (
                bool(measurements[-1].load.write_rates) and measurements[-1].group.state is GroupState.STABLE
            )

        eventually(joined)
        (reader,) = measurements[-1].group.members
        both = {TopicPartition(name, 0), TopicPartition(name, 1)}
        assert (reader.instance, reader.owned_partitions) == ("worker-1", both)
        assert measurements[-1].load.write_rates[TopicPartition(name, 0)].backlog_records == 10
        note = RawPartition(name, 0, 4, '{"handover": 0.5, "at": 1}')
        consumer.commit(offsets=[note], asynchronous=False)
    finally:
        consumer.close()
    after = monitor.measure()
    assert after.load.write_rates[TopicPartition(name, 0)].backlog_records == 6
    assert after.commit_metadata == {TopicPartition(name, 0): '{"handover": 0.5, "at": 1}'}
    assert after.group.state is GroupState.EMPTY


@pytest.mark.broker
def test_a_topic_that_the_group_has_left_is_no_load(
    bootstrap: str,
    topic: TopicFactory,
    group: str,
    open_monitor: Callable[..., GroupMonitor],
    eventually: Eventually,
) -> None:
    """Commits alone show no load; what a member has owned stays known after it has left."""
    left, read = topic(partitions=2), topic(partitions=2)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[RawPartition(left, 0, 1), RawPartition(read, 0, 1)], asynchronous=False)
    monitor, measured = open_monitor(), list[GroupMeasurement]()
    before = monitor.measure()
    assert {p.topic for p in before.load.write_rates} == {left, read}
    assert set(before.load.write_rates.values()) == {PartitionLoad()}
    assert UNKNOWN_TOPICS in before.errors
    consumer.subscribe([read])

    def is_owned() -> bool:
        consumer.poll(0.05)
        measured.append(monitor.measure())
        return any(member.owned_partitions for member in measured[-1].group.members)

    try:
        eventually(is_owned)
    finally:
        consumer.close()
    after = monitor.measure()
    assert after.group.state is GroupState.EMPTY
    for found in (measured[-1], after):
        assert {p.topic for p in found.load.write_rates} == {read}
        assert UNKNOWN_TOPICS not in found.errors


@pytest.mark.broker
def test_consumers_tell_their_handler_time_in_commits(
    bootstrap: str, topic: TopicFactory, group: str, eventually: Eventually
) -> None:
    """A handler that takes half a millisecond for each record; the sidecar reads that from the commits."""
    name, pause = topic(partitions=2), Event()
    config = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    brokers = BrokerClient({"bootstrap.servers": bootstrap}, group, 5.0, SystemClock())
    tracker, work = HandlerWorkTracker(0.5), list[HandlerWork]()
    partitions = tuple(TopicPartition(name, n) for n in range(2))

    def is_told() -> bool:
        nonlocal tracker
        messages = consumer.consume(50, timeout=0.1)
        pause.wait(len(messages) * 0.0005)
        commits = brokers.fetch_group_commits(partitions)
        readings = OffsetReadings(partitions, {}, {}, commits.offsets, commit_metadata=commits.metadata)
        members = brokers.describe_group()[0].members
        told, tracker = tracker.collect_work(members, readings, dict.fromkeys(partitions, RecordSize(SIZE)))
        work.extend(told)
        return sum(one.records for one in work) > 100

    try:
        with (
            ConsumerOfSdk({**config, "auto.commit.interval.ms": 200}) as consumer,
            steady(bootstrap, name, 2, unit=100),
        ):
            consumer.subscribe([name])
            eventually(is_told)
    finally:
        brokers.close()
    per_record = sum(one.handling for one in work) / sum(one.records for one in work)
    assert 0.0004 < per_record < 0.05  # the requests between two calls count, too
    assert all(one.bytes == one.records * SIZE for one in work)
    assert all(one.handling <= one.span + 0.002 for one in work)  # both are told in milliseconds


@pytest.mark.broker
def test_monitor_measures_consumption_from_commits(
    bootstrap: str,
    topic: TopicFactory,
    group: str,
    open_monitor: Callable[..., GroupMonitor],
    admin: AdminClient,
    eventually: Eventually,
) -> None:
    """Consumption rates follow the commits; a deleted group has no known backlog."""
    name = topic(partitions=1)
    partition, producer = TopicPartition(name, 0), Producer({"bootstrap.servers": bootstrap})
    for _ in range(10_000):
        producer.produce(name, b"x" * SIZE, partition=0)
    producer.flush(10)
    short_windows = {"window": "1 s", "scale_up_evaluation_window": "1 s", "backlog_grace": "500 ms"}
    monitor = open_monitor(topics=name, offset_reset="earliest", **short_windows)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    committed, measurements = [0], list[GroupMeasurement]()

    def consumes() -> bool:
        committed[0] += 10
        consumer.commit(offsets=[RawPartition(name, 0, committed[0])], asynchronous=False)
        measurements.append(monitor.measure())
        return measurements[-1].load.consumption_rates.get(partition, 0.0) > 0

    try:
        eventually(consumes)
    finally:
        consumer.close()
    assert measurements[-1].load.write_rates[partition].backlog_records == 10_000 - committed[0]
    admin.delete_consumer_groups([group])[group].result(10)
    after = monitor.measure()
    assert after.load.write_rates[partition].backlog_records is None
    assert after.load.consumption_rates == {}


class Batching:
    """Reads batches of `batch` seconds and commits each `flush` seconds after its end."""

    def __init__(self, bootstrap: str, group: str, topic: str, batch: float, flush: float) -> None:
        self.ages: list[float] = []  # of every record, when it was committed
        self.commits: list[float] = []  # their times
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
            }
        )
        self._consumer.subscribe([topic])
        self._batch, self._flush = batch, flush
        self._stop = Event()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            closes, batch = monotonic() + self._batch, list[Message]()
            while monotonic() < closes:
                batch += self._consumer.consume(500, timeout=0.1)
            self._stop.wait(self._flush)
            for message in batch:
                self._consumer.store_offsets(message)
            if batch:
                self._consumer.commit(asynchronous=False)
            now = time()
            self.ages += [now - (message.timestamp()[1] / 1000) for message in batch]
            self.commits.append(monotonic())


@pytest.mark.broker
def test_freshness_estimate_matches_record_ages(
    bootstrap: str, topic: TopicFactory, group: str, open_monitor: Callable[..., GroupMonitor]
) -> None:
    """The p99 estimated from the backlog is within 25 % of the records' ages at their commits."""
    name = topic(partitions=3)
    reader = Batching(bootstrap, group, name, batch=3.0, flush=1.0)
    monitor, samples, pause = open_monitor(topics=name, offset_reset="earliest"), list[AgeSample](), Event()
    times, commits, warm = list[float](), list[float](), 0

    def take_samples(count: int) -> None:
        """Take a sample each half second, the ages of the reader's commits meanwhile beside them."""
        nonlocal times, commits, warm
        samples.clear()
        times, warm, first = [], len(reader.ages), len(reader.commits)
        for _ in range(count):
            times.append(monotonic())
            sample = sample_ages(times[-1], monitor.measure().load.write_rates)
            samples.extend([] if sample is None else [sample])
            pause.wait(0.5)
        commits = reader.commits[first:]

    try:
        with steady(bootstrap, name, 3, unit=60):
            take_samples(20)  # the monitor learns the write rates
            take_samples(24)
            for _ in range(4):
                # The estimate is of steady rates: once more where other tests left no time to measure.
                if max(np.diff(times)) < 1.0 and max(np.diff(commits)) < 5.0:
                    break
                take_samples(24)
    finally:
        reader.stop()
    estimate = estimate_freshness(tuple(samples))
    assert estimate is not None
    ages = sorted(reader.ages[warm:])
    true = ages[int(0.99 * len(ages))]
    assert estimate.p99 == pytest.approx(true, rel=0.25)


@pytest.mark.broker
def test_missing_topic_is_reported(open_monitor: Callable[..., GroupMonitor]) -> None:
    """A configured topic that does not exist is in `errors`; no exception is raised."""
    measurement = open_monitor(topics="no-such-topic").measure()
    assert measurement.load.write_rates == {}
    assert "topic 'no-such-topic' does not exist" in measurement.errors


@pytest.mark.parametrize("source", ["offsets", "log-dirs"])
def test_unreachable_broker_leaves_the_group_unknown(group: str, source: str) -> None:
    """With an unreachable broker the group state is UNKNOWN, with a reason instead of an exception."""
    monitor = GroupMonitor(
        settings(UNREACHABLE, group, topics="t", source=source, timeout="300 ms"), SystemClock()
    )
    try:
        measurement = monitor.measure()
    finally:
        monitor.close()
    assert measurement.group.state is GroupState.UNKNOWN
    assert measurement.errors


@pytest.mark.broker
def test_control_topics_round_trip(
    bootstrap: str, group: str, topic: TopicFactory, admin: AdminClient
) -> None:
    """The store reads the newest plan and write rates of its own group."""
    config = settings(bootstrap, group, plan_topic=f"{group}-plan", write_rate_topic=f"{group}-speed")
    store = ControlTopicStore(config, admin)
    assert store.read_plan() is None
    plans = [GroupPlan(group, n, 1.5, n, "mbf", 1e6, draining=("a",)) for n in (1, 2)]
    rates = TopicWriteRates(group, topic(), 1.0, 30.0, "offsets", {0: PartitionLoad(1.0)})
    foreign = [GroupPlan("other", 9, 1.0, 9, "mbf", 1.0), TopicWriteRates("other", "t", 1, 1, "s", {})]
    store.publish([*plans, rates, *foreign])
    second_store = ControlTopicStore(config, admin)
    assert second_store.read_plan() == plans[-1]
    assert second_store.read_write_rates() == {rates.topic: rates}
    second_store.publish(plans[-1:])


def test_group_reader_stops_at_an_unreachable_broker(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first timeout the reader makes no further request, so `top` and `explain` end at once."""
    config = settings(UNREACHABLE, group, timeout="300 ms")
    reader = LiveGroupReader(config, SystemClock(), capacity_known=True)
    monkeypatch.setattr(GroupMonitor, "measure", pytest.fail)
    try:
        measurement = reader.read_snapshot()
    finally:
        reader.close()
    (error,) = measurement.errors
    assert UNREACHABLE in error
    assert measurement.group.state is GroupState.UNKNOWN


def test_control_topics_time_out_without_a_broker(group: str) -> None:
    """Reading and publishing raise a retryable BrokerTimeoutError."""
    config = settings(UNREACHABLE, group, timeout="300 ms")
    store = ControlTopicStore(config, AdminClient({"bootstrap.servers": UNREACHABLE, "log_level": 0}))
    for call in (store.read_plan, lambda: store.publish([])):
        with pytest.raises(BrokerTimeoutError) as caught:
            call()
        assert caught.value.retryable


@pytest.mark.broker
def test_what_if_measurement_publishes_nothing(bootstrap: str, group: str, topic: TopicFactory) -> None:
    """Heuristics are evaluated from a measured baseline, and no plan is published."""
    name = topic(partitions=4)
    config = settings(
        bootstrap,
        group,
        topics=name,
        window="2 s",
        interval="400 ms",
        capacity="200 kB/s",
        plan_topic=f"{group}-plan",
        write_rate_topic=f"{group}-speed",
    )
    progress: list[float] = []
    with steady(bootstrap, name, 4, unit=200):
        baseline = measure_baseline(config, SystemClock(), progress.append)
    assert progress[-1] == 1.0
    results = {
        row.heuristic: row
        for row in evaluate_heuristics(baseline, ["mbf", "sticky"], config.autoscaling_policy, 3)
    }
    assert 2 <= results["mbf"].consumers <= 3  # on a busy machine the producer falls behind
    assert results["mbf"].moves == 4
    assert results["mbf"].reasons
    admin = AdminClient({"bootstrap.servers": bootstrap})
    assert f"{group}-plan" not in admin.list_topics(timeout=10).topics


@pytest.mark.broker
def test_what_if_measurement_needs_a_known_group(bootstrap: str, group: str) -> None:
    """A group without members and commits raises an error with its name."""
    with pytest.raises(SidecarSettingError, match=group):
        measure_baseline(settings(bootstrap, group, window="1 s"), SystemClock(), lambda _: None)
