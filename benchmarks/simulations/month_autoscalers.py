"""The autoscalers of a simulated month: Trimtab's sidecar and a lag-threshold autoscaler.

`TrimtabAutoscaler` runs the sidecar's control loop and load estimator on the simulated offsets, and
the leader's functions. `KedaAutoscaler` is KEDA's Kafka scaler with the HPA
(`analysis.simulation.lag_autoscaler`) and a sticky assignor. It reproduces KEDA 2's behavior under
faults: no metric while a partition has no leader, so that the HPA keeps the replica count; the log's
end as the lag of a partition without a commit (`offsetResetPolicy: earliest`). `patient` is
`excludePersistentLag`: a partition without a commit since the last poll counts as lag 0.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from benchmarks.simulations.month_world import LEAST, MOST, RECORD, World
from support.in_memory_target import InMemoryTarget
from trimtab.assignor.analysis.simulation.lag_autoscaler import LagAutoscaler
from trimtab.assignor.model import UNASSIGNED, BoolArray, FloatArray, Load, PlacementPolicy, TopicPartition
from trimtab.assignor.model.partition_index import PartitionIndex
from trimtab.assignor.modes.decisions import place_partitions
from trimtab.assignor.rebalance.leader import LeaderView, assign_round
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import TopicWriteRates
from trimtab.sidecar.loop.control_loop import ControlLoop, LoopCollaborators
from trimtab.sidecar.measurement.load_estimator import LoadEstimator
from trimtab.sidecar.measurement.record_sizes import SampledBatch
from trimtab.sidecar.measurement.write_rate import OffsetReadings
from trimtab.sidecar.model.observation import GroupState, ObservedGroup, ObservedMember
from trimtab.sidecar.readings.group_monitor import GroupMeasurement
from trimtab.sidecar.records.iteration_report import IterationReport
from trimtab.sidecar.settings.settings import SidecarSettings, load_settings
from trimtab.sidecar.simulation.live_group import build_snapshot

EPOCH = 1.8e9  # seconds, of the month's beginning


@dataclass
class AutoscalerResults:
    """Results of an autoscaler besides the world's figures."""

    scalings: int = 0
    reasons: dict[int, tuple[str, ...]] = field(default_factory=dict[int, tuple[str, ...]])


class TrimtabAutoscaler:
    """Trimtab: the monitor, control topic store and clock of the sidecar's loop."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._settings = _create_settings(world)
        self._estimator = LoadEstimator(self._settings)
        self._target = InMemoryTarget(self.wall)
        self._plan: GroupPlan | None = None
        self._load = Load()
        self._fingerprint = ""  # of the leader's decision in force
        self._moving = False
        self._group: tuple[int, ObservedGroup] = (-1, ObservedGroup())
        self.results = AutoscalerResults()
        parts = LoopCollaborators(self, self, self._target, (self._record_reasons,))
        self._loop = ControlLoop(self._settings, parts, self)
        size = dict.fromkeys(world.month.stream.partitions, (SampledBatch(1, RECORD, 1, RECORD),))
        self._estimator.learn_record_sizes(size)

    def turn(self) -> None:
        """Run an iteration of the sidecar and a tick of the group."""
        before = self._names()
        self._loop.run_iteration()
        running = self._names()
        plan = self._plan
        assert plan is not None, "the first turn announces a plan"
        epoch, owners = plan.epoch, self._world.owners
        joined = running & before
        self._world.step(joined, len(running), epoch, lambda: self._placed(plan))
        self._moving = self._world.owners != owners

    def _names(self) -> set[str]:
        return {i.name for i in self._target.list_replicas() if i.alive}

    def _placed(self, plan: GroupPlan) -> dict[str, tuple[TopicPartition, ...]]:
        """Return the placement of the group's leader."""
        group = self._world.group()
        names = [member.id for member in group.members]
        index = PartitionIndex.from_partitions(group.partitions)
        partitions = index.list_partitions()
        number = {name: n for n, name in enumerate(names)}
        owner = [number.get(group.owners.get(p, ""), UNASSIGNED) for p in partitions]
        snapshot = build_snapshot(names, index, np.array(owner, dtype=np.int32), self._fingerprint)
        policy = PlacementPolicy(plan.heuristic, plan.capacity, plan.headroom)
        done = assign_round(snapshot, LeaderView(self._load, plan), policy)
        self._fingerprint = done.decision_fingerprint
        target = done.target.tolist()
        return {
            name: tuple(p for p, t in zip(partitions, target, strict=True) if t == n)
            for name, n in number.items()
        }

    def _record_reasons(self, report: IterationReport) -> None:
        told = (*report.decision.reasons, *(one.message for one in report.conditions))
        self.results.reasons[self._world.tick] = told

    # interface of a clock

    def monotonic(self) -> float:
        return self._world.now

    def wall(self) -> float:
        return EPOCH + self._world.now

    def sleep(self, seconds: float) -> None:
        """The loop never sleeps here."""

    # interface of a monitor

    def measure(self) -> GroupMeasurement:
        world, there = self._world, self._world.existing_partitions()
        group = self.describe_group()
        names = world.month.stream.partitions
        ends = _list_offsets(world.written(), names, ~world.leaderless())
        commits = _list_offsets(world.committed(), names, ~world.uncommitted())
        readings = OffsetReadings(
            partitions=there,
            end_offsets=ends,
            beginning_offsets=dict.fromkeys(ends, 0),
            committed_offsets=commits if world.coordinated() else None,
        )
        estimate = self._estimator.estimate_load(world.now, readings, group)
        errors = () if world.coordinated() else ("group: the coordinator is away",)
        return GroupMeasurement(estimate, group, {}, errors)

    def describe_group(self) -> ObservedGroup:
        if not self._world.coordinated():
            return ObservedGroup()
        held: dict[str, set[TopicPartition]] = {name: set() for name in self._world.members}
        for partition, name in self._world.owners.items():
            held[name].add(partition)
        readers = tuple(ObservedMember(n, n, frozenset(items)) for n, items in held.items())
        if not readers:
            return ObservedGroup(GroupState.EMPTY)
        return ObservedGroup(GroupState.REBALANCING if self._moving else GroupState.STABLE, readers)

    # interface of a control topic store

    def read_plan(self) -> GroupPlan | None:
        return self._plan

    def publish(self, values: Iterable[GroupPlan | TopicWriteRates]) -> None:
        write_rates: dict[TopicPartition, float | None] = {}
        deviations: dict[TopicPartition, float | None] = {}
        for value in values:
            if isinstance(value, GroupPlan):
                if self._plan is not None:
                    self.results.scalings += self._plan.replicas != value.replicas
                self._plan = value
                continue
            for number, rate in value.partitions.items():
                write_rates[TopicPartition(value.topic, number)] = rate.weight
                deviations[TopicPartition(value.topic, number)] = rate.stddev_bytes_per_s
        if write_rates:
            self._load = Load(write_rates, deviations=deviations)


def _create_settings(world: World) -> SidecarSettings:
    """Return the sidecar's default settings for the world, with one iteration per tick."""
    return load_settings(
        None,
        {
            "bootstrap": "simulated:9092",
            "group": "month",
            "capacity": world.setup.capacity,
            "headroom": world.setup.headroom,
            "target": "process",
            "worker_command": ["worker", "{instance}"],
            "state-dir": "unused",
            "interval": world.setup.tick,
            "window": 2 * world.setup.tick,
            "min": LEAST,
            "max": MOST,
            "offset_reset": "earliest",
        },
    )


def _list_offsets(
    written: FloatArray, names: tuple[TopicPartition, ...], known: BoolArray
) -> dict[TopicPartition, int]:
    values = (written / RECORD).astype(np.int64).tolist()
    return {p: v for p, v, k in zip(names, values, known.tolist(), strict=True) if k}


class KedaAutoscaler:
    """The lag-threshold autoscaler; `threshold` is in seconds of a consumer's capacity."""

    def __init__(self, world: World, threshold: float, *, patient: bool = False) -> None:
        self._world = world
        self._patient = patient
        first = float(world.month.need[0])
        lag = threshold * world.setup.capacity
        self._scaler = LagAutoscaler(lag, max(LEAST, round(first)), MOST)
        self._load = Load(dict.fromkeys(world.month.stream.partitions, 1.0))
        self._started: tuple[str, ...] = ()
        self._before: FloatArray | None = None
        self.results = AutoscalerResults()

    def turn(self) -> None:
        """Run a sync of the HPA and a tick of the group."""
        before, lag = self._scaler.replicas, self._lag()
        if lag is not None:
            self._scaler.decide_replicas(self._world.now, lag)
        count = self._scaler.replicas
        self.results.scalings += count != before
        names = tuple(f"pod-{n:02}" for n in range(count))
        joined = set(names) & set(self._started or names)
        self._started = names
        self._world.step(joined, count, None, self._placed)

    def _placed(self) -> dict[str, tuple[TopicPartition, ...]]:
        return dict(
            place_partitions(self._world.group(), self._load, PlacementPolicy("sticky", 1e9)).assignment
        )

    def _lag(self) -> float | None:
        """Return the lag that KEDA reports, in bytes; None if it reports an error."""
        world = self._world
        if world.leaderless().any() or not world.coordinated():
            return None
        there = ~np.isnan(world.month.stream.rates[world.tick])
        committed = np.where(world.uncommitted(), 0.0, world.committed())
        lag = world.written() - committed
        if self._patient and self._before is not None:
            lag = np.where((committed == self._before) & ~world.uncommitted(), 0.0, lag)
        self._before = committed
        return float(lag[there].sum())
