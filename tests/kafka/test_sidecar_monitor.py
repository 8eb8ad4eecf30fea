"""Monitor, control topics and survey on a real broker."""

from collections.abc import Callable, Iterator
from threading import Event, Thread
from time import monotonic, time
from typing import Any, Protocol

import pytest
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka import TopicPartition as RawPartition
from confluent_kafka.admin import AdminClient
from steady import SIZE, steady

from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import SystemClock
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad, TopicWriteRates
from trimtab.sidecar.diagnostics.group_snapshot import LiveGroupReader
from trimtab.sidecar.diagnostics.what_if import evaluate_heuristics, measure_baseline
from trimtab.sidecar.errors import BrokerTimeoutError, SidecarSettingError
from trimtab.sidecar.kafka.control_topic_store import ControlTopicStore
from trimtab.sidecar.measurement.freshness import AgeSample, estimate_freshness, sample_ages
from trimtab.sidecar.measurement.group_monitor import GroupMeasurement, GroupMonitor
from trimtab.sidecar.measurement.observation import GroupState
from trimtab.sidecar.settings.settings import SidecarSettings, load_settings

NOWHERE = "127.0.0.1:1"
TopicFactory = Callable[..., str]


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


def settings(bootstrap: str, group: str, **more: Any) -> SidecarSettings:
    values = {"capacity": "1 MB/s", "window": "4 s", "interval": "500 ms", "timeout": "5 s"}
    return load_settings(None, {"bootstrap": bootstrap, "group": group, **values, **more})


@pytest.fixture
def watch(bootstrap: str, group: str) -> Iterator[Callable[..., GroupMonitor]]:
    """Opens monitors and closes them."""
    opened: list[GroupMonitor] = []

    def start(**more: Any) -> GroupMonitor:
        where = more.pop("bootstrap", bootstrap)
        opened.append(GroupMonitor(settings(where, group, **more), SystemClock()))
        return opened[-1]

    yield start
    for monitor in opened:
        monitor.close()


@pytest.mark.broker
@pytest.mark.parametrize("source", ["offsets", "log-dirs"])
def test_measures_what_a_producer_writes(
    bootstrap: str, topic: TopicFactory, watch: Callable[..., GroupMonitor], source: str
) -> None:
    """Both sources come within 15 % of a producer's real rate, on every partition."""
    name = topic(partitions=3)
    monitor = watch(topics=name, source=source)
    with steady(bootstrap, name, 3, unit=200):
        pause, last = Event(), monitor.measure()
        for _ in range(12):
            pause.wait(0.5)
            last = monitor.measure()
    for number in range(3):
        true = 200 * (number + 1) * SIZE
        assert last.write_rates[TopicPartition(name, number)].bytes_per_s == pytest.approx(true, rel=0.15)
    assert last.trouble == ()


@pytest.mark.broker
def test_group_backlog_and_topics(
    bootstrap: str,
    topic: TopicFactory,
    group: str,
    watch: Callable[..., GroupMonitor],
    eventually: Eventually,
) -> None:
    """Members, what they own, and end - committed are seen; topics are those the group reads."""
    name = topic(partitions=2)
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(10):
        producer.produce(name, b"x" * SIZE, partition=0)
    producer.flush(10)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "client.id": "worker-1"})
    consumer.subscribe([name])
    monitor, seen = watch(offset_reset="earliest"), list[GroupMeasurement]()
    try:

        def joined() -> bool:
            consumer.poll(0.05)
            seen.append(monitor.measure())
            return bool(seen[-1].write_rates) and seen[-1].group.state is GroupState.STABLE

        eventually(joined)
        (reader,) = seen[-1].group.members
        both = {TopicPartition(name, 0), TopicPartition(name, 1)}
        assert (reader.instance, reader.owned_partitions) == ("worker-1", both)
        assert seen[-1].write_rates[TopicPartition(name, 0)].backlog_records == 10
        note = RawPartition(name, 0, 4, '{"handover": 0.5, "at": 1}')
        consumer.commit(offsets=[note], asynchronous=False)
    finally:
        consumer.close()
    after = monitor.measure()
    assert after.write_rates[TopicPartition(name, 0)].backlog_records == 6
    assert after.commit_metadata == {TopicPartition(name, 0): '{"handover": 0.5, "at": 1}'}
    assert after.group.state is GroupState.EMPTY


@pytest.mark.broker
def test_consumption_and_commits_that_vanish(
    bootstrap: str,
    topic: TopicFactory,
    group: str,
    watch: Callable[..., GroupMonitor],
    admin: AdminClient,
    eventually: Eventually,
) -> None:
    """Commits that grow are consumption; a group that was deleted has no known backlog."""
    name = topic(partitions=1)
    partition, producer = TopicPartition(name, 0), Producer({"bootstrap.servers": bootstrap})
    for _ in range(10_000):
        producer.produce(name, b"x" * SIZE, partition=0)
    producer.flush(10)
    short = {"window": "1 s", "scale_up_evaluation_window": "1 s", "backlog_grace": "500 ms"}
    monitor = watch(topics=name, offset_reset="earliest", **short)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    done, seen = [0], list[GroupMeasurement]()

    def consumes() -> bool:
        done[0] += 10
        consumer.commit(offsets=[RawPartition(name, 0, done[0])], asynchronous=False)
        seen.append(monitor.measure())
        return seen[-1].consumption_rates.get(partition, 0.0) > 0

    try:
        eventually(consumes)
    finally:
        consumer.close()
    assert seen[-1].write_rates[partition].backlog_records == 10_000 - done[0]
    admin.delete_consumer_groups([group])[group].result(10)
    after = monitor.measure()
    assert after.write_rates[partition].backlog_records is None
    assert after.consumption_rates == {}


class Batching:
    """Reads in batches of `batch` seconds that are committed `flush` seconds after they closed."""

    def __init__(self, bootstrap: str, group: str, topic: str, batch: float, flush: float) -> None:
        self.ages: list[float] = []  # of every record, when it was committed
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


@pytest.mark.broker
def test_freshness_is_estimated_from_the_backlog(
    bootstrap: str, topic: TopicFactory, group: str, watch: Callable[..., GroupMonitor]
) -> None:
    """Near what the records' own timestamps say when they are committed."""
    name = topic(partitions=3)
    reader = Batching(bootstrap, group, name, batch=3.0, flush=1.0)
    monitor, looks, pause = watch(topics=name, offset_reset="earliest"), list[AgeSample](), Event()
    begun = 0
    try:
        with steady(bootstrap, name, 3, unit=60):
            for turn in range(44):
                seen = sample_ages(float(turn), monitor.measure().write_rates)
                begun = len(reader.ages) if turn < 20 else begun  # till then speeds get known
                looks += [seen] if seen is not None and turn >= 20 else []
                pause.wait(0.5)
    finally:
        reader.stop()
    found = estimate_freshness(tuple(looks))
    assert found is not None
    ages = sorted(reader.ages[begun:])
    true = ages[int(0.99 * len(ages))]
    assert found.p99 == pytest.approx(true, rel=0.25)


@pytest.mark.broker
def test_a_topic_that_is_not_there_is_told(watch: Callable[..., GroupMonitor]) -> None:
    """A named topic that does not exist is a trouble with its name, not an error."""
    seen = watch(topics="no-such-topic").measure()
    assert seen.write_rates == {}
    assert "topic 'no-such-topic' does not exist" in seen.trouble


@pytest.mark.parametrize("source", ["offsets", "log-dirs"])
def test_no_broker_is_blindness(group: str, source: str) -> None:
    """An unreachable broker gives unknowns and a reason, never an exception."""
    monitor = GroupMonitor(
        settings(NOWHERE, group, topics="t", source=source, timeout="300 ms"), SystemClock()
    )
    try:
        seen = monitor.measure()
    finally:
        monitor.close()
    assert seen.group.state is GroupState.UNKNOWN
    assert seen.trouble


@pytest.mark.broker
def test_control_topics_round_trip(
    bootstrap: str, group: str, topic: TopicFactory, admin: AdminClient
) -> None:
    """Plan and speeds of this group are read back, the newest of each; the topics are compacted."""
    ours = settings(bootstrap, group, plan_topic=f"{group}-plan", write_rate_topic=f"{group}-speed")
    board = ControlTopicStore(ours, admin)
    assert board.read_plan() is None
    plans = [GroupPlan(group, n, 1.5, n, "mbf", 1e6, draining=("a",)) for n in (1, 2)]
    speeds = TopicWriteRates(group, topic(), 1.0, 30.0, "offsets", {0: PartitionLoad(1.0)})
    other = [GroupPlan("other", 9, 1.0, 9, "mbf", 1.0), TopicWriteRates("other", "t", 1, 1, "s", {})]
    board.publish([*plans, speeds, *other])
    again = ControlTopicStore(ours, admin)
    assert again.read_plan() == plans[-1]
    assert again.read_write_rates() == {speeds.topic: speeds}
    again.publish(plans[-1:])


def test_a_look_without_a_broker_says_so_once(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else is asked once nobody answered, so `top` and `explain` end soon."""
    ours = settings(NOWHERE, group, timeout="300 ms")
    looker = LiveGroupReader(ours, SystemClock(), capacity_known=True)
    monkeypatch.setattr(GroupMonitor, "measure", pytest.fail)
    try:
        seen = looker.read_snapshot()
    finally:
        looker.close()
    (trouble,) = seen.trouble
    assert NOWHERE in trouble
    assert seen.group.state is GroupState.UNKNOWN


def test_control_topics_without_a_broker(group: str) -> None:
    """Neither reading nor writing hangs: both are a named error that can be tried again."""
    ours = settings(NOWHERE, group, timeout="300 ms")
    board = ControlTopicStore(ours, AdminClient({"bootstrap.servers": NOWHERE, "log_level": 0}))
    for ask in (board.read_plan, lambda: board.publish([])):
        with pytest.raises(BrokerTimeoutError) as caught:
            ask()
        assert caught.value.retryable


@pytest.mark.broker
def test_survey_looks_and_changes_nothing(bootstrap: str, group: str, topic: TopicFactory) -> None:
    """What each heuristic would do is told from a measurement; nothing is published."""
    name = topic(partitions=4)
    ours = settings(
        bootstrap,
        group,
        topics=name,
        window="2 s",
        interval="400 ms",
        capacity="200 kB/s",
        plan_topic=f"{group}-plan",
        write_rate_topic=f"{group}-speed",
    )
    shares: list[float] = []
    with steady(bootstrap, name, 4, unit=200):
        found = measure_baseline(ours, SystemClock(), shares.append)
    assert shares[-1] == 1.0
    made = {
        row.heuristic: row
        for row in evaluate_heuristics(found, ["mbf", "sticky"], ours.autoscaling_policy.placement, 3)
    }
    assert made["mbf"].consumers == 3
    assert made["mbf"].moves == 4
    assert made["mbf"].reasons
    admin = AdminClient({"bootstrap.servers": bootstrap})
    assert f"{group}-plan" not in admin.list_topics(timeout=10).topics


@pytest.mark.broker
def test_survey_of_a_group_that_is_not_there(bootstrap: str, group: str) -> None:
    """A group that never read anything is a named error."""
    with pytest.raises(SidecarSettingError, match=group):
        measure_baseline(settings(bootstrap, group, window="1 s"), SystemClock(), lambda _: None)
