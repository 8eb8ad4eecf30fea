"""Scaling of queue workers, with a real broker, worker processes and signals."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml
from confluent_kafka import Consumer as ConfluentConsumer

from support.queued import Sidecar, handled_messages, running_tracker, write_messages
from trimtab.common.clock import SystemClock
from trimtab.common.errors import ShareGroupsUnsupportedError
from trimtab.common.kafka_protocol import apis
from trimtab.common.kafka_protocol.brokers import Brokers
from trimtab.common.settings.shared_defaults import QueueKind
from trimtab.consumer_sdk.queues import open_queue
from trimtab.sidecar.decision.scale_to_zero import is_idle
from trimtab.sidecar.errors import GroupTypeMismatchError
from trimtab.sidecar.kafka import kmq_progress, share_group
from trimtab.sidecar.kafka.brokers import describe_group
from trimtab.sidecar.model.observation import GroupState
from trimtab.sidecar.model.queue_backlog import QueueBacklog
from trimtab.sidecar.readings.group_monitor import GroupMeasurement, GroupMonitor
from trimtab.sidecar.settings.settings import load_settings

pytestmark = pytest.mark.broker

MESSAGES = 120
Config = dict[str, Any]


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


@pytest.fixture
def start_tracker(config: Config) -> Iterator[Callable[[str], None]]:
    """Run redelivery trackers until the test ends."""
    with ExitStack() as stack:
        yield lambda topic: stack.enter_context(running_tracker(topic, config))


@pytest.fixture
def open_monitor(bootstrap: str, group: str) -> Iterator[Callable[..., GroupMonitor]]:
    """Open monitors of the group's queue, as a sidecar does."""
    monitors: list[GroupMonitor] = []

    def open_monitor(topic: str, kind: str) -> GroupMonitor:
        values = {"bootstrap": bootstrap, "group": group, "topics": topic, "capacity": "1 kB/s"}
        extra = {"queue": kind, "window": "1 s", "interval": "500 ms", "offset-reset": "earliest"}
        monitors.append(GroupMonitor(load_settings(None, {**values, **extra}), SystemClock()))
        return monitors[-1]

    yield open_monitor
    for monitor in monitors:
        monitor.close()


class ManagedWorkers:
    """A sidecar with worker processes, and the output of the workers."""

    def __init__(self, sidecar: Sidecar, state: Path) -> None:
        self._state = state
        self.read_log = sidecar.read_log
        sidecar.start(
            target="process",
            worker_command=sidecar.worker("{instance}"),
            state_dir=str(state),
            stop_workers=True,
        )

    def count(self) -> int:
        return len(list((self._state / "workers").glob("*.json")))

    def handled_messages(self) -> set[str]:
        files = (self._state / "logs").glob("*.log")
        return handled_messages("\n".join(file.read_text() for file in files))


@pytest.fixture
def start_sidecar(
    bootstrap: str, group: str, tmp_path: Path, start_tracker: Callable[[str], None]
) -> Iterator[Callable[..., ManagedWorkers]]:
    """Start sidecars, for kmq with a tracker; their workers end with them."""
    sidecars: list[Sidecar] = []

    def start(topic: str, kind: str) -> ManagedWorkers:
        if kind == "kmq":
            start_tracker(topic)
        sidecars.append(Sidecar(tmp_path, bootstrap, group, topic, kind))
        return ManagedWorkers(sidecars[-1], tmp_path / "state")

    yield start
    for sidecar in sidecars:
        sidecar.close()


@pytest.mark.parametrize(
    ("kind", "partitions"), [pytest.param("kmq", 3, marks=pytest.mark.slow), ("share", 1)]
)
def test_workers_scale_from_zero_and_back(
    kind: str, partitions: int, bootstrap: str, topic: Any, start_sidecar: Any, eventually: Eventually
) -> None:
    """Messages start several workers, also on one partition of a share group; idle workers end."""
    name = topic(partitions=partitions)
    sidecar: ManagedWorkers = start_sidecar(name, kind)
    eventually(lambda: "nothing to read" in sidecar.read_log())
    assert sidecar.count() == 0
    messages = write_messages(bootstrap, name, MESSAGES, partitions)
    eventually(lambda: sidecar.count() > 1, 40)
    eventually(lambda: sidecar.handled_messages() == messages, 60)
    eventually(lambda: sidecar.count() == 0, 60)
    eventually(lambda: "hold: nothing to read" in sidecar.read_log().splitlines()[-1])
    assert "0 messages waiting" in sidecar.read_log().splitlines()[-1]


def test_kmq_backlog_counts_messages_by_state(
    config: Config, topic: Any, start_tracker: Any, open_monitor: Any, eventually: Eventually
) -> None:
    """Waiting, in-flight and returned messages are counted; only the first two prevent idleness."""
    name = topic(partitions=1)
    write_messages(config["bootstrap.servers"], name, 5, 1)
    monitor: GroupMonitor = open_monitor(name, "kmq")
    measurements = list[GroupMeasurement]()

    def has_counts(waiting: int, working: int, returned: int) -> bool:
        measurements.append(monitor.measure())
        return measurements[-1].queue == QueueBacklog(QueueKind.KMQ, waiting, working, returned)

    eventually(lambda: has_counts(5, 0, 0))
    start_tracker(name)
    with open_queue("kmq", name, config) as queue:
        received = list[Any]()
        eventually(lambda: received.extend(queue.receive(4 - len(received), 0.2)) or len(received) == 4)
        eventually(lambda: has_counts(1, 4, 0))
        received.extend(queue.receive(1, 5))
        eventually(lambda: has_counts(0, 5, 0))
        assert not is_idle(measurements[-1].load.write_rates)
        for message in received[:3]:
            message.retry(3600)
        for message in received[3:]:
            message.ack()
        eventually(lambda: has_counts(0, 0, 3))
        eventually(lambda: is_idle(monitor.measure().load.write_rates))


def test_kmq_backlog_is_unknown_without_a_tracker(
    config: Config, topic: Any, open_monitor: Any, monkeypatch: Any, eventually: Eventually
) -> None:
    """Without a tracker the queue is never idle, and `errors` has the command to start one."""
    monkeypatch.setattr(kmq_progress, "TRACKER_SILENCE_TIMEOUT_S", 0.5)
    name = topic(partitions=1)
    write_messages(config["bootstrap.servers"], name, 1, 1)
    with open_queue("kmq", name, config) as queue:
        received = list[Any]()
        eventually(lambda: received.extend(queue.receive(1, 0.2)) or received)
        monitor: GroupMonitor = open_monitor(name, "kmq")
        eventually(lambda: any("trimtab redeliver" in t for t in monitor.measure().errors))
        measurement = monitor.measure()
        assert measurement.queue == QueueBacklog(QueueKind.KMQ)
        assert not is_idle(measurement.load.write_rates)


def test_share_group_backlog_counts_until_settlement(
    config: Config, topic: Any, open_monitor: Any, eventually: Eventually
) -> None:
    """Unsettled messages of a share group are backlog; its members have instance names.

    The test also covers two private methods of kafka-python that send custom requests to a coordinator.
    """
    name = topic(partitions=1)
    write_messages(config["bootstrap.servers"], name, 5, 1)
    monitor: GroupMonitor = open_monitor(name, "share")
    assert monitor.measure().queue == QueueBacklog(QueueKind.SHARE, 5)  # the group does not exist yet
    assert monitor.describe_group().state is GroupState.EMPTY
    with open_queue("share", name, {**config, "trimtab.instance": "worker-7"}) as queue:
        received = list[Any]()
        eventually(lambda: received.extend(queue.receive(5, 0.2)) or len(received) == 5)
        described = monitor.describe_group()
        assert described.is_share_group
        assert [(r.instance, r.owned_partitions) for r in described.members] == [("worker-7", frozenset())]
        assert monitor.measure().queue == QueueBacklog(QueueKind.SHARE, 5)
        received[0].ack()
        received[1].reject()
        queue.receive(0, 0)
        eventually(lambda: monitor.measure().queue == QueueBacklog(QueueKind.SHARE, 3))
        for message in received[2:]:
            message.ack()
        queue.receive(0, 0)
        eventually(lambda: monitor.measure().queue == QueueBacklog(QueueKind.SHARE, 0))
        eventually(lambda: is_idle(monitor.measure().load.write_rates))
    _assert_custom_requests_work(config, name)


def _assert_custom_requests_work(config: Config, topic: str) -> None:
    group = config["group.id"]
    server = {"bootstrap.servers": config["bootstrap.servers"]}
    with closing(Brokers(server, SystemClock(), client_id="test", timeout=10.0)) as brokers:
        wanted = {"groups": [{"group_id": group, "topics": None}]}
        (answer,) = brokers.ask_coordinator(group, apis.DESCRIBE_SHARE_GROUP_OFFSETS, wanted).groups
        (described,) = answer.topics
        assert (described.topic_name, described.partitions[0].lag) == (topic, 0)
        assert 0 <= described.partitions[0].start_offset <= 5  # the start offset follows the lag with a delay
        assert describe_group(brokers, group, apis.SHARE_GROUP_DESCRIBE).group_state == "Empty"
        assert describe_group(brokers, f"{topic}-missing", apis.SHARE_GROUP_DESCRIBE) is None


def test_share_queue_rejects_a_classic_group(
    bootstrap: str, group: str, topic: Any, open_monitor: Any, eventually: Eventually
) -> None:
    """queue=share on a classic group raises an error that names the group type."""
    name = topic(partitions=1)
    consumer = ConfluentConsumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.subscribe([name])
    eventually(lambda: consumer.poll(0.1) or consumer.assignment())
    with pytest.raises(GroupTypeMismatchError, match="is a classic group, not a share group"):
        open_monitor(name, "share")
    consumer.close()


def test_sidecar_without_queue_share_rejects_a_share_group(
    config: Config, topic: Any, eventually: Eventually, tmp_path: Path
) -> None:
    """Without queue=share a sidecar of a share group exits with 2 and names the setting."""
    file = tmp_path / "sidecar.yaml"
    name = topic(partitions=1)
    values = {"bootstrap": config["bootstrap.servers"], "group": config["group.id"], "topics": name}
    file.write_text(yaml.safe_dump({**values, "capacity": "1 kB/s"}))
    settings = load_settings(file, {})
    share_group.refuse_share_group(settings)  # the group does not exist yet
    with open_queue("share", name, config) as queue:
        eventually(lambda: queue.receive(1, 0.2) or is_listed_as_share_group(settings))
        command = [sys.executable, "-m", "trimtab.cli", "sidecar", "--dry-run", "-c", str(file)]
        completed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert completed.returncode == 2
    assert "is a share group: write queue=share" in completed.stderr


def is_listed_as_share_group(settings: Any) -> bool:
    """Return whether the brokers list the group as a share group."""
    try:
        share_group.refuse_share_group(settings)
    except GroupTypeMismatchError:
        return True
    return False


def test_missing_share_groups_are_reported(
    topic: Any, open_monitor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of queue=share has the explanation from the brokers' features."""

    def explain(_features: object, where: str) -> str:
        return f"the brokers at {where} have no share groups"

    monkeypatch.setattr(share_group, "explain_missing_share_groups", explain)
    with pytest.raises(ShareGroupsUnsupportedError, match="have no share groups"):
        open_monitor(topic(partitions=1), "share")
