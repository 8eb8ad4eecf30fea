"""The control loop when `learn-record-cost` changes what records weigh: nothing is kept in an old unit."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from support.ticking import Ticking
from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad, TopicWriteRates
from trimtab.sidecar.decision.decision_memory import ScaleUpEvaluation
from trimtab.sidecar.loop.control_loop import ControlLoop, LoopCollaborators
from trimtab.sidecar.measurement.load_estimator import LoadEstimate
from trimtab.sidecar.model.observation import GroupState, ObservedGroup, ObservedMember
from trimtab.sidecar.model.record_weights import BYTES_ALONE, RecordWeights
from trimtab.sidecar.readings.group_monitor import GroupMeasurement
from trimtab.sidecar.records.iteration_report import IterationReport
from trimtab.sidecar.records.season_record import SeasonArchive
from trimtab.sidecar.settings.settings import load_settings
from trimtab.sidecar.targets.replica_target import AdvisoryTarget

INTERVAL = 2.0
SEASON = 60.0
SIZE = 100.0  # bytes of a record
READ = 200.0  # bytes/s of each partition that the consumer reads while it is behind
PARTITIONS = tuple(TopicPartition("t", n) for n in range(3))
HEAVY = RecordWeights(0.5, 250.0)  # a byte of these records weighs three
LIGHT = RecordWeights(0.3, 10.0)  # a byte of these records weighs 0.4


@dataclass
class World:
    """A group whose first consumer owns all, its load in bytes as written, and its plans."""

    clock: Ticking = field(default_factory=Ticking)
    weights: RecordWeights = BYTES_ALONE
    backlog: float = 0.0  # bytes of each partition
    plans: list[GroupPlan] = field(default_factory=list)
    idle: tuple[str, ...] = ()  # members that own nothing

    def wave(self, ahead: float = 0.0) -> float:
        return 100 + 60 * math.sin(2 * math.pi * (self.clock.wall() + ahead) / SEASON)

    def measure(self) -> GroupMeasurement:
        heavier = self.weights.byte + self.weights.record / SIZE
        load = LoadEstimate(
            dict.fromkeys(PARTITIONS, PartitionLoad(heavier * self.wave(), backlog_bytes=self.backlog)),
            dict.fromkeys(PARTITIONS, heavier * READ),
            record_weights=self.weights,
            byte_weights=dict.fromkeys(PARTITIONS, heavier),
        )
        return GroupMeasurement(load, self.describe_group(), {}, ())

    def describe_group(self) -> ObservedGroup:
        idle = (ObservedMember(f"id-{name}", name) for name in self.idle)
        return ObservedGroup(GroupState.STABLE, (ObservedMember("id", "one", frozenset(PARTITIONS)), *idle))

    def read_plan(self) -> GroupPlan | None:
        return self.plans[-1] if self.plans else None

    def publish(self, values: Iterable[GroupPlan | TopicWriteRates]) -> None:
        self.plans += (value for value in values if isinstance(value, GroupPlan))


def start(
    world: World, reports: list[IterationReport], archive: SeasonArchive | None = None, **more: Any
) -> ControlLoop:
    values: dict[str, Any] = {"bootstrap": "b:1", "group": "g", "capacity": 1e6, "target": "none"}
    values |= {"interval": INTERVAL, "window": 2 * INTERVAL, "learn-record-cost": True}
    parts = LoopCollaborators(world, world, AdvisoryTarget(), (reports.append,), season_archive=archive)
    return ControlLoop(load_settings(None, {**values, **more}), parts, world.clock)


def iterate(world: World, loop: ControlLoop, count: int) -> None:
    for _ in range(count):
        world.clock.sleep(INTERVAL)
        loop.run_iteration()


def test_the_season_is_forecast_in_the_new_weights() -> None:
    """Neither the jump of all loads nor rates in old weights count: seasons are of bytes as written."""
    world, reports = World(), list[IterationReport]()
    loop = start(world, reports, season=SEASON)
    iterate(world, loop, round(3.2 * SEASON / INTERVAL))
    before = reports[-1].forecast
    world.weights = HEAVY
    for _ in range(round(SEASON / INTERVAL)):
        iterate(world, loop, 1)
        status = reports[-1].forecast
        assert before is not None
        assert status is not None
        assert (status.by_partition, status.error_ratio) == (3, pytest.approx(before.error_ratio, abs=0.05))
        required = reports[-1].write_rates[PARTITIONS[0]].weight
        assert required == pytest.approx(3 * world.wave(ahead=status.horizon), abs=3)


def test_a_season_is_recorded_in_bytes_as_written() -> None:
    """So a sidecar that starts may restore it, though it has yet to learn what records weigh."""
    world, archive = World(weights=HEAVY), SeasonArchive("g", "bytes")
    archive.restore(())
    iterate(world, start(world, [], archive, season=SEASON), 10)
    record = archive.take_record()
    assert record is not None
    chunk = record.read_chunk()
    numbers = zip(chunk.list_numbers(), chunk.rates[:, 0], strict=True)
    written = {n: 100 + 60 * math.sin(2 * math.pi * n * chunk.bin_s / SEASON) for n in chunk.list_numbers()}
    assert dict(numbers) == pytest.approx(written, abs=1)


LEARNING = {
    "capacity": 400.0,
    "learn-capacity": True,
    "scale-up-evaluation-window": 10,
    "backlog-grace": 5,
    "cooldown": 2,
}


def learn_capacity(world: World) -> ControlLoop:
    """Return the loop of a sidecar that has learned, and published, the capacity of a consumer behind."""
    reports: list[IterationReport] = []
    loop = start(world, reports, **LEARNING)
    world.backlog = 1e6
    iterate(world, loop, 12)
    world.backlog = 0.0
    iterate(world, loop, 2)
    assert reports[-1].learned_capacities == world.plans[-1].capacities == {"one": 3 * READ}
    assert world.plans[-1].reasons == ("learned while behind: one 600 B/s",)
    return loop


def test_a_learned_capacity_is_dropped_with_its_unit() -> None:
    """The sidecar forgets it, and the plan in force, too: it is learned anew in the new weights."""
    world = World()
    loop = learn_capacity(world)
    world.weights = HEAVY
    iterate(world, loop, 2)
    assert world.plans[-1].capacities == {}
    assert world.plans[-1].reasons == ("settings changed: cost of records, so capacities are learned anew",)
    world.backlog = 1e6
    iterate(world, loop, 12)
    assert world.plans[-1].capacities == {"one": 800.0}, "twice the capacity is the most that is learned"
    unit = "(counting 0.5 B for each byte and 250 B for each record)"
    assert world.plans[-1].reasons == (f"learned while behind: one 800 B/s {unit}",)


@pytest.mark.parametrize(
    ("weights", "kept"),
    [(BYTES_ALONE, {"one": 3 * READ}), (RecordWeights(1.01, 0.0), {"one": 3 * READ}), (HEAVY, {})],
)
def test_a_restarted_sidecar_keeps_capacities_of_its_own_unit(
    weights: RecordWeights, kept: dict[str, float]
) -> None:
    """The plan tells in which weights they were learned; another sidecar learns nearly the same ones."""
    world = World()
    learn_capacity(world)
    world.weights = weights
    world.plans[:] = [GroupPlan.decode(plan.encode()) for plan in world.plans]
    iterate(world, start(world, [], **LEARNING), 3)
    assert world.plans[-1].capacities == kept


@pytest.mark.parametrize(("weights", "suspended"), [(BYTES_ALONE, True), (LIGHT, False)])
def test_a_scale_up_is_not_evaluated_across_units(weights: RecordWeights, *, suspended: bool) -> None:
    """Consumers that read as much as before read less in lighter records: that proves nothing."""
    world, reports = World(idle=("two",)), list[IterationReport]()
    loop = start(world, reports, **LEARNING)
    world.backlog = 1e6
    iterate(world, loop, 2)
    now = world.clock.wall()
    begun = ScaleUpEvaluation(now, 1, 3 * READ, joined_at=now, joined_replicas=2)
    loop._memory = replace(loop._memory, scale_up_evaluation=begun)
    world.weights = weights
    iterate(world, loop, 8)
    assert any(one.type == "ScaleUpSuspended" for one in reports[-1].conditions) is suspended


def test_fewer_replicas_may_be_tried_anew_in_another_unit() -> None:
    """The capacity at which they were tried in vain is another one then."""
    world = World()
    loop = start(world, [], **LEARNING)
    loop._memory = replace(loop._memory, vain_trial_capacity=400.0)
    iterate(world, loop, 2)
    assert loop._memory.vain_trial_capacity == 400.0
    world.weights = HEAVY
    iterate(world, loop, 1)
    assert loop._memory.vain_trial_capacity == 0.0
