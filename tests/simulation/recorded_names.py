"""All names of the project that `test_recorded_decisions` uses, behind words of its own.

A rename touches this file only, from "The project's names" on. Its inputs and the plain lists that
it returns must not change: the recorded digests are made of them.
"""

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final, TypeAlias

import numpy as np

from trimtab.assignor.analysis.streams.replay import replay_stream
from trimtab.assignor.analysis.streams.stream import WriteRateStream
from trimtab.assignor.clients.leader_plugin import decode_subscriptions, lead_group
from trimtab.assignor.heuristics.registry import get_heuristic, list_heuristics
from trimtab.assignor.model import ConsumerGroup, Load, Member, Move, PlacementPolicy, TopicPartition
from trimtab.assignor.model.replica_racks import ReplicaRacks
from trimtab.assignor.modes.decisions import place_partitions, size_group
from trimtab.assignor.rebalance.consumer_protocol import decode_assignment
from trimtab.assignor.rebalance.leader import LeaderView
from trimtab.assignor.rebalance.user_data import MemberUserData
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad, TopicWriteRates
from trimtab.common.settings.shared_defaults import QueueKind
from trimtab.sidecar.decision.decide import make_decision, record_execution
from trimtab.sidecar.decision.decision import ScalingAction, ScalingDecision
from trimtab.sidecar.decision.decision_memory import DecisionMemory
from trimtab.sidecar.model.autoscaling_policy import AutoscalingPolicy, CapacityBounds, FallbackPolicy
from trimtab.sidecar.model.catch_up_policy import CatchUpPolicy, add_required_rates
from trimtab.sidecar.model.hpa_behavior import (
    Direction,
    FallbackBehavior,
    ScalingPolicy,
    ScalingRules,
    SelectPolicy,
)
from trimtab.sidecar.model.observation import (
    GroupState,
    Observation,
    ObservedGroup,
    ObservedMember,
    ReplicaInstance,
    RequestedReplicas,
    TargetStatus,
)
from trimtab.sidecar.model.queue_backlog import QueueBacklog
from trimtab.sidecar.model.schedule import CronPeriod

Name: TypeAlias = tuple[str, int]
"""A partition: topic and number."""

RACKS: Final = ("east", "north", "west")


class Chance:
    """Choices by `Random.random` alone."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed).random  # noqa: S311 - repeatable

    def hit(self, share: float) -> bool:
        return self._random() < share

    def below(self, count: int) -> int:
        return int(self._random() * count)

    def pick(self, items: Iterable[Any]) -> Any:
        found = list(items)
        return found[self.below(len(found))]

    def between(self, low: float, high: float) -> float:
        return round(low + self._random() * (high - low), 3)

    def skewed(self, mean: float) -> float:
        """Return a rate; a few are many times as fast as most."""
        return round(mean * 0.4 / (0.05 + self._random()) ** 0.8, 3)


def copies(chance: Chance, what: Iterable[Name]) -> dict[Name, tuple[str | None, ...]]:
    """Return the racks of two replicas each; some brokers have none."""
    found: dict[Name, tuple[str | None, ...]] = {}
    for name in what:
        first = chance.below(3)
        second = None if chance.hit(0.1) else RACKS[(first + 1 + chance.below(2)) % 3]
        found[name] = (RACKS[first], second)
    return found


# Inputs of decisions, in words of this file.


@dataclass(frozen=True)
class SimulatedMember:
    """A member: id, topics, own capacity, instance, draining, rack."""

    id: str
    topics: tuple[str, ...]
    takes: float | None = None
    lasting: str = ""
    leaves: bool = False
    where: str | None = None


@dataclass(frozen=True)
class Case:
    """Input of one placement."""

    members: tuple[SimulatedMember, ...]
    what: tuple[Name, ...]
    held: Mapping[Name, str]
    rates: Mapping[Name, float | None]
    waits: Mapping[Name, float]
    deviations: Mapping[Name, float]
    copies: Mapping[Name, tuple[str | None, ...]]
    filled: float = 1.0


@dataclass(frozen=True)
class LeaderInputs:
    """The leader's knowledge besides the members' bytes."""

    heuristic: str
    topics: Mapping[str, int]
    rates: Mapping[Name, float | None]
    copies: Mapping[Name, tuple[str | None, ...]]
    plan: tuple[int, tuple[str, ...], Mapping[str, float]] | None = None


@dataclass(frozen=True)
class Settings:
    """An operator's settings; paces are (value, period, percent)."""

    heuristic: str = "mbf"
    takes: float = 100.0
    filled: float = 1.0
    low: int = 1
    high: int = 6
    out: tuple[tuple[int, float, bool], ...] = ((3, 0.0, False),)
    out_rest: tuple[str, float, float] = ("max", 0.0, 0.1)
    back: tuple[tuple[int, float, bool], ...] = ((1, 0.0, False),)
    back_rest: tuple[str, float, float] = ("max", 60.0, 0.1)
    cool: float = 30.0
    still: tuple[str, ...] = ()
    periods: tuple[tuple[str, str, str, int | None, int | None, tuple[str, ...]], ...] = ()
    dark: tuple[str, int, int] = ("current", 0, 3)
    goal: float | None = None
    effect: tuple[float, float] = (60.0, 600.0)
    learns: tuple[float, float] | None = None
    grace: float = 120.0
    advice: bool = False


@dataclass
class Seen:
    """Input of the sidecar in one iteration; a rate is (rate, backlog), each None if unknown."""

    rates: dict[Name, tuple[float | None, float | None]]
    state: str
    readers: list[tuple[str, tuple[Name, ...], str | None]]
    pods: list[tuple[str, bool, float, int]] | None
    consumed: dict[Name, float]
    stuck: tuple[Name, ...] = ()
    copies: Mapping[Name, tuple[str | None, ...]] = field(default_factory=dict[Name, Any])
    known: bool = True
    restart: tuple[str, ...] = ()
    requested: tuple[int, float, bool, bool] | None = None
    pause: str = ""
    shared: bool = False
    queue: tuple[str, int, int, int] | None = None


@dataclass(frozen=True)
class Turned:
    """What a turn of the sidecar gave: `all` of it, and what the world of the story needs."""

    action: str
    all: list[Any]
    count: int
    epoch: int
    leaving: tuple[str, ...]
    add: int
    stop: tuple[str, ...]
    moves: list[list[Any]]


# The project's names: used from here to the end of `Steered` only.


def registered() -> tuple[str, ...]:
    return list_heuristics()


def by_name(figures: Mapping[Name, Any]) -> dict[TopicPartition, Any]:
    return {TopicPartition(*name): figure for name, figure in figures.items()}


def moves_of(moves: Iterable[Move]) -> list[list[Any]]:
    return [[*m.partition, m.source, m.target, m.write_rate] for m in moves]


def placed(case: Case, heuristic: str, *, counts: bool, packs: bool) -> list[Any]:
    """Decide: assignment, moves, R, consumers, fill, unassigned partitions, cross-rack load."""
    group = ConsumerGroup(
        tuple(
            Member(w.id, frozenset(w.topics), w.takes, w.lasting, draining=w.leaves, rack=w.where)
            for w in case.members
        ),
        tuple(TopicPartition(*name) for name in case.what),
        by_name(case.held),
        by_name(case.copies),
    )
    load = Load(by_name(case.rates), by_name(case.waits), by_name(case.deviations))
    policy = PlacementPolicy(heuristic, 100.0, case.filled, consolidate=packs)
    plan = (size_group if counts else place_partitions)(group, load, policy)
    return [
        [[name, list(held)] for name, held in plan.assignment.items()],
        moves_of(plan.moves),
        plan.r_score,
        plan.consumers,
        plan.fill,
        list(plan.unassigned),
        plan.cross_rack_load,
    ]


MEMBER_DEFAULTS: Final[Mapping[str, Any]] = {
    "capacity": None,
    "decision": "",
    "draining": False,
    "generation": -1,
    "instance": "",
    "owned": {},
    "promised": {},
    "rack": None,
}
PLACEMENT_DEFAULTS: Final[Mapping[str, Any]] = {"decision": "", "more": False, "promised": {}}


def encode_user_data(member: SimulatedMember, decision: str, promised: Mapping[str, list[int]]) -> bytes:
    """Return a member's user data in bytes."""
    grouped = tuple((topic, tuple(numbers)) for topic, numbers in sorted(promised.items()))
    data = MemberUserData(
        member.takes, member.lasting, draining=member.leaves, decision_fingerprint=decision, promised=grouped
    )
    return with_unset_fields(data.encode(), MEMBER_DEFAULTS)


def with_unset_fields(data: bytes, defaults: Mapping[str, Any]) -> bytes:
    """Return user data as it was recorded: with the fields that are not set."""
    return json.dumps({**defaults, **json.loads(data)}, sort_keys=True, separators=(",", ":")).encode()


def with_unset_placement_fields(assignment: bytes) -> bytes:
    data = decode_assignment(assignment).user_data or b""
    longer = with_unset_fields(data, PLACEMENT_DEFAULTS)
    return assignment[: -len(data) - 4] + struct.pack(">i", len(longer)) + longer


def lead_round(raw: Mapping[str, bytes], inputs: LeaderInputs) -> tuple[dict[str, bytes], list[Any]]:
    """Lead a round; return each member's assignment, and the rest of the decision."""
    plan = None
    if inputs.plan is not None:
        epoch, leaving, learned = inputs.plan
        plan = GroupPlan("g", epoch, 1e9, 3, inputs.heuristic, 100.0, 0.9, leaving, (), learned)
    copies = by_name(inputs.copies)
    view = LeaderView(
        Load(by_name(inputs.rates)), plan, lambda there: ReplicaRacks.from_partitions(there, copies)
    )
    topics = {topic: range(count) for topic, count in inputs.topics.items()}
    own = PlacementPolicy(inputs.heuristic, 100.0)
    round_ = lead_group(decode_subscriptions(raw), topics, tuple(topics), view, own)
    eager_data = sorted(round_.encode(eager=True).items())
    eager = [[name, with_unset_placement_fields(data).hex()] for name, data in eager_data]
    made = round_.placement_decision
    r, crossing = (0.0, None) if made is None else (made.r_score, made.cross_rack_load)
    rest = [round_.decision_fingerprint, made is not None, moves_of(round_.moves), r, crossing, eager]
    return {name: with_unset_placement_fields(data) for name, data in round_.encode().items()}, rest


def replayed(
    heuristic: str, what: tuple[Name, ...], rates: list[list[float]]
) -> list[tuple[int, float, int, list[int]]]:
    """Replay a stream: consumers, R, moves and owners of each tick."""
    stream = WriteRateStream(tuple(TopicPartition(*name) for name in what), np.array(rates))
    ticks = replay_stream(get_heuristic(heuristic), stream, 100.0)
    return [(t.consumers, t.r_score, t.moved, t.owner.tolist()) for t in ticks]


def written() -> dict[str, str]:
    """Return encoded values of the control topics and of the group protocol."""
    plan = GroupPlan("g", 3, 1e9, 2, "mbf", 100.0)
    full = replace(
        plan, headroom=0.9, draining=("a",), reasons=("why",), capacities={"b": 5.0}, batch_max_age_s=7.5
    )
    speeds = {1: PartitionLoad(1.0, 2.0, 3.0, 4, 5.0, 6.0), 0: PartitionLoad()}
    member = MemberUserData(5.0, "a", True, "r", "d", (("t", (1, 2)),), (), 4)  # noqa: FBT003 - by position
    values = {
        "plan": plan.encode(),
        "plan, all of it": full.encode(),
        "speeds": TopicWriteRates("g", "t", 1e9, 30.0, "offsets", speeds).encode(),
        "member": with_unset_fields(member.encode(), MEMBER_DEFAULTS),
    }
    return {name: value.decode() for name, value in values.items()}


ACTIONS: Final = {
    ScalingAction.HOLD: "hold",
    ScalingAction.ANNOUNCE: "announce",
    ScalingAction.ADOPT: "adopt",
    ScalingAction.ADOPT_EXTERNAL: "follow",
    ScalingAction.SCALE_UP: "start",
    ScalingAction.REPLACE: "replace",
    ScalingAction.SURGE: "surge",
    ScalingAction.DRAIN: "drain",
    ScalingAction.RETRY_DRAIN: "ask again",
    ScalingAction.CANCEL_DRAIN: "undrain",
    ScalingAction.STOP: "stop",
    ScalingAction.PLACE: "place",
}
STATES: Final = {
    "stable": GroupState.STABLE,
    "rebalancing": GroupState.REBALANCING,
    "empty": GroupState.EMPTY,
    "unknown": GroupState.UNKNOWN,
}
WAYS: Final = {"out": Direction.UP, "in": Direction.DOWN}
SELECTS: Final = {"max": SelectPolicy.MAX, "min": SelectPolicy.MIN, "disabled": SelectPolicy.DISABLED}
USES: Final = {
    "current": FallbackBehavior.CURRENT,
    "static": FallbackBehavior.STATIC,
    "if higher": FallbackBehavior.CURRENT_IF_HIGHER,
}
KINDS: Final = {"kmq": QueueKind.KMQ, "ordered": QueueKind.ORDERED, "share": QueueKind.SHARE}


def rules(paces: Iterable[tuple[int, float, bool]], rest: tuple[str, float, float]) -> ScalingRules:
    select, window, band = rest
    return ScalingRules(
        tuple(ScalingPolicy(v, p, is_percent=s) for v, p, s in paces), SELECTS[select], window, band
    )


def create_policy(s: Settings) -> AutoscalingPolicy:
    """Return the settings as the sidecar's policy."""
    use, count, after = s.dark
    return AutoscalingPolicy(
        placement=PlacementPolicy(s.heuristic, s.takes, s.filled, consolidate=True),
        min_replicas=s.low,
        max_replicas=s.high,
        scale_up=rules(s.out, s.out_rest),
        scale_down=rules(s.back, s.back_rest),
        cooldown=s.cool,
        paused_directions=frozenset(WAYS[way] for way in s.still),
        schedule=tuple(
            CronPeriod(start, end, zone, low, high, frozenset(WAYS[way] for way in still))
            for start, end, zone, low, high, still in s.periods
        ),
        fallback=FallbackPolicy(USES[use], count, after),
        freshness_slo=s.goal,
        idle_after=120.0,
        scale_up_evaluation_window=s.effect[0],
        scale_up_evaluation_retry=s.effect[1],
        learned_capacity_bounds=None if s.learns is None else CapacityBounds(*s.learns),
        drain_retry=60.0,
        startup_timeout=s.grace,
        catch_up=CatchUpPolicy(100.0, 10.0),
        advisory=s.advice,
    )


class Steered:
    """The sidecar's pure decision, iteration after iteration."""

    def __init__(self) -> None:
        self._memory, self._plan = DecisionMemory(), None

    def turn(self, seen: Seen, settings: Settings, now: float) -> Turned:
        """Decide, and remember it as carried out."""
        policy = create_policy(settings)
        shown = self._shown(seen, policy)
        decision, self._memory = make_decision(shown, policy, self._memory, now, "g")
        self._memory = record_execution(decision, shown, self._memory, now)
        self._plan = decision.plan or self._plan
        plan, moves = self._plan, moves_of(decision.expected_moves)
        return Turned(
            ACTIONS[decision.action],
            self._all(decision),
            0 if plan is None else plan.replicas,
            0 if plan is None else plan.epoch,
            () if plan is None else plan.draining,
            decision.replicas_to_start,
            decision.replicas_to_stop,
            moves,
        )

    def _shown(self, seen: Seen, policy: AutoscalingPolicy) -> Observation:
        speeds = {
            TopicPartition(*name): PartitionLoad(
                rate, rate, waiting, None if waiting is None else int(waiting)
            )
            for name, (rate, waiting) in seen.rates.items()
        }
        readers = tuple(
            ObservedMember(f"id-{name}", name, frozenset(TopicPartition(*p) for p in held), where)
            for name, held, where in seen.readers
        )
        requested = None
        if seen.requested is not None:
            count, at, ours, traced = seen.requested
            requested = RequestedReplicas(count, "somebody", at, ours, traced)
        pods = None
        if seen.pods is not None:
            pods = tuple(ReplicaInstance(name, alive, at, last) for name, alive, at, last in seen.pods)
        queue = seen.queue
        return Observation(
            add_required_rates(speeds, policy.catch_up, policy.usable_capacity),
            ObservedGroup(STATES[seen.state], readers, seen.shared),
            pods,
            self._plan,
            plan_known=seen.known,
            pending_restarts=seen.restart,
            target_status=TargetStatus(requested, str(WAYS.get(seen.pause, seen.pause))),
            consumption_rates=by_name(seen.consumed),
            stuck_partitions=frozenset(TopicPartition(*name) for name in seen.stuck),
            replica_racks=by_name(seen.copies),
            queue=None if queue is None else QueueBacklog(KINDS[queue[0]], *queue[1:]),
        )

    def _all(self, decision: ScalingDecision) -> list[Any]:
        """Return everything but reasons."""
        n, plan = decision.metrics, decision.plan
        numbers: list[Any] = [
            n.write_rate,
            n.required_rate,
            n.backlog_bytes,
            n.overdue_backlog_bytes,
            n.consumption_rate,
            n.p99_freshness_s,
        ]
        numbers += [
            n.max_batch_s,
            n.unknown_partitions,
            n.partitions,
            n.running_replicas,
            n.planned_replicas,
            n.recommended_replicas,
            n.desired_replicas,
        ]
        numbers += [
            n.max_fill,
            n.r_score,
            n.moves,
            n.cross_rack_rate,
            n.partitions_without_local_replica,
            n.racks_without_consumer,
        ]
        numbers += [n.queue_waiting, n.queue_in_flight, n.queue_awaiting_redelivery]
        published = None
        if plan is not None:
            published = [plan.group, plan.epoch, plan.time, plan.replicas, plan.heuristic]
            published += [plan.capacity, plan.headroom, list(plan.draining), plan.batch_max_age_s]
            published += [[[name, rate] for name, rate in plan.capacities.items()]]
        executed = [ACTIONS[decision.action], decision.replicas_to_start, list(decision.replicas_to_stop)]
        return [executed, published, numbers, moves_of(decision.expected_moves)]
