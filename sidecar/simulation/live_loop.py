"""The closed loop as it runs: each tick the sidecar decides, and the group carries it out.

1. The sidecar sees the tick's write rates and the backlog at its end, and decides by `make_decision`:
   with tolerance, windows, policies, cooldown and one drain at a time. With a season it requires what
   is forecast for when consumers that start now have joined.
2. Its plan is carried out by the leader's functions, when the leader's plan follower asks for it: at once,
   or when missing consumers join, `startup` seconds after their start, or are overdue.
3. Replicas stop at once, consumers never die, a rebalance takes no time but the pause of what moves.
4. The first plan is in force, and carried out, from the beginning: its consumers are those that the
   first write rates need.

Under a lag-threshold autoscaler (`keda`) its own model decides; its consumers start as slowly.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from trimtab.assignor.analysis.simulation import Contender, SimulationRun, SimulationSetup, run_simulation
from trimtab.assignor.analysis.simulation.contenders import (
    BacklogReader,
    OwnerChange,
    SimulatedDecision,
    is_feasible,
    iter_autoscaled_decisions,
)
from trimtab.assignor.analysis.streams.stream import WriteRateStream
from trimtab.assignor.model import (
    UNASSIGNED,
    BoolArray,
    ConsumerGroup,
    FloatArray,
    IntArray,
    Load,
    TopicPartition,
)
from trimtab.assignor.model.packing import sum_loads
from trimtab.assignor.modes.decisions import size_group
from trimtab.assignor.rebalance.leader import LeaderView
from trimtab.assignor.rebalance.plan_follower import MEMBER_WAIT_TIMEOUT_S, PlanFollower
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.decision.decide import make_decision, record_execution
from trimtab.sidecar.decision.decision import ScalingDecision
from trimtab.sidecar.decision.decision_memory import DecisionMemory
from trimtab.sidecar.model.autoscaling_policy import AutoscalingPolicy
from trimtab.sidecar.model.observation import Observation
from trimtab.sidecar.simulation.live_group import LiveGroup, format_name
from trimtab.sidecar.simulation.live_measurement import LiveMeasurement
from trimtab.sidecar.simulation.live_settings import SIMULATED_GROUP, LiveSettings

EPOCH_S: Final = 1.8e9  # wall clock at second 0


def run_live(
    contender: Contender, stream: WriteRateStream, setup: SimulationSetup, live: LiveSettings
) -> SimulationRun:
    """Simulate a contender's closed loop on a stream. Raises SettingError, BrokenHeuristicError."""

    def iter_decisions(
        stream: WriteRateStream, setup: SimulationSetup, lags: BacklogReader
    ) -> Iterator[SimulatedDecision]:
        if contender.autoscaled:
            return iter_autoscaled_decisions(contender.heuristic, stream, setup, lags, live.startup)
        policy = live.build_policy(contender.name, setup, len(stream.partitions))
        return iter_sidecar_decisions(policy, stream, setup, lags, live)

    return run_simulation(contender, stream, setup, iter_decisions)


def iter_sidecar_decisions(
    policy: AutoscalingPolicy,
    stream: WriteRateStream,
    setup: SimulationSetup,
    lags: BacklogReader,
    live: LiveSettings,
    *,
    begin: float = EPOCH_S,
) -> Iterator[SimulatedDecision]:
    """Yield what a sidecar with this policy does at every tick; `begin` is the wall clock at the first."""
    loop = _LiveLoop(policy, stream, setup, live, begin)
    for tick in range(len(stream.rates)):
        yield loop.run_tick(tick, lags())


class _LiveLoop:
    """The sidecar's memory and plan, and its group."""

    def __init__(
        self,
        policy: AutoscalingPolicy,
        stream: WriteRateStream,
        setup: SimulationSetup,
        live: LiveSettings,
        begin: float,
    ) -> None:
        self._policy = policy
        self._begin = begin
        self._stream = stream
        self._tick = setup.tick
        self._measurement = LiveMeasurement(
            stream, setup.tick, policy, live.build_forecaster(setup.tick, policy), live.startup
        )
        self._memory = DecisionMemory()
        owner = _place_first(stream, policy)
        self._group = LiveGroup(stream.partitions, owner, live.startup)
        self._plan = _announce_plan(policy, len(self._group.members), begin)
        self._follower = PlanFollower()
        self._follower.record_rebalance(self._plan, len(self._group.members))

    def run_tick(self, tick: int, backlog: FloatArray) -> SimulatedDecision:
        """Decide on the write rates of a tick, and carry it out until the next one."""
        now = tick * self._tick
        there: BoolArray = ~np.isnan(self._stream.rates[tick])
        loads = self._measurement.measure(tick, backlog)
        observation = self._observe(loads)
        decision, self._memory = make_decision(observation, self._policy, self._memory, self._begin + now)
        self._memory = record_execution(decision, observation, self._memory, self._begin + now)
        self._start_and_stop(decision, now)
        load = _build_load(loads)
        changes, placed = self._carry_out(now, load, there, left=bool(decision.replicas_to_stop))
        done = placed and decision.plan is not None and not self._group.is_starting
        return SimulatedDecision(changes, self._group.members, done, self._is_feasible(loads))

    def _observe(self, loads: Mapping[TopicPartition, PartitionLoad]) -> Observation:
        return Observation(
            write_rates=loads,
            group=self._group.describe(),
            replicas=self._group.list_replicas(self._begin),
            plan=self._plan,
            consumption_rates=self._measurement.measure_consumption(),
            forecast_rise=self._measurement.forecast_rise,
        )

    def _start_and_stop(self, decision: ScalingDecision, now: float) -> None:
        self._plan = decision.plan or self._plan
        self._group.stop(decision.replicas_to_stop)
        self._group.start(decision.replicas_to_start, now)

    def _carry_out(
        self, now: float, load: Load, there: BoolArray, *, left: bool
    ) -> tuple[tuple[OwnerChange, ...], bool]:
        """Rebalance as consumers leave, join and see the plan; return the owners, and whether one decided."""
        group = self._group
        due = group.forget_absent(there) or left
        decided = False
        changes: list[OwnerChange] = []
        for at in self._list_events(now):
            due |= group.join(at)
            due |= self._follower.follow_if_due(self._plan, at)
            if due:
                overdue = self._follower.is_overdue(self._plan)
                view = LeaderView(load, self._plan, members_overdue=overdue)
                decided |= group.rebalance(view, there, self._policy.placement)
                self._follower.record_rebalance(self._plan, len(group.members))
            changes.append(OwnerChange(at - now, group.owner))
            due = False
        return tuple(changes), decided

    def _list_events(self, now: float) -> list[float]:
        """Return when the group may rebalance in a tick: now, at joins, and when missing ones are overdue."""
        waits = (now, self._follower.awaited_since)
        times = {self._group.next_join() or now, *(since + MEMBER_WAIT_TIMEOUT_S for since in waits)}
        return [now, *sorted(at for at in times if now < at < now + self._tick)]

    def _is_feasible(self, loads: Mapping[TopicPartition, PartitionLoad]) -> bool:
        """Return whether a placement of these loads within the headroom is found on the active consumers."""
        active = [n for n in self._group.members.tolist() if format_name(n) not in self._plan.draining]
        weight = np.array([load.weight for load in loads.values()], dtype=np.float64)
        usable = np.full(len(active), self._policy.usable_capacity)
        owner = self._group.owner[self._group.owner != UNASSIGNED]
        if len(owner) == len(weight):  # mostly what is done is such a placement: no search
            load = sum_loads(owner, weight, int(owner.max(initial=UNASSIGNED)) + 1)
            if np.isin(owner, active).all() and (load <= usable[:1]).all():
                return True
        return is_feasible(weight, usable)


def _place_first(stream: WriteRateStream, policy: AutoscalingPolicy) -> IntArray:
    """Return the owners (P,) of a group that is sized for the first write rates."""
    rates = dict(zip(stream.partitions, stream.rates[0].tolist(), strict=True))
    known = {p: rate for p, rate in rates.items() if not math.isnan(rate)}
    sized = size_group(ConsumerGroup((), tuple(known)), Load(known), policy.placement)
    number = {name: n for n, name in enumerate(sorted(sized.assignment, key=int))}  # "+1", "+2" and so on
    owner = {p: number[name] for name, held in sized.assignment.items() for p in held}
    return np.array([owner.get(p, UNASSIGNED) for p in stream.partitions], dtype=np.int32)


def _announce_plan(policy: AutoscalingPolicy, replicas: int, begin: float) -> GroupPlan:
    placement = policy.placement
    return GroupPlan(
        SIMULATED_GROUP,
        1,
        begin,
        replicas,
        placement.heuristic,
        placement.capacity,
        placement.headroom,
        co_partitioned=placement.co_partitioned,
    )


def _build_load(loads: Mapping[TopicPartition, PartitionLoad]) -> Load:
    """Return the load as the group's leader reads it."""
    return Load(
        {p: s.weight for p, s in loads.items()},
        {p: s.backlog_records for p, s in loads.items()},
        {p: s.stddev_bytes_per_s for p, s in loads.items()},
    )
