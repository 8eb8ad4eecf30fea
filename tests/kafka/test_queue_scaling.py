"""A queue's workers from none to several and back: a real broker, real processes, real signals."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml
from confluent_kafka import Consumer as Plain
from kafka import KafkaAdminClient
from queued import Sidecar, fill, handled, tracked

from trimtab.common.choices import QueueKind
from trimtab.common.clock import SystemClock
from trimtab.common.errors import ShareGroupsUnsupportedError
from trimtab.consumer_sdk.queues import open_queue
from trimtab.sidecar.decision.scale_to_zero import is_idle
from trimtab.sidecar.errors import GroupTypeMismatchError
from trimtab.sidecar.kafka import kmq_progress
from trimtab.sidecar.kafka.share_groups import protocol, share_group
from trimtab.sidecar.measurement.group_monitor import GroupMeasurement, GroupMonitor
from trimtab.sidecar.measurement.observation import GroupState
from trimtab.sidecar.measurement.queue_backlog import QueueBacklog
from trimtab.sidecar.settings.settings import load_settings

pytestmark = [pytest.mark.broker, pytest.mark.timeout(180)]

MESSAGES = 120
Config = dict[str, Any]


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


@pytest.fixture
def track(config: Config) -> Iterator[Callable[[str], None]]:
    """Run trackers."""
    with ExitStack() as running:
        yield lambda topic: running.enter_context(tracked(topic, config))


@pytest.fixture
def watch(bootstrap: str, group: str) -> Iterator[Callable[..., GroupMonitor]]:
    """Look at the group's queue as a sidecar does."""
    made: list[GroupMonitor] = []

    def watch(topic: str, kind: str) -> GroupMonitor:
        given = {"bootstrap": bootstrap, "group": group, "topics": topic, "capacity": "1 kB/s"}
        more = {"queue": kind, "window": "1 s", "interval": "500 ms", "offset-reset": "earliest"}
        made.append(GroupMonitor(load_settings(None, {**given, **more}), SystemClock()))
        return made[-1]

    yield watch
    for monitor in made:
        monitor.close()


class Steered:
    """A sidecar whose workers are processes, and what they have printed."""

    def __init__(self, sidecar: Sidecar, state: Path) -> None:
        self._state = state
        self.said = sidecar.said
        sidecar.start(
            target="process",
            worker_command=sidecar.worker("{instance}"),
            state_dir=str(state),
            stop_workers=True,
        )

    def running(self) -> int:
        return len(list((self._state / "workers").glob("*.json")))

    def handled(self) -> set[str]:
        files = (self._state / "logs").glob("*.log")
        return handled("\n".join(file.read_text() for file in files))


@pytest.fixture
def steer(
    bootstrap: str, group: str, tmp_path: Path, track: Callable[[str], None]
) -> Iterator[Callable[..., Steered]]:
    """Start sidecars, for kmq beside a tracker; they end with their workers."""
    made: list[Sidecar] = []

    def start(topic: str, kind: str) -> Steered:
        if kind == "kmq":
            track(topic)
        made.append(Sidecar(tmp_path, bootstrap, group, topic, kind))
        return Steered(made[-1], tmp_path / "state")

    yield start
    for sidecar in made:
        sidecar.close()


@pytest.mark.parametrize(("kind", "partitions"), [("kmq", 3), ("share", 1)])
def test_workers_go_from_none_to_several_and_back(
    kind: str, partitions: int, bootstrap: str, topic: Any, steer: Any, eventually: Eventually
) -> None:
    """Messages bring workers, of a share group more than partitions; all is handled, all end."""
    name = topic(partitions=partitions)
    sidecar: Steered = steer(name, kind)
    eventually(lambda: "nothing to read" in sidecar.said())
    assert sidecar.running() == 0
    wanted = fill(bootstrap, name, MESSAGES, partitions)
    eventually(lambda: sidecar.running() > 1, 40)
    eventually(lambda: sidecar.handled() == wanted, 60)
    eventually(lambda: sidecar.running() == 0, 60)
    eventually(lambda: "hold: nothing to read" in sidecar.said().splitlines()[-1])
    assert "0 messages waiting" in sidecar.said().splitlines()[-1]


def test_what_is_in_work_keeps_the_last_worker_and_what_was_given_back_does_not(
    config: Config, topic: Any, track: Any, watch: Any, eventually: Eventually
) -> None:
    """Messages are counted where they are: waiting, in work, given back for later, over."""
    name = topic(partitions=1)
    fill(config["bootstrap.servers"], name, 5, 1)
    monitor: GroupMonitor = watch(name, "kmq")
    seen = list[GroupMeasurement]()

    def told(waiting: int, working: int, returned: int) -> bool:
        seen.append(monitor.measure())
        return seen[-1].queue == QueueBacklog(QueueKind.KMQ, waiting, working, returned)

    eventually(lambda: told(5, 0, 0))
    track(name)
    with open_queue("kmq", name, config) as queue:
        taken = list[Any]()
        eventually(lambda: taken.extend(queue.receive(4 - len(taken), 0.2)) or len(taken) == 4)
        eventually(lambda: told(1, 4, 0))
        taken.extend(queue.receive(1, 5))
        eventually(lambda: told(0, 5, 0))
        assert not is_idle(seen[-1].write_rates)
        for message in taken[:3]:
            message.retry(3600)
        for message in taken[3:]:
            message.ack()
        eventually(lambda: told(0, 0, 3))
        eventually(lambda: is_idle(monitor.measure().write_rates))


def test_without_a_tracker_what_is_in_work_is_unknown_and_told(
    config: Config, topic: Any, watch: Any, monkeypatch: Any, eventually: Eventually
) -> None:
    """A queue whose trackers are gone never looks empty, and the verdict says what to start."""
    monkeypatch.setattr(kmq_progress, "TRACKER_SILENCE_TIMEOUT_S", 0.5)
    name = topic(partitions=1)
    fill(config["bootstrap.servers"], name, 1, 1)
    with open_queue("kmq", name, config) as queue:
        taken = list[Any]()
        eventually(lambda: taken.extend(queue.receive(1, 0.2)) or taken)
        monitor: GroupMonitor = watch(name, "kmq")
        eventually(lambda: any("trimtab redeliver" in t for t in monitor.measure().trouble))
        found = monitor.measure()
        assert found.queue == QueueBacklog(QueueKind.KMQ)
        assert not is_idle(found.write_rates)


def test_the_brokers_lag_counts_until_a_message_is_settled(
    config: Config, topic: Any, watch: Any, eventually: Eventually
) -> None:
    """What a share group has not acknowledged is backlog, whoever has it; its members have names.

    Two private doors of kafka-python are held by this: frames of our own, sent to a coordinator.
    """
    name = topic(partitions=1)
    fill(config["bootstrap.servers"], name, 5, 1)
    monitor: GroupMonitor = watch(name, "share")
    assert monitor.measure().queue == QueueBacklog(QueueKind.SHARE, 5)  # there is no group yet
    assert monitor.describe_group().state is GroupState.EMPTY
    with open_queue("share", name, {**config, "trimtab.instance": "worker-7"}) as queue:
        taken = list[Any]()
        eventually(lambda: taken.extend(queue.receive(5, 0.2)) or len(taken) == 5)
        view = monitor.describe_group()
        assert view.is_share_group
        assert [(r.instance, r.owned_partitions) for r in view.members] == [("worker-7", frozenset())]
        assert monitor.measure().queue == QueueBacklog(QueueKind.SHARE, 5)
        taken[0].ack()
        taken[1].reject()
        queue.receive(0, 0)
        eventually(lambda: monitor.measure().queue == QueueBacklog(QueueKind.SHARE, 3))
        for message in taken[2:]:
            message.ack()
        queue.receive(0, 0)
        eventually(lambda: monitor.measure().queue == QueueBacklog(QueueKind.SHARE, 0))
        eventually(lambda: is_idle(monitor.measure().write_rates))
    _is_told_by_frames_of_our_own(config, name)


def _is_told_by_frames_of_our_own(config: Config, topic: str) -> None:
    client = KafkaAdminClient(bootstrap_servers=config["bootstrap.servers"].split(","))
    try:
        (described,) = protocol.describe_share_group_offsets(client, config["group.id"]).topics
        assert (described.topic_name, described.partitions[0].lag) == (topic, 0)
        assert 0 <= described.partitions[0].start_offset <= 5  # it follows the lag in its own time
        assert protocol.describe_share_group(client, config["group.id"]).group_state == "Empty"
        assert protocol.describe_share_group(client, f"{topic}-missing") is None
    finally:
        client.close()


def test_a_classic_group_is_no_share_group(
    bootstrap: str, group: str, topic: Any, watch: Any, eventually: Eventually
) -> None:
    """Its name is refused with what it is, before anything is scaled by a lag that is none."""
    name = topic(partitions=1)
    consumer = Plain({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.subscribe([name])
    eventually(lambda: consumer.poll(0.1) or consumer.assignment())
    with pytest.raises(GroupTypeMismatchError, match="is a classic group, not a share group"):
        watch(name, "share")
    consumer.close()


def test_a_share_group_is_no_consumer_group(
    config: Config, topic: Any, eventually: Eventually, tmp_path: Path
) -> None:
    """A sidecar that is not told of a share group says so, and does not scale it by nothing."""
    file = tmp_path / "sidecar.yaml"
    name = topic(partitions=1)
    given = {"bootstrap": config["bootstrap.servers"], "group": config["group.id"], "topics": name}
    file.write_text(yaml.safe_dump({**given, "capacity": "1 kB/s"}))
    found = load_settings(file, {})
    share_group.refuse_share_group(found)  # there is no group yet
    with open_queue("share", name, config) as queue:
        eventually(lambda: queue.receive(1, 0.2) or seen_as_shared(found))
        command = [sys.executable, "-m", "trimtab.cli", "sidecar", "--dry-run", "-c", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "is a share group: write queue=share" in done.stderr


def seen_as_shared(found: Any) -> bool:
    """Tell whether the brokers list the group already."""
    try:
        share_group.refuse_share_group(found)
    except GroupTypeMismatchError:
        return True
    return False


def test_a_broker_without_share_groups_is_named(
    topic: Any, watch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says which version, or which feature, and that kmq needs neither."""

    def nothing(_features: object, where: str) -> str:
        return f"the brokers at {where} have no share groups"

    monkeypatch.setattr(share_group, "explain_missing_share_groups", nothing)
    with pytest.raises(ShareGroupsUnsupportedError, match="have no share groups"):
        watch(topic(partitions=1), "share")
