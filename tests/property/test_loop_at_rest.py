"""The whole loop on constant loads: what is done at rest is within the headroom wherever that is feasible."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pytest
from policies import build_policy

from trimtab.assignor.decisions import place_partitions, size_group
from trimtab.assignor.model import ConsumerGroup, Load, Member, PlacementPolicy, TopicPartition
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.decision.autoscaling_policy import AutoscalingPolicy, DecisionMemory
from trimtab.sidecar.decision.decide import make_decision, record_execution
from trimtab.sidecar.decision.decision import ScalingAction, ScalingDecision
from trimtab.sidecar.measurement.observation import (
    GroupState,
    Observation,
    ObservedGroup,
    ObservedMember,
    ReplicaInstance,
)

CAPACITY: Final = 100.0
HEADROOM: Final = 0.9
INTERVAL_S: Final = 10.0
STARTUP_S: Final = 20.0
REST_ITERATIONS: Final = 15  # without a decision; longer than cooldown and stabilization windows
MAX_ITERATIONS: Final = 300


@dataclass
class Group:
    """A consumer group that does at once what its plan says."""

    rates: Mapping[TopicPartition, float]
    policy: AutoscalingPolicy
    now: float = 1_000.0
    started: dict[str, float] = field(default_factory=dict)
    owners: dict[TopicPartition, str] = field(default_factory=dict)
    plan: GroupPlan | None = None
    memory: DecisionMemory = DecisionMemory()  # noqa: RUF009 - frozen
    capacities: dict[str, float] = field(default_factory=dict)  # that members state themselves
    count: int = 0
    _cause: object = None

    def start(self, count: int) -> None:
        for _ in range(count):
            self.count += 1
            self.started[f"w{self.count:02}"] = self.now

    @property
    def joined(self) -> list[str]:
        return [name for name, at in self.started.items() if at <= self.now - STARTUP_S]

    def observe(self) -> Observation:
        members = tuple(
            ObservedMember(
                name,
                name,
                frozenset(p for p, owner in self.owners.items() if owner == name),
                capacity=self.capacities.get(name),
            )
            for name in self.joined
        )
        loads = {p: PartitionLoad(rate, rate, 0.0, 0) for p, rate in self.rates.items()}
        state = GroupState.STABLE if members else GroupState.EMPTY
        replicas = tuple(
            ReplicaInstance(name, alive=True, started_at=at) for name, at in self.started.items()
        )
        return Observation(loads, ObservedGroup(state, members), replicas, self.plan)

    def iterate(self) -> ScalingDecision:
        """Decide, carry the decision out, and let an interval pass."""
        seen = self.observe()
        decision, memory = make_decision(seen, self.policy, self.memory, self.now, "g")
        self.memory = record_execution(decision, seen, memory, self.now)
        self.plan = decision.plan or self.plan
        for name in decision.replicas_to_stop:
            del self.started[name]
        self.start(decision.replicas_to_start)
        self.now += INTERVAL_S
        self.rebalance()
        return decision

    def rebalance(self) -> None:
        plan, joined = self.plan, self.joined
        if plan is None or not joined:
            return
        cause = (joined, plan.epoch, plan.target)
        if cause != self._cause:
            self._cause = cause
            self.owners = self.carry_out(plan, joined)

    def carry_out(self, plan: GroupPlan, joined: list[str]) -> dict[TopicPartition, str]:
        if plan.target is None:
            group = self.build_group(joined, plan.draining)
            policy = PlacementPolicy(plan.heuristic, plan.capacity, plan.headroom, consolidate=True)
            placed = place_partitions(group, Load(self.rates), policy)
            return {p: name for name, owned in placed.assignment.items() for p in owned}
        places = iter(n for n in joined if n not in plan.target.consumers and n not in plan.draining)
        names = [n if n in joined else None for n in plan.target.consumers]
        names += [next(places, None) for _ in range(plan.target.places)]
        planned = {p: names[plan.target.partitions[p.topic][p.partition] - 1] for p in self.rates}
        return {p: name or self.owners.get(p, joined[0]) for p, name in planned.items()}

    def build_group(self, names: list[str], draining: tuple[str, ...] = ()) -> ConsumerGroup:
        topics = frozenset(p.topic for p in self.rates)
        members = tuple(
            Member(n, topics, self.capacities.get(n), n, draining=n in draining) for n in sorted(names)
        )
        return ConsumerGroup(members, tuple(self.rates), self.owners)

    def run_until_rest(self) -> None:
        quiet = 0
        for _ in range(MAX_ITERATIONS):
            quiet = quiet + 1 if self.iterate().action is ScalingAction.HOLD else 0
            if quiet == REST_ITERATIONS:
                return
        raise AssertionError(f"no rest within {MAX_ITERATIONS} iterations")

    def compute_fills(self) -> dict[str, float]:
        loads = dict.fromkeys(self.started, 0.0)
        for partition, owner in self.owners.items():
            loads[owner] += self.rates[partition]
        return {name: load / self.capacities.get(name, CAPACITY) for name, load in loads.items()}

    def is_feasible(self) -> bool:
        """Return whether sizing or placing found a placement within the headroom on these consumers."""
        group, policy = self.build_group(list(self.started)), self.policy.placement
        if size_group(group, Load(self.rates), policy).consumers <= len(self.started):
            return True
        return place_partitions(group, Load(self.rates), policy).fill <= HEADROOM * (1 + 1e-6)


def build_group(heuristic: str, rates: Mapping[TopicPartition, float], **changes: Any) -> Group:
    placement = PlacementPolicy(heuristic, CAPACITY, HEADROOM, consolidate=True)
    return Group(rates, build_policy(placement=placement, max_replicas=200, **changes))


def draw_rates(partitions: int, seed: int) -> dict[TopicPartition, float]:
    """Return constant loads of at most half a consumer, some of them large."""
    rates = np.random.default_rng(seed).gamma(1.2, 15.0, partitions).clip(0.1, 50.0)
    return {TopicPartition("t", n): float(rate) for n, rate in enumerate(rates)}


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("partitions", [12, 40])
@pytest.mark.parametrize("heuristic", ["steady", "mwf"])
def test_nobody_is_above_the_headroom_at_rest(heuristic: str, partitions: int, seed: int) -> None:
    """From an empty group, and after the loads changed, with windows, tolerance and cooldown."""
    group = build_group(heuristic, draw_rates(partitions, seed))
    group.start(1)
    group.run_until_rest()
    fills = group.compute_fills()
    assert max(fills.values()) <= HEADROOM * (1 + 1e-6) or not group.is_feasible(), fills
    drift = np.random.default_rng(seed + 100).uniform(0.7, 1.4, partitions)
    group.rates = {p: rate * by for (p, rate), by in zip(group.rates.items(), drift.tolist(), strict=True)}
    group.run_until_rest()
    fills = group.compute_fills()
    assert max(fills.values()) <= HEADROOM * (1 + 1e-6) or not group.is_feasible(), fills
