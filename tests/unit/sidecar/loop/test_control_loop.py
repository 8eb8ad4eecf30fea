"""The control loop on a simulated group: seeded load, deaths, outages and restarts."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import example, given
from hypothesis import settings as effort
from hypothesis import strategies as st

from support.in_memory_target import InMemoryTarget
from support.named_rounds import JoinedMember, assign_by_name, assignments
from support.ticking import Ticking
from trimtab.assignor.model import Load, PlacementPolicy, TopicPartition
from trimtab.assignor.rebalance.leader import LeaderView
from trimtab.assignor.rebalance.user_data import MemberUserData
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad, TopicWriteRates
from trimtab.sidecar.decision.decision import ScalingAction
from trimtab.sidecar.errors import BrokerTimeoutError, KubernetesUnavailableError, StartupError
from trimtab.sidecar.loop.control_loop import ControlLoop, LoopCollaborators
from trimtab.sidecar.measurement.load_estimator import LearnedFigures, LoadEstimate
from trimtab.sidecar.measurement.record_cost import RecordCostStatus
from trimtab.sidecar.model.observation import (
    GroupState,
    ObservedGroup,
    ObservedMember,
    RequestedReplicas,
    TargetStatus,
)
from trimtab.sidecar.model.record_weights import BYTES_ALONE, RecordWeights
from trimtab.sidecar.plan_carrier import CarrierStatus, PlanCarrier
from trimtab.sidecar.readings.group_monitor import GroupMeasurement
from trimtab.sidecar.records.iteration_report import IterationReport
from trimtab.sidecar.settings.settings import SidecarSettings, load_settings
from trimtab.sidecar.targets.process.process_target import ProcessTarget

PARTITIONS = tuple(TopicPartition("t", n) for n in range(6))


@dataclass
class Simulated:
    """A group, its brokers and workers; a rebalance takes two iterations, as a cooperative one."""

    clock: Ticking
    target: InMemoryTarget = field(init=False)
    rates: dict[TopicPartition, float | None] = field(default_factory=dict)
    owners: dict[TopicPartition, str] = field(default_factory=dict)
    members: set[str] = field(default_factory=set)
    published: list[GroupPlan] = field(default_factory=list)
    away: bool = False
    deaf: bool = False  # plans cannot be written
    unsure: bool = False  # plans are written, but not acknowledged
    weights: RecordWeights = BYTES_ALONE
    cost: RecordCostStatus | None = None
    consumers: int = 1  # of each worker, with one client id: "w#0", "w#1"
    broken: list[str] = field(default_factory=list)
    _cause: object = None
    _moving: dict[TopicPartition, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        world = self

        class Target(InMemoryTarget):
            def stop_replica(self, name: str) -> None:
                if any(o.split("#")[0] == name and world.rates[p] for p, o in world.owners.items()):
                    world.broken.append(f"{name} was stopped while it owned partitions")
                super().stop_replica(name)

        self.target = Target(self.clock.wall)
        self.rates = dict.fromkeys(PARTITIONS, 10.0)

    # what the loop needs of a monitor and of the control topics

    def measure(self) -> GroupMeasurement:
        if self.away:
            nothing = {p: PartitionLoad() for p in PARTITIONS}
            return GroupMeasurement(LoadEstimate(nothing), ObservedGroup(), {}, ("no broker answers",))
        rates = {p: PartitionLoad(s, backlog_records=None if s is None else 0) for p, s in self.rates.items()}
        load = LoadEstimate(rates, learned=LearnedFigures(self.cost), record_weights=self.weights)
        return GroupMeasurement(load, self.describe_group(), {}, ())

    def describe_group(self) -> ObservedGroup:
        if self.away:
            return ObservedGroup()
        held = {m: frozenset(p for p, o in self.owners.items() if o == m) for m in self.members}
        readers = tuple(
            ObservedMember(f"id-{m}", m.split("#")[0], owned) for m, owned in sorted(held.items())
        )
        if not readers:
            return ObservedGroup(GroupState.EMPTY)
        return ObservedGroup(GroupState.REBALANCING if self._moving else GroupState.STABLE, readers)

    def read_plan(self) -> GroupPlan | None:
        if self.away:
            raise BrokerTimeoutError("no broker answers")
        return self.published[-1] if self.published else None

    def publish(self, values: Iterable[GroupPlan | TopicWriteRates]) -> None:
        for value in values:
            if self.away or (self.deaf and isinstance(value, GroupPlan)):
                raise BrokerTimeoutError("no broker answers")
            if isinstance(value, GroupPlan):
                self.published.append(value)
                if self.unsure:
                    raise BrokerTimeoutError("no answer")

    # what the world does between two iterations

    def tick(self) -> None:
        self.clock.sleep(2)
        alive = {i.name for i in self.target.list_replicas() if i.alive}
        several = {f"{name}#{n}" for name in alive for n in range(self.consumers)}
        self.members = alive if self.consumers == 1 else several
        self.owners = {p: o for p, o in self.owners.items() if o in self.members}
        if self._moving:
            self.owners |= {p: o for p, o in self._moving.items() if o in self.members}
            self._moving = {}
        self._rebalance()

    def _rebalance(self) -> None:
        plan = self.read_plan() if not self.away else None
        if not self.members or plan is None:
            return
        revision = 0 if plan.target is None else plan.target.revision
        cause = (frozenset(self.members), plan.epoch, revision, frozenset(self.owners) == set(PARTITIONS))
        if cause == self._cause:
            return
        self._cause = cause
        made = self._lead(plan)
        self._moving = {p: name for p, name in made.items() if self.owners.get(p) != name}
        for partition in self._moving:
            self.owners.pop(partition, None)

    def _lead(self, plan: GroupPlan) -> dict[TopicPartition, str]:
        """Return what the group's leader makes of a plan."""
        held = {m: frozenset(p for p, owner in self.owners.items() if owner == m) for m in self.members}
        joined = [
            JoinedMember(m, frozenset({"t"}), MemberUserData(instance=m.split("#")[0]), owned, 1)
            for m, owned in sorted(held.items())
        ]
        led = assign_by_name(joined, PARTITIONS, LeaderView(Load(self.rates), plan), PlacementPolicy())
        assert not led.fault
        return {p: m for m, share in assignments(led).items() for p in share.assigned | share.promised}


def settings(**more: Any) -> SidecarSettings:
    values: dict[str, Any] = {
        "bootstrap": "b:1",
        "group": "g",
        "capacity": 100,
        "target": "process",
        "worker_command": ["w", "{instance}"],
        "state-dir": "unused",
        "max": 5,
        "interval": 2,
        "window": 10,
        "cooldown": 6,
        "scale_down_stabilization_window": 10,
    }
    return load_settings(None, {**values, **more})


def start(
    world: Simulated,
    reports: list[IterationReport] | None = None,
    carrier: PlanCarrier | None = None,
    **more: Any,
) -> ControlLoop:
    reporters = () if reports is None else (reports.append,)
    parts = LoopCollaborators(world, world, world.target, reporters, plan_carrier=carrier)
    return ControlLoop(settings(**more), parts, world.clock)


def iterate(world: Simulated, loop: ControlLoop, count: int) -> list[ScalingAction]:
    actions = []
    for _ in range(count):
        actions.append(loop.run_iteration().action)
        world.tick()
    return actions


@pytest.fixture
def world() -> Simulated:
    return Simulated(Ticking())


def test_scale_up_from_an_empty_group(world: Simulated) -> None:
    """A new sidecar publishes a plan, starts the minimum, and follows the load."""
    world.rates = dict.fromkeys(PARTITIONS, 60.0)
    actions = iterate(world, start(world), 20)
    assert actions[:3] == [ScalingAction.ANNOUNCE, ScalingAction.REPLACE, ScalingAction.SCALE_UP]
    assert world.published[-1].replicas == 5
    assert len(world.target.list_replicas()) == 5
    assert set(world.owners) == set(PARTITIONS)


def test_scale_down_drains_before_it_stops(world: Simulated) -> None:
    """When the load falls, replicas are drained, stopped and forgotten one at a time."""
    loop = start(world)
    world.rates = dict.fromkeys(PARTITIONS, 60.0)
    iterate(world, loop, 20)
    world.rates = dict.fromkeys(PARTITIONS, 10.0)
    iterate(world, loop, 80)
    assert world.published[-1].replicas == 1
    assert world.published[-1].draining == ()
    assert len(world.target.list_replicas()) == 1
    assert not world.broken


@pytest.mark.parametrize(("season", "low", "early"), [(None, 180, False), (240, 180, True), (240, 40, False)])
def test_a_scale_down_skips_its_window(world: Simulated, season: Any, low: int, *, early: bool) -> None:
    """By a season of four minutes, unless its `low` seconds of little load end within the window of 60 s."""
    loop = start(world, scale_down_stabilization_window=60, season=season)
    drained = set[int]()
    for number in range(3 * 120 + 60):
        phase = number % 120 * 2
        world.rates = dict.fromkeys(PARTITIONS, 20.0 if 40 <= phase < 40 + low else 60.0)
        if iterate(world, loop, 1) == [ScalingAction.DRAIN] and number > 3 * 120:
            drained.add(phase)
    assert bool(drained.intersection(range(40, 70))) is early


def test_replicas_of_several_consumers_are_scaled_whole(world: Simulated) -> None:
    """Two consumers of 100 B/s a worker: both share the load, and are drained before the worker stops."""
    world.consumers = 2
    loop = start(world, consumers_per_replica=2)
    world.rates = dict.fromkeys(PARTITIONS, 60.0)  # one partition a consumer
    iterate(world, loop, 40)
    assert world.published[-1].replicas == len(world.target.list_replicas()) == 3
    assert len(set(world.owners.values())) == 6
    before = len(world.published)
    iterate(world, loop, 60)
    assert len(world.published) == before, "a steady load"
    world.rates = dict.fromkeys(PARTITIONS, 10.0)
    iterate(world, loop, 80)
    assert world.published[-1].replicas == len(world.target.list_replicas()) == 1
    assert world.published[-1].draining == ()
    assert not world.broken


def test_a_dry_run_knows_each_of_several_consumers_of_a_replica(world: Simulated) -> None:
    """It counts members as replicas, so none is foreign."""
    world.consumers = 2
    managed = start(world, consumers_per_replica=2)
    world.rates = dict.fromkeys(PARTITIONS, 60.0)
    iterate(world, managed, 40)
    reports = list[IterationReport]()
    iterate(world, start(world, reports, consumers_per_replica=2, dry_run=True), 5)
    metrics = reports[-1].decision.metrics
    assert metrics.running_replicas == metrics.joined_replicas == len(world.members) == 6


def test_no_replica_is_drained_while_the_group_is_unsteered(world: Simulated) -> None:
    """Its members keep what they own, so the drain would never end; it follows once the group is steered."""
    unsteered = CarrierStatus(is_steering=False, text="unsteered: another member leads")
    carrier = Mock(carry_out=Mock(return_value=unsteered))
    reports = list[IterationReport]()
    loop = start(world, reports, carrier)
    world.rates = dict.fromkeys(PARTITIONS, 60.0)
    iterate(world, loop, 20)
    world.rates = dict.fromkeys(PARTITIONS, 10.0)
    assert ScalingAction.DRAIN not in iterate(world, loop, 40)
    assert "unsteered" in reports[-1].decision.reason_text
    assert len(world.target.list_replicas()) == 5
    carrier.carry_out.return_value = replace(unsteered, is_steering=True)
    assert ScalingAction.DRAIN in iterate(world, loop, 10)


def test_members_of_any_client_are_found_by_their_address(
    world: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With lead, pods whose clients are all called "rdkafka" are scaled, drained and reported by name."""
    describe, reports = world.describe_group, list[IterationReport]()

    def describe_strangers() -> ObservedGroup:
        group = describe()
        members = (replace(m, instance="rdkafka", host=f"host-of-{m.instance}") for m in group.members)
        return replace(group, members=tuple(members))

    def tell_addresses() -> TargetStatus:
        replicas = world.target.list_replicas()
        return TargetStatus(replicas_by_address={f"host-of-{r.name}": r.name for r in replicas})

    monkeypatch.setattr(world, "describe_group", describe_strangers)
    parts = LoopCollaborators(
        world, world, world.target, (reports.append,), read_target_status=tell_addresses
    )
    loop = ControlLoop(settings(lead=True), parts, world.clock)
    world.rates = dict.fromkeys(PARTITIONS, 60.0)
    iterate(world, loop, 20)
    assert {m.instance for m in reports[-1].members} == world.members
    assert len(world.members) > 1
    world.rates = dict.fromkeys(PARTITIONS, 10.0)
    iterate(world, loop, 80)
    assert len(world.target.list_replicas()) == 1
    assert not world.broken


def test_scale_to_zero_and_back(world: Simulated) -> None:
    """With min=0 all replicas stop without load, and the first record starts one."""
    loop = start(world, min=0, topics="t", idle_after=20)
    iterate(world, loop, 20)
    assert len(world.target.list_replicas()) == 1
    world.rates = dict.fromkeys(PARTITIONS, 0.0)
    iterate(world, loop, 9)
    assert len(world.target.list_replicas()) == 1
    iterate(world, loop, 30)
    assert (world.target.list_replicas(), world.owners) == ((), {})
    assert (world.published[-1].replicas, world.published[-1].draining) == (0, ())
    before = list(world.published)
    iterate(world, start(world, min=0, topics="t", idle_after=20), 10)
    assert world.published == before
    world.rates[PARTITIONS[3]] = 1.0
    assert iterate(world, loop, 1) == [ScalingAction.SCALE_UP]
    iterate(world, loop, 5)
    assert set(world.owners) == set(PARTITIONS)
    assert not world.broken


def test_interrupted_start_from_zero_is_no_pause(world: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
    """A zero of unknown requester is adopted again by the next iteration or sidecar."""

    def outside() -> TargetStatus:
        count = len(world.target.list_replicas())
        return TargetStatus(
            RequestedReplicas(count, "somebody", 0.0, is_ours=False, is_requester_known=False)
        )

    def again() -> ControlLoop:
        parts = LoopCollaborators(world, world, world.target, (), read_target_status=outside)
        return ControlLoop(settings(min=0, topics="t", idle_after=12), parts, world.clock)

    def refused(_: int) -> tuple[str, ...]:
        raise KubernetesUnavailableError("no answer")

    world.rates = dict.fromkeys(PARTITIONS, 0.0)
    loop = start(world, min=0, topics="t", idle_after=12)
    iterate(world, loop, 20)
    assert (world.target.list_replicas(), world.published[-1].replicas) == ((), 0)
    world.rates[PARTITIONS[3]] = 1.0
    with monkeypatch.context() as patched:
        patched.setattr(world.target, "add_replicas", refused)
        iterate(world, again(), 3)
    assert world.target.list_replicas() == ()
    world.deaf = True
    iterate(world, again(), 1)
    assert world.target.list_replicas()
    world.deaf = False
    assert iterate(world, again(), 1) == [ScalingAction.ADOPT]
    assert (len(world.target.list_replicas()), world.published[-1].replicas) == (1, 1)


def test_outage_at_zero_starts_nothing(world: Simulated) -> None:
    """Neither an outage nor unknown write rates start a replica."""
    loop = start(world, min=0, topics="t", idle_after=20)
    world.rates = dict.fromkeys(PARTITIONS, 0.0)
    iterate(world, loop, 5)
    world.away = True
    iterate(world, loop, 5)
    world.away, world.rates = False, dict.fromkeys(PARTITIONS)
    assert set(iterate(world, loop, 30)) == {ScalingAction.HOLD}
    assert world.target.list_replicas() == ()


def test_restarted_sidecar_publishes_nothing(world: Simulated) -> None:
    """Without a change it publishes, starts and stops nothing."""
    iterate(world, start(world), 20)
    before, replicas = list(world.published), world.target.list_replicas()
    iterate(world, start(world), 40)
    assert world.published == before
    assert world.target.list_replicas() == replicas


def test_next_sidecar_completes_the_plan(world: Simulated) -> None:
    """Replicas of a plan that were never started are started by the next sidecar."""
    iterate(world, start(world), 10)
    world.published.append(replace(world.published[-1], replicas=3))
    world.rates = dict.fromkeys(PARTITIONS, 45.0)
    assert iterate(world, start(world), 1) == [ScalingAction.REPLACE]
    assert len(world.target.list_replicas()) == 3


def test_outage_changes_nothing(world: Simulated) -> None:
    """The loop holds while no broker responds, and nothing has changed afterwards."""
    loop = start(world)
    iterate(world, loop, 20)
    before = world.published[-1]
    world.away = True
    assert set(iterate(world, loop, 10)) == {ScalingAction.HOLD}
    world.away = False
    iterate(world, loop, 10)
    assert world.published[-1] == before


def test_unwritten_plan_is_read_back(world: Simulated) -> None:
    """After a failed publication nothing is started, and the next iteration reads the plan."""
    loop = start(world)
    iterate(world, loop, 10)
    world.rates, world.deaf = dict.fromkeys(PARTITIONS, 60.0), True
    iterate(world, loop, 3)
    assert len(world.target.list_replicas()) == 1
    world.deaf = False
    iterate(world, loop, 1)
    assert len(world.target.list_replicas()) > 1


def test_unacknowledged_plan_is_adopted(world: Simulated) -> None:
    """A plan whose acknowledgement was lost is executed, not published again."""
    loop = start(world)
    iterate(world, loop, 10)
    world.rates, world.unsure = dict.fromkeys(PARTITIONS, 60.0), True
    assert iterate(world, loop, 1) == [ScalingAction.SCALE_UP]
    world.unsure = False
    before = list(world.published)
    assert iterate(world, loop, 1) == [ScalingAction.REPLACE]
    assert world.published == before
    assert len(world.target.list_replicas()) == before[-1].replicas


def test_restart_keeps_the_cooldown(world: Simulated) -> None:
    """A sidecar that starts right after a change waits for the rest of the cooldown."""
    iterate(world, start(world), 10)
    world.rates = dict.fromkeys(PARTITIONS, 25.0)
    assert ScalingAction.SCALE_UP in iterate(world, start(world), 3)
    world.rates = dict.fromkeys(PARTITIONS, 80.0)
    reports: list[IterationReport] = []
    iterate(world, start(world, reports, cooldown=60), 8)
    assert {r.decision.action for r in reports} == {ScalingAction.HOLD}
    assert "cooldown" in reports[-1].decision.format_line()


def test_decision_is_checked_again(world: Simulated) -> None:
    """A decision is postponed if the group changed before its execution."""
    loop = start(world)
    world.rates = dict.fromkeys(PARTITIONS, 60.0)
    iterate(world, loop, 20)
    world.rates = dict.fromkeys(PARTITIONS, 10.0)
    iterate(world, loop, 3)
    looks = iter([ObservedGroup(GroupState.REBALANCING, world.describe_group().members)])
    real = world.describe_group
    reports: list[IterationReport] = []
    loop = start(world, reports)
    for _ in range(30):
        world.describe_group = real  # type: ignore[method-assign]
        measurement = world.measure()
        drains = ObservedGroup(GroupState.REBALANCING, measurement.group.members)
        world.measure = lambda measurement=measurement: measurement  # type: ignore[method-assign, misc]
        world.describe_group = lambda drains=drains: drains  # type: ignore[method-assign, misc]
        loop.run_iteration()
        del world.measure, world.describe_group
        world.tick()
    del looks
    reasons = [" ".join(r.decision.reasons) for r in reports]
    assert any("drain postponed" in text for text in reasons)
    assert not any(r.decision.action is ScalingAction.DRAIN for r in reports)


def test_dry_run_changes_nothing(world: Simulated) -> None:
    """A dry run reports decisions; it publishes, starts and stops nothing."""
    iterate(world, start(world), 10)
    before, replicas = list(world.published), world.target.list_replicas()
    world.rates = dict.fromkeys(PARTITIONS, 60.0)
    loop = start(world, dry_run=True)
    iterate(world, loop, 9)
    decision = loop.run_iteration()
    assert (decision.action, decision.reasons[0]) == (
        ScalingAction.SCALE_UP,
        "advice only: nothing is scaled here",
    )
    assert (world.published, world.target.list_replicas()) == (before, replicas)


def test_failed_starts_back_off(world: Simulated) -> None:
    """A failing target is reported and retried at growing intervals."""

    def fail(_count: int) -> tuple[str, ...]:
        raise StartupError("no such program")

    world.target.add_replicas = fail  # type: ignore[method-assign]
    actions = iterate(world, start(world), 30)
    assert ScalingAction.REPLACE in actions
    assert actions.count(ScalingAction.REPLACE) < 8


def test_rolling_restart_replaces_every_replica(world: Simulated, tmp_path: Any) -> None:
    """Each is replaced by surge; never fewer run than planned."""
    world.rates = dict.fromkeys(PARTITIONS, 40.0)
    loop = start(world, state_dir=tmp_path)
    iterate(world, loop, 15)
    old = {i.name for i in world.target.list_replicas()}
    assert len(old) == 3
    (tmp_path / "restart.json").write_text(str(sorted(old)).replace("'", '"'))
    for _ in range(60):
        iterate(world, loop, 1)
        assert len(world.target.list_replicas()) >= 3
    now = {i.name for i in world.target.list_replicas()}
    assert len(now) == 3
    assert not now & old
    assert not world.broken
    assert not (tmp_path / "restart.json").exists()


def test_a_rolling_restart_of_a_group_that_shrinks_starts_only_what_stays(
    world: Simulated, tmp_path: Path
) -> None:
    """The load falls as the restart begins: never more run than planned, and one replica is started."""
    world.rates = dict.fromkeys(PARTITIONS, 60.0)
    loop = start(world, state_dir=tmp_path)
    iterate(world, loop, 20)
    old = {i.name for i in world.target.list_replicas()}
    assert len(old) == 5
    world.rates = dict.fromkeys(PARTITIONS, 10.0)
    iterate(world, loop, 8)  # the stabilization window: fewer are desired from now on
    (tmp_path / "restart.json").write_text(str(sorted(old)).replace("'", '"'))
    seen = set(old)
    for _ in range(80):
        before = len(world.target.list_replicas())
        iterate(world, loop, 1)
        running = {i.name for i in world.target.list_replicas()}
        assert len(running) <= max(before, 2)  # 2: the only one planned, and its successor
        seen |= running
    assert len(world.target.list_replicas()) == 1
    assert len(seen - old) == 1
    assert not world.broken
    assert not (tmp_path / "restart.json").exists()


def test_failed_surge_backs_off(world: Simulated, tmp_path: Path) -> None:
    """A restart whose new replica fails to start is not retried in every iteration."""
    loop = start(world, state_dir=tmp_path)
    iterate(world, loop, 15)

    def fail(_count: int) -> tuple[str, ...]:
        raise StartupError("no such program")

    world.target.add_replicas = fail  # type: ignore[method-assign]
    (tmp_path / "restart.json").write_text('["worker-1"]')
    actions = iterate(world, loop, 30)
    assert 1 < actions.count(ScalingAction.SURGE) < 8


@pytest.fixture
def processes(world: Simulated, tmp_path: Path) -> Iterator[ProcessTarget]:
    target = ProcessTarget([sys.executable, "-c", "pass"], tmp_path / "state", world.clock)
    yield target
    target.close()


def survive(world: Simulated, target: ProcessTarget) -> list[IterationReport]:
    """Run ten iterations on real processes with a damaged state folder."""
    reports: list[IterationReport] = []
    loop = ControlLoop(settings(), LoopCollaborators(world, world, target, (reports.append,)), world.clock)
    for _ in range(10):
        loop.run_iteration()
        world.clock.sleep(2)
    return reports


def test_malformed_name_file_does_not_end_the_loop(
    world: Simulated, processes: ProcessTarget, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a valid name nothing is started; the log names the file."""
    (tmp_path / "state" / "last").write_text("seven")
    actions = [r.decision.action for r in survive(world, processes)]
    assert 1 < actions.count(ScalingAction.REPLACE) < 8
    assert "state/last does not contain a number" in caplog.text


def test_unwritable_state_dir_does_not_end_the_loop(
    world: Simulated, processes: ProcessTarget, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A refused write is logged with its reason and retried."""
    (tmp_path / "state" / f"last.{os.getpid()}.tmp").mkdir(parents=True)
    actions = [r.decision.action for r in survive(world, processes)]
    assert 1 < actions.count(ScalingAction.REPLACE) < 8
    assert f"last.{os.getpid()}.tmp: Is a directory; free disk space" in caplog.text


def test_unreadable_state_dir_is_reported(world: Simulated, processes: ProcessTarget, tmp_path: Path) -> None:
    """Unreadable replicas are unknown: nothing changes, and the report has the reason."""
    (tmp_path / "state" / "workers").touch()
    reports = survive(world, processes)
    assert {r.decision.action for r in reports} == {ScalingAction.HOLD}
    assert "free disk space" in reports[-1].errors[0]


def test_unreadable_restart_request_is_reported(world: Simulated, tmp_path: Path) -> None:
    """It is reported, and the loop continues without it."""
    (tmp_path / "restart.json").mkdir()
    reports: list[IterationReport] = []
    iterate(world, start(world, reports, state_dir=tmp_path), 5)
    assert "Is a directory" in reports[-1].errors[0]


EVENTS = st.one_of(
    st.tuples(st.just("load"), st.integers(0, 5), st.integers(0, 150)),
    st.tuples(st.just("all"), st.just(0), st.integers(0, 90)),
    st.tuples(st.just("unknown"), st.integers(0, 5), st.just(0)),
    st.tuples(st.just("kill"), st.integers(0, 9), st.just(0)),
    st.tuples(st.just("away"), st.just(0), st.just(0)),
    st.tuples(st.just("deaf"), st.just(0), st.just(0)),
    st.tuples(st.just("restart"), st.just(0), st.just(0)),
    st.tuples(st.just("time"), st.integers(1, 12), st.just(0)),
)


def kill(world: Simulated, number: int) -> None:
    alive = [i.name for i in world.target.list_replicas() if i.alive]
    if alive:
        world.target.kill_replica(alive[number % len(alive)])


def happens(
    world: Simulated, loop: ControlLoop, event: tuple[str, int, int], more: Mapping[str, Any]
) -> ControlLoop:
    kind, number, value = event
    if kind == "load":
        world.rates[PARTITIONS[number]] = float(value)
    elif kind == "all":
        world.rates = dict.fromkeys(PARTITIONS, float(value))
    elif kind == "unknown":
        world.rates[PARTITIONS[number]] = None
    elif kind == "kill":
        kill(world, number)
    elif kind in ("away", "deaf"):
        setattr(world, kind, not getattr(world, kind))
    elif kind == "time":
        iterate(world, loop, number)
    return start(world, **more) if kind == "restart" else loop


def check(world: Simulated, before: Mapping[str, Any], action: ScalingAction, least: int) -> None:
    assert not world.broken
    for plan in world.published:
        assert least <= plan.replicas <= 5
    epochs = [plan.epoch for plan in world.published]
    assert epochs == sorted(epochs)
    assert all(b - a <= 1 for a, b in pairwise(epochs))
    if before["away"]:
        assert action is ScalingAction.HOLD
        assert world.published == before["published"]


# an example is some 100 decisions, a second of CPU where the group stays overloaded
@effort(max_examples=15)
@given(st.lists(EVENTS, max_size=40))
def test_invariants_hold_under_random_events(events: list[tuple[str, int, int]]) -> None:
    """Limits hold, an unknown state holds, no owner is stopped, epochs grow by one; then it settles."""
    go_through(events)


@effort(max_examples=10)
@example([("all", 0, 0)])
@given(st.lists(EVENTS, max_size=40))
def test_invariants_hold_with_a_minimum_of_zero(events: list[tuple[str, int, int]]) -> None:
    """With min=0 they hold, too, and no owner of a written partition is stopped."""
    steps = [{"type": "percent", "value": 100, "period": 6}, {"type": "pods", "value": 1, "period": 4}]
    go_through(events, min=0, topics="t", idle_after=10, scale_up_policies=steps)


def go_through(events: list[tuple[str, int, int]], **more: Any) -> None:
    world = Simulated(Ticking())
    loop = start(world, **more)
    for event in events:
        loop = happens(world, loop, event, more)
        before = {"away": world.away, "published": list(world.published)}
        action = loop.run_iteration().action
        check(world, before, action, more.get("min", 1))
        world.tick()
    world.away = world.deaf = False
    world.rates = {p: 10.0 if s is None else s for p, s in world.rates.items()}
    iterate(world, loop, 60)  # two minutes; 19 iterations were the most in 120 random histories
    assert not world.broken
    plan = world.published[-1]
    assert plan.draining == ()
    assert len([i for i in world.target.list_replicas() if i.alive]) == plan.replicas
    assert set(world.owners) == (set(PARTITIONS) if plan.replicas else set())
    epoch = plan.epoch
    iterate(world, start(world, **more), 20)
    assert world.published[-1].epoch == epoch
