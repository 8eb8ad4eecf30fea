"""A sidecar that does not lead, and one that loses the lead during an iteration."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from unittest.mock import Mock

import pytest

from support.in_memory_target import InMemoryTarget
from support.ticking import Ticking
from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad, TopicWriteRates
from trimtab.common.errors import SettingError
from trimtab.sidecar.decision.decision import ScalingAction
from trimtab.sidecar.errors import BrokerTimeoutError, ScalingPostponedError
from trimtab.sidecar.loop.control_loop import ControlLoop, LoopCollaborators
from trimtab.sidecar.measurement.load_estimator import LoadEstimate
from trimtab.sidecar.model.observation import (
    GroupState,
    ObservedGroup,
    ObservedMember,
    RequestedReplicas,
    TargetStatus,
)
from trimtab.sidecar.plan_carrier import CarrierStatus, PlanCarrier
from trimtab.sidecar.readings.group_monitor import GroupMeasurement
from trimtab.sidecar.records.iteration_report import IterationReport, LogReporter
from trimtab.sidecar.settings.settings import SidecarSettings, load_settings

PARTITION = TopicPartition("t", 0)


@dataclass
class Elected:
    """Leads as a test says; `steps` is how many checks still succeed."""

    steps: float = 0.0

    def is_leader(self) -> bool:
        self.steps -= 1
        return self.steps >= 0

    def get_leader(self) -> str:
        return "other"


@dataclass
class World:
    """A group without members, its topics, and the published values."""

    published: list[GroupPlan] = field(default_factory=list)
    read: int = 0
    reports: list[IterationReport] = field(default_factory=list)

    def measure(self) -> GroupMeasurement:
        return GroupMeasurement(
            LoadEstimate({PARTITION: PartitionLoad(bytes_per_s=250.0)}), self.describe_group(), {}, ()
        )

    def describe_group(self) -> ObservedGroup:
        return ObservedGroup(GroupState.STABLE, (ObservedMember("id", "worker-1", frozenset({PARTITION})),))

    def read_plan(self) -> GroupPlan | None:
        self.read += 1
        return self.published[-1] if self.published else None

    def publish(self, values: Iterable[GroupPlan | TopicWriteRates]) -> None:
        self.published += [v for v in values if isinstance(v, GroupPlan)]


def settings(**more: object) -> SidecarSettings:
    values = {"bootstrap": "b:1", "group": "g", "capacity": 100, "target": "kubernetes"}
    return load_settings(None, {**values, "workload": "deployment/lake", **more})


def loop(
    world: World,
    elected: Elected,
    target: InMemoryTarget,
    outside: TargetStatus | None = None,
    carrier: PlanCarrier | None = None,
) -> ControlLoop:
    parts = LoopCollaborators(
        world,
        world,
        target,
        (world.reports.append,),
        read_target_status=lambda: outside or TargetStatus(),
        leadership=elected,
        plan_carrier=carrier,
    )
    return ControlLoop(settings(), parts, Ticking())


def test_a_standby_changes_nothing() -> None:
    """It measures and names the leader, and neither reads the plan nor publishes nor starts anything."""
    world, target = World(), InMemoryTarget()
    decision = loop(world, Elected(), target).run_iteration()
    assert decision.action is ScalingAction.HOLD
    assert decision.reasons == ("standing by: other manages the group",)
    assert (world.published, world.read, target.list_replicas()) == ([], 0, ())
    assert world.reports[0].is_group_known


def test_a_standby_logs_a_line_when_something_changes(caplog: pytest.LogCaptureFixture) -> None:
    """It looks every two seconds, for days."""
    caplog.set_level(logging.INFO)
    world, reporter = World(), LogReporter()
    one = loop(world, Elected(), InMemoryTarget())
    for _ in range(3):
        one.run_iteration()
    for report in (*world.reports, replace(world.reports[0], is_leader=True), world.reports[0]):
        reporter(report)
    lines = [text for text in caplog.messages if "standing by" in text]
    assert [text.startswith("hold") for text in lines] == [False, True, False]
    assert lines[0] == "standing by: other manages the group"


def test_a_new_leader_reads_the_plan_first() -> None:
    """It continues from the plan that the other one published meanwhile."""
    world, elected, target = World(), Elected(float("inf")), InMemoryTarget()
    one = loop(world, elected, target)
    one.run_iteration()
    assert world.published[-1].epoch == 1
    elected.steps = 0
    one.run_iteration()
    target.add_replicas(3)
    world.published.append(GroupPlan("g", 7, 1.7e9, 3, "steady", 100.0, 0.9))
    elected.steps = float("inf")
    one.run_iteration()
    assert [plan.epoch for plan in world.published][-1] == 7


def test_a_new_leader_tells_nothing_of_its_former_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the plan's carrier, while it cannot read the plan."""
    world, elected, ready = World(), Elected(float("inf")), CarrierStatus(is_steering=False, text="ready")
    steers = CarrierStatus(is_steering=True, text="leads the group")
    carrier = Mock(carry_out=Mock(return_value=steers), stand_by=Mock(return_value=ready))
    one = loop(world, elected, InMemoryTarget(), carrier=carrier)
    for steps in (float("inf"), 0, float("inf")):
        elected.steps = steps
        one.run_iteration()
        monkeypatch.setattr(world, "read_plan", Mock(side_effect=BrokerTimeoutError("no broker answers")))
    assert [report.carrier for report in world.reports] == [steers, ready, ready]


def test_a_lease_that_ends_stops_the_iteration() -> None:
    """After it nothing more is published or started."""
    world, target = World(), InMemoryTarget()
    decision = loop(world, Elected(1), target).run_iteration()
    assert decision.action is ScalingAction.ANNOUNCE
    assert "lease" in decision.failure
    assert world.published == []


def test_a_standby_iterates_often() -> None:
    """It iterates every 2 s whatever the interval, to take over quickly."""
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return len(waits) > 1

    loop(World(), Elected(), InMemoryTarget()).run(wait)
    assert waits == [0.0, 2.0]


def test_a_rejected_scaling_is_reported() -> None:
    """The decision says why it was not executed; the loop continues."""

    class Waits(InMemoryTarget):
        def add_replicas(self, count: int) -> tuple[str, ...]:
            raise ScalingPostponedError(f"{count} must wait")

    world = World()
    one = loop(world, Elected(float("inf")), Waits())
    one.run_iteration()
    decision = one.run_iteration()
    assert decision.action is ScalingAction.REPLACE
    assert decision.failure == "1 must wait"


def test_external_counts_are_observed() -> None:
    """A count set at the target, and the target's errors, appear in the next decision."""
    world, target = World(), InMemoryTarget(lambda: 1.7e9)
    target.add_replicas(1)
    requested = RequestedReplicas(2, "kubectl", 1.7e9 + 2_000, is_ours=False)
    one = loop(world, Elected(float("inf")), target, TargetStatus(requested, errors=("no image",)))
    one.run_iteration()
    assert one.run_iteration().action is ScalingAction.ADOPT_EXTERNAL
    assert world.reports[-1].errors == ("no image",)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"workload": None}, "target=kubernetes needs workload"),
        ({"workload": "lake"}, "workload"),
        ({"workload": "daemonset/lake"}, "workload"),
        ({"target": "none"}, "a workload is given, but target=none"),
    ],
)
def test_contradicting_settings_are_rejected(given: dict[str, object], message: str) -> None:
    """A workload that is missing, malformed or unused is rejected."""
    with pytest.raises(SettingError, match=message):
        settings(**given)
