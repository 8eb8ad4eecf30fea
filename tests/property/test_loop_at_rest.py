"""The whole loop on constant loads: what is done at rest is within the headroom wherever that is feasible."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pytest

from support.named_rounds import JoinedMember, assign_by_name, assignments
from support.policies import build_policy
from trimtab.assignor.heuristics.registry import get_heuristic, list_heuristics
from trimtab.assignor.model import ConsumerGroup, Load, Member, PlacementPolicy, TopicPartition
from trimtab.assignor.model.replica_racks import ReplicaRacks
from trimtab.assignor.modes.decisions import place_partitions, size_group
from trimtab.assignor.rebalance.leader import LeaderView
from trimtab.assignor.rebalance.user_data import MemberUserData
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.decision.decide import make_decision, record_execution
from trimtab.sidecar.decision.decision import ScalingAction, ScalingDecision
from trimtab.sidecar.decision.decision_memory import DecisionMemory
from trimtab.sidecar.model.autoscaling_policy import AutoscalingPolicy
from trimtab.sidecar.model.observation import (
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
REST_ITERATIONS: Final = 40  # without a decision; longer than cooldown, windows and patience
MAX_ITERATIONS: Final = 300
PACKERS: Final = tuple(n for n in list_heuristics() if get_heuristic(n).packs_by_capacity)
VARIANTS: Final = ("steady:tight", "steady:calm", "steady:rack_cost=0.5", *PACKERS)
RACKS: Final = ("a", "b", "c")


@dataclass
class Group:
    """A consumer group; both rounds of a rebalance happen at once."""

    rates: Mapping[TopicPartition, float]
    policy: AutoscalingPolicy
    now: float = 1_000.0
    started: dict[str, float] = field(default_factory=dict)
    owners: dict[TopicPartition, str] = field(default_factory=dict)
    plan: GroupPlan | None = None
    memory: DecisionMemory = DecisionMemory()  # noqa: RUF009 - frozen
    capacities: dict[str, float] = field(default_factory=dict)  # that members state themselves
    # other than all topics
    subscriptions: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    racks: dict[str, str] = field(default_factory=dict[str, str])
    replica_racks: dict[TopicPartition, tuple[str | None, ...]] = field(
        default_factory=dict[TopicPartition, tuple[str | None, ...]]
    )
    count: int = 0
    _cause: object = None
    _fingerprint: str = ""

    def start(self, count: int) -> None:
        for _ in range(count):
            self.count += 1
            self.started[f"w{self.count:02}"] = self.now

    @property
    def joined(self) -> list[str]:
        return [name for name, at in self.started.items() if at <= self.now - STARTUP_S]

    def get_topics(self, name: str) -> frozenset[str]:
        return self.subscriptions.get(name, frozenset(p.topic for p in self.rates))

    def observe(self) -> Observation:
        members = tuple(
            ObservedMember(
                name,
                name,
                frozenset(p for p, owner in self.owners.items() if owner == name),
                rack=self.racks.get(name),
                capacity=self.capacities.get(name),
                topics=self.get_topics(name),
            )
            for name in self.joined
        )
        loads = {p: PartitionLoad(rate, rate, 0.0, 0) for p, rate in self.rates.items()}
        state = GroupState.STABLE if members else GroupState.EMPTY
        replicas = tuple(
            ReplicaInstance(name, alive=True, started_at=at) for name, at in self.started.items()
        )
        group = ObservedGroup(state, members)
        return Observation(loads, group, replicas, self.plan, replica_racks=self.replica_racks)

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
        """Let the leader carry out a new plan, at once or when the consumers that start have joined."""
        plan, joined = self.plan, self.joined
        if plan is None or not joined or len(joined) < min(len(self.started), plan.replicas):
            return
        cause = (joined, plan.epoch, plan.target)
        if cause == self._cause:
            return
        self._cause = cause
        held = {name: frozenset(p for p, owner in self.owners.items() if owner == name) for name in joined}
        data = {
            name: MemberUserData(
                self.capacities.get(name),
                name,
                rack=self.racks.get(name),
                decision_fingerprint=self._fingerprint,
            )
            for name in joined
        }
        members = [JoinedMember(name, self.get_topics(name), data[name], held[name], 1) for name in joined]
        view = LeaderView(
            Load(self.rates), plan, lambda index: ReplicaRacks.from_partitions(index, self.replica_racks)
        )
        led = assign_by_name(members, tuple(self.rates), view, self.policy.placement)
        assert not led.fault
        self._fingerprint = led.decision_fingerprint
        both_rounds = assignments(led)
        self.owners = {p: n for n, share in both_rounds.items() for p in share.assigned | share.promised}

    def build_group(self) -> ConsumerGroup:
        members = tuple(
            Member(n, self.get_topics(n), self.capacities.get(n), rack=self.racks.get(n))
            for n in sorted(self.started)
        )
        return ConsumerGroup(members, tuple(self.rates), self.owners, self.replica_racks)

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
        """Return whether a placement within the headroom is found on these consumers, by any heuristic."""
        policy = self.policy.placement
        group, load = self.build_group(), Load(self.rates)
        if not (self.capacities or self.subscriptions) and size_group(group, load, policy).consumers <= len(
            self.started
        ):
            return True
        return place_partitions(group, load, policy).fill <= HEADROOM * (1 + 1e-6)

    def assert_on_plan(self) -> None:
        """Fail if the plan in force names another live consumer for a partition than its owner."""
        assert self.plan is not None
        target = self.plan.target
        assert target is not None
        joiners = self.started.keys() - set(target.consumers)
        if not joiners.isdisjoint({*self.capacities, *self.subscriptions}):
            return  # the leader repairs what such a joiner cannot take of its place
        named = dict(enumerate(target.consumers, start=1))
        for (topic, number), owner in self.owners.items():
            planned = named.get(target.partitions[topic][number])
            assert planned in (owner, None) or planned not in self.started, (topic, number, planned, owner)

    def assert_within_headroom(self) -> None:
        fills = self.compute_fills()
        assert max(fills.values()) <= HEADROOM * (1 + 1e-6) or not self.is_feasible(), fills
        assert max(fills.values()) <= 1 + 1e-6, fills  # within the tolerance


def build_group(heuristic: str, rates: Mapping[TopicPartition, float], **changes: Any) -> Group:
    placement = PlacementPolicy(heuristic, CAPACITY, HEADROOM, consolidate=True)
    return Group(rates, build_policy(placement=placement, max_replicas=200, **changes))


def draw_rates(partitions: int, seed: int) -> dict[TopicPartition, float]:
    """Return constant loads of at most half a consumer, some of them large."""
    rates = np.random.default_rng(seed).gamma(1.2, 15.0, partitions).clip(0.1, 50.0)
    return {TopicPartition("t", n): float(rate) for n, rate in enumerate(rates)}


def change_rates(group: Group, seed: int) -> None:
    drift = np.random.default_rng(seed + 100).uniform(0.7, 1.4, len(group.rates))
    group.rates = {p: rate * by for (p, rate), by in zip(group.rates.items(), drift.tolist(), strict=True)}


def check_rest(group: Group, seed: int) -> None:
    """Let a group come to rest, change its loads, and let it come to rest again."""
    group.run_until_rest()
    group.assert_within_headroom()
    change_rates(group, seed)
    group.run_until_rest()
    group.assert_within_headroom()
    group.assert_on_plan()


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("heuristic", "partitions"), [("steady", 40), ("steady", 12), ("mwf", 40)])
def test_nobody_is_above_the_headroom_at_rest(heuristic: str, partitions: int, seed: int) -> None:
    """From an empty group, and after the loads changed, with windows, tolerance and cooldown."""
    group = build_group(heuristic, draw_rates(partitions, seed))
    group.start(1)
    check_rest(group, seed)


def build_mixed_group(heuristic: str, partitions: int, seed: int) -> Group:
    """Return a group of two topics in three racks: small consumers, and some that read one topic only."""
    rates = draw_rates(partitions, seed)
    topics = {TopicPartition("tu"[n % 2], n // 2): rate for n, rate in enumerate(rates.values())}
    group = build_group(heuristic, topics)
    names = [f"w{number:02}" for number in range(1, 100)]
    group.capacities = dict.fromkeys(names[1::3], CAPACITY / 2)
    group.subscriptions = dict.fromkeys(names[2::4], frozenset({"t"}))
    group.racks = {name: RACKS[n % len(RACKS)] for n, name in enumerate(names)}
    group.replica_racks = {p: (RACKS[n % len(RACKS)],) for n, p in enumerate(topics)}
    group.start(2)
    return group


@pytest.mark.parametrize("heuristic", VARIANTS)
def test_every_heuristic_rests_within_the_headroom(heuristic: str) -> None:
    """Few partitions, on equal consumers and on those of other capacity, subscription and rack."""
    group = build_group(heuristic, draw_rates(12, 1))
    group.start(1)
    check_rest(group, 1)
    check_rest(build_mixed_group(heuristic, 12, 1), 1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("heuristic", VARIANTS)
def test_every_heuristic_rests_within_the_headroom_on_40_partitions(heuristic: str, seed: int) -> None:
    """The long form."""
    group = build_group(heuristic, draw_rates(40, seed))
    group.start(1)
    check_rest(group, seed)
    check_rest(build_mixed_group(heuristic, 40, seed), seed)


@pytest.mark.parametrize("seed", range(4))
def test_nobody_is_above_the_headroom_at_rest_beside_small_consumers(seed: int) -> None:
    """Every third consumer takes a fifth of the others' load."""
    group = build_group("steady", draw_rates(20, seed))
    group.capacities = {f"w{number:02}": CAPACITY / 5 for number in range(2, 99, 3)}
    group.start(2)
    group.run_until_rest()
    group.assert_within_headroom()
