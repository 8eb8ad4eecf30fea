"""The control loop when `learn-record-cost` changes what records weigh: nothing is kept in an old unit."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from ticking import Ticking

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad, TopicWriteRates
from trimtab.sidecar.control_loop import ControlLoop, LoopCollaborators
from trimtab.sidecar.measurement.group_monitor import GroupMeasurement
from trimtab.sidecar.measurement.observation import GroupState, ObservedGroup, ObservedMember
from trimtab.sidecar.measurement.write_rate import BYTES_ALONE, RecordWeights
from trimtab.sidecar.reporting.iteration_report import IterationReport
from trimtab.sidecar.reporting.season_record import SeasonArchive
from trimtab.sidecar.settings.settings import load_settings
from trimtab.sidecar.targets.advisory import AdvisoryTarget

INTERVAL = 2.0
SEASON = 60.0
SIZE = 100.0  # bytes of a record
PARTITIONS = tuple(TopicPartition("t", n) for n in range(3))
HEAVY = RecordWeights(0.5, 250.0)  # a byte of these records weighs three


@dataclass
class World:
    """A group of one consumer, its load in bytes as written, and its plans."""

    clock: Ticking = field(default_factory=Ticking)
    weights: RecordWeights = BYTES_ALONE
    plans: list[GroupPlan] = field(default_factory=list)

    def wave(self, ahead: float = 0.0) -> float:
        return 100 + 60 * math.sin(2 * math.pi * (self.clock.wall() + ahead) / SEASON)

    def measure(self) -> GroupMeasurement:
        heavier = self.weights.byte + self.weights.record / SIZE
        return GroupMeasurement(
            dict.fromkeys(PARTITIONS, PartitionLoad(heavier * self.wave(), backlog_bytes=0.0)),
            self.describe_group(),
            {},
            (),
            record_weights=self.weights,
            byte_weights=dict.fromkeys(PARTITIONS, heavier),
        )

    def describe_group(self) -> ObservedGroup:
        return ObservedGroup(GroupState.STABLE, (ObservedMember("id", "one", frozenset(PARTITIONS)),))

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
