"""A sidecar that starts goes on with the seasons that another one has recorded, on a real broker."""

import json
import logging
import math
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from support.ticking import Ticking
from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad, TopicWriteRates
from trimtab.sidecar.kafka.control_topic_store import ControlTopicStore
from trimtab.sidecar.kafka.shared_control_topics import GroupControlTopics, SharedControlTopics
from trimtab.sidecar.loop.control_loop import ControlLoop, LoopCollaborators
from trimtab.sidecar.measurement.load_estimator import LoadEstimate
from trimtab.sidecar.measurement.load_forecast import ForecastStatus
from trimtab.sidecar.model.observation import GroupState, ObservedGroup, ObservedMember
from trimtab.sidecar.readings.group_monitor import GroupMeasurement
from trimtab.sidecar.records.iteration_report import IterationReport
from trimtab.sidecar.reporting.decision_log import DecisionRecorder, DecisionStore
from trimtab.sidecar.settings.settings import SidecarSettings, load_settings
from trimtab.sidecar.targets.replica_target import AdvisoryTarget

pytestmark = pytest.mark.broker

SEASON, INTERVAL = 40.0, 2.0
ITERATIONS = round(3.2 * SEASON / INTERVAL)
PARTITIONS = tuple(TopicPartition("orders", n) for n in range(3))
OpenStore = Callable[[SidecarSettings, AdminClient], Any]


@dataclass
class World:
    """A group whose load returns with the season, and its plans."""

    group: str
    clock: Ticking = field(default_factory=Ticking)

    def measure(self) -> GroupMeasurement:
        rate = 100 + 60 * math.sin(2 * math.pi * self.clock.wall() / SEASON)
        return GroupMeasurement(
            LoadEstimate(dict.fromkeys(PARTITIONS, PartitionLoad(rate, 0.0))), self.describe_group(), {}, ()
        )

    def describe_group(self) -> ObservedGroup:
        return ObservedGroup(GroupState.STABLE, (ObservedMember("id", "one", frozenset(PARTITIONS)),))

    def read_plan(self) -> GroupPlan | None:
        return None

    def publish(self, values: Iterable[GroupPlan | TopicWriteRates]) -> None:
        """Leave it unpublished."""


@contextmanager
def open_alone(settings: SidecarSettings, admin: AdminClient) -> Generator[DecisionStore]:
    yield ControlTopicStore(settings, admin)


@contextmanager
def open_shared(settings: SidecarSettings, admin: AdminClient) -> Generator[DecisionStore]:
    with closing(SharedControlTopics(settings, admin)) as shared:
        topics = GroupControlTopics(shared, settings.group)
        shared.begin_round()
        yield topics


@contextmanager
def run_sidecar(
    world: World, settings: SidecarSettings, store: DecisionStore, eventually: Any
) -> Generator[Callable[[], ForecastStatus]]:
    """Yield the sidecar's next iteration, which returns its forecast."""
    reports: list[IterationReport] = []
    recorder = DecisionRecorder(settings, store, lambda: None, world.clock)
    parts = LoopCollaborators(
        world, world, AdvisoryTarget(), (reports.append, recorder), season_archive=recorder.seasons
    )
    loop = ControlLoop(settings, parts, world.clock)

    def iterate() -> ForecastStatus:
        loop.run_iteration()
        eventually(lambda: not recorder._queue)  # as in an interval of real time
        forecast = reports[-1].forecast
        assert forecast is not None
        return forecast

    with closing(recorder):
        yield iterate


@pytest.mark.parametrize("open_store", [open_alone, open_shared])
def test_a_restarted_sidecar_forecasts_at_once(
    bootstrap: str,
    admin: AdminClient,
    group: str,
    eventually: Any,
    caplog: pytest.LogCaptureFixture,
    open_store: OpenStore,
) -> None:
    """By what the one before has recorded, also beside a record that cannot be read."""
    caplog.set_level(logging.INFO)
    topic = f"{group}.decisions"
    values: dict[str, Any] = {"bootstrap": bootstrap, "group": group, "capacity": 1e6, "target": "none"}
    values |= {"decision-topic": topic, "interval": INTERVAL, "window": 2 * INTERVAL, "season": SEASON}
    settings, world = load_settings(None, values), World(group)
    store = ControlTopicStore(settings, admin)
    with open_store(settings, admin) as opened, run_sidecar(world, settings, opened, eventually) as iterate:
        for _ in range(ITERATIONS):
            last = iterate()
            world.clock.sleep(INTERVAL)
        eventually(lambda: sum(record.bins for record in store.read_seasons()) >= ITERATIONS - 1)
    assert last.is_used
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b'{"v":1,"group":"x"}', json.dumps([group, "season", 85]))
    assert producer.flush(30) == 0
    world.clock.sleep(3 * INTERVAL)
    with open_store(settings, admin) as opened, run_sidecar(world, settings, opened, eventually) as iterate:
        assert iterate().error_ratio is None
        eventually(lambda: iterate().is_used)
    assert [text for text in caplog.messages if "of earlier seasons restored" in text]
    assert [record.levelname for record in caplog.records if "skipped" in record.getMessage()] == ["WARNING"]
