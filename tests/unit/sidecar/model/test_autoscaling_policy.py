"""The operator's policy: pauses, schedules, fallbacks, scale to zero, and scale-up that helps."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import Any

import pytest

from support.policies import build_policy
from trimtab.assignor.model import PlacementPolicy, TopicPartition
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.decision.decide import make_decision, record_execution
from trimtab.sidecar.decision.decision import ScalingAction, ScalingDecision
from trimtab.sidecar.decision.decision_memory import (
    DecisionMemory,
    SaturatedConsumer,
    ScaleUpEvaluation,
    TimestampedRecommendation,
)
from trimtab.sidecar.measurement.freshness import AgeSample
from trimtab.sidecar.model.autoscaling_policy import AutoscalingPolicy, CapacityBounds, FallbackPolicy
from trimtab.sidecar.model.catch_up_policy import CatchUpPolicy, add_required_rates
from trimtab.sidecar.model.hpa_behavior import (
    Direction,
    FallbackBehavior,
    ScaleEvent,
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
    TargetStatus,
)
from trimtab.sidecar.model.schedule import CronPeriod

NOW = 1.8e9
POLICY = build_policy(
    placement=PlacementPolicy("mbf", 100.0, 1.0, consolidate=True),
    min_replicas=1,
    max_replicas=6,
    scale_up=ScalingRules((ScalingPolicy(3),)),
    scale_down=ScalingRules((ScalingPolicy(1),), stabilization_window=60),
    cooldown=30,
    idle_after=120,
    scale_up_evaluation_window=60,
    catch_up=CatchUpPolicy(100.0, 10.0),
)
PLAN = GroupPlan("g", 7, NOW - 500, 2, "mbf", 100.0, 1.0)
CALM = DecisionMemory((TimestampedRecommendation(NOW - 50, 1),), last_change=NOW - 500)


@dataclass(frozen=True)
class World:
    """Each worker's write rates, backlog and consumption."""

    reads: Mapping[str, Mapping[int, float | None]]
    waits: Mapping[int, float] = field(default_factory=dict)
    consumed: Mapping[int, float] = field(default_factory=dict)
    plan: GroupPlan = PLAN
    outside: TargetStatus = field(default_factory=TargetStatus)

    def seen(self) -> Observation:
        loads = {
            TopicPartition("t", n): load(s, self.waits.get(n, 0.0))
            for reads in self.reads.values()
            for n, s in reads.items()
        }
        readers = tuple(
            ObservedMember(name, name, frozenset(TopicPartition("t", n) for n in reads))
            for name, reads in self.reads.items()
        )
        state = GroupState.STABLE if readers else GroupState.EMPTY
        return Observation(
            add_required_rates(loads, POLICY.catch_up, POLICY.usable_capacity),
            ObservedGroup(state, readers),
            tuple(ReplicaInstance(n, alive=True, started_at=NOW - 900) for n in sorted(self.reads)),
            self.plan,
            target_status=self.outside,
            consumption_rates={TopicPartition("t", n): rate for n, rate in self.consumed.items()},
        )


def load(rate: float | None, waiting: float | None) -> PartitionLoad:
    """Records of one byte, so that both figures are one."""
    if rate is None:
        return PartitionLoad()
    return PartitionLoad(rate, rate, waiting, None if waiting is None else int(waiting))


def decide(
    world: World | Observation,
    policy: AutoscalingPolicy = POLICY,
    memory: DecisionMemory = CALM,
    now: float = NOW,
) -> ScalingDecision:
    seen = world.seen() if isinstance(world, World) else world
    return make_decision(seen, policy, memory, now, "g")[0]


BUSY = World({"a": {0: 60, 1: 60, 2: 60}, "b": {3: 60, 4: 60}})
QUIET = World({"a": {0: 10, 1: 10}, "b": {2: 5, 3: 5}})
DARK = World({"a": {0: None, 1: None}, "b": {2: None}})


def test_policies_with_a_period_count_recorded_changes() -> None:
    """Of three replicas per minute, two added 30 s ago leave one; a minute later all three."""
    policy = replace(POLICY, scale_up=ScalingRules((ScalingPolicy(3, 60),)))
    memory = replace(CALM, scale_events=(ScaleEvent(NOW - 31, 2),))
    assert decide(BUSY, policy, memory).replicas_to_start == 1
    assert decide(BUSY, policy, memory, NOW + 30).replicas_to_start == 3
    used = decide(BUSY, policy, replace(CALM, scale_events=(ScaleEvent(NOW - 31, 3),)))
    assert used.action is ScalingAction.HOLD
    assert "scale-up-policies allows no more in its period" in used.format_line()


def test_executed_changes_are_recorded() -> None:
    """Both directions are recorded with their size and dropped after the longest period."""
    memory = record_execution(decide(BUSY), BUSY.seen(), CALM, NOW)
    assert memory.scale_events == (ScaleEvent(NOW, 3),)
    memory = record_execution(decide(QUIET), QUIET.seen(), memory, NOW + 40)
    assert memory.scale_events == (ScaleEvent(NOW, 3), ScaleEvent(NOW + 40, -1))
    assert len(memory.record_scaling(NOW + 1810, 1).scale_events) == 2


def test_a_disabled_direction_holds() -> None:
    """`select: disabled` forbids one direction with a reason; the other continues."""
    policy = replace(POLICY, scale_down=replace(POLICY.scale_down, select_policy=SelectPolicy.DISABLED))
    assert "scale-down-policies is disabled" in decide(QUIET, policy).format_line()
    assert decide(BUSY, policy).action is ScalingAction.SCALE_UP


@pytest.mark.parametrize(
    ("pause", "out", "back"),
    [
        ("scale-up", ScalingAction.HOLD, ScalingAction.DRAIN),
        ("scale-down", ScalingAction.SCALE_UP, ScalingAction.HOLD),
        ("all", ScalingAction.HOLD, ScalingAction.HOLD),
        ("", ScalingAction.SCALE_UP, ScalingAction.DRAIN),
    ],
)
def test_a_paused_direction_is_not_scaled(pause: str, out: ScalingAction, back: ScalingAction) -> None:
    """The target's annotation or a setting pauses a direction; the decision names which."""
    outside_state = TargetStatus(paused_direction=pause)
    policy = replace(POLICY, paused_directions=frozenset(w for w in Direction if pause in (w, "all")))
    for world, action in ((BUSY, out), (QUIET, back)):
        by_target, by_setting = decide(replace(world, outside=outside_state)), decide(world, policy)
        assert (by_target.action, by_setting.action) == (action, action)
        if action is ScalingAction.HOLD:
            assert "paused at the target" in by_target.format_line()
            assert "paused by the settings" in by_setting.format_line()


def test_a_pause_still_replaces_dead_replicas() -> None:
    """A pause fixes the count, so a dead replica is started again."""
    world = World({"a": {0: 10}}, plan=PLAN, outside=TargetStatus(paused_direction="all"))
    assert decide(world).action is ScalingAction.REPLACE


def test_a_scheduled_period_can_pause_scale_down() -> None:
    """A period of the schedule may pause a direction."""
    minute = CronPeriod("0 0 1 1 *", "1 0 1 1 *", paused_directions=frozenset({Direction.DOWN}))
    year = replace(minute, start=minute.end, end=minute.start)
    assert decide(QUIET, replace(POLICY, schedule=(year,))).action is ScalingAction.HOLD
    assert decide(QUIET, replace(POLICY, schedule=(minute,))).action is ScalingAction.DRAIN


def test_a_scheduled_minimum_applies_at_its_start() -> None:
    """The minimum applies at once whatever the load, and ends with the usual window."""
    office = CronPeriod("0 0 2 1 *", "0 0 1 1 *", min_replicas=4)
    decision = decide(QUIET, replace(POLICY, schedule=(office,)))
    assert (decision.action, decision.replicas_to_start) == (ScalingAction.SCALE_UP, 2)


def decide_after_failures(policy: AutoscalingPolicy, count: int) -> ScalingDecision:
    """Return the last decision after `count` iterations without any known write rate."""
    memory = CALM
    for turn in range(count):
        decision, memory = make_decision(DARK.seen(), policy, memory, NOW + 10 * turn, "g")
    return decision


@pytest.mark.parametrize(
    ("fallback", "turns", "action"),
    [
        (FallbackPolicy(FallbackBehavior.CURRENT, 0, 3), 50, ScalingAction.HOLD),
        (FallbackPolicy(FallbackBehavior.STATIC, 4, 3), 2, ScalingAction.HOLD),
        (FallbackPolicy(FallbackBehavior.STATIC, 4, 3), 3, ScalingAction.SCALE_UP),
        (FallbackPolicy(FallbackBehavior.STATIC, 1, 3), 20, ScalingAction.DRAIN),
        (FallbackPolicy(FallbackBehavior.CURRENT_IF_HIGHER, 4, 3), 3, ScalingAction.SCALE_UP),
        (FallbackPolicy(FallbackBehavior.CURRENT_IF_HIGHER, 1, 3), 50, ScalingAction.HOLD),
    ],
)
def test_the_fallback_applies_when_measuring_fails(
    fallback: FallbackPolicy, turns: int, action: ScalingAction
) -> None:
    """After `failure_threshold` iterations without data the fallback count applies, not before."""
    decision = decide_after_failures(replace(POLICY, fallback=fallback), turns)
    assert decision.action is action
    if fallback.behavior is not FallbackBehavior.CURRENT and turns >= fallback.failure_threshold:
        assert decision.metrics.desired_replicas == max(
            fallback.replicas, fallback.behavior is FallbackBehavior.CURRENT_IF_HIGHER and 2
        )


def test_one_measurement_ends_the_fallback() -> None:
    """Iterations without data count only in a row."""
    policy = replace(POLICY, fallback=FallbackPolicy(FallbackBehavior.STATIC, 6, 3))
    memory = make_decision(DARK.seen(), policy, replace(CALM, unknown_iterations=2), NOW, "g")[1]
    assert memory.unknown_iterations == 3
    assert make_decision(QUIET.seen(), policy, memory, NOW, "g")[1].unknown_iterations == 0


def test_a_broker_outage_counts_as_failed_measuring() -> None:
    """An iteration without a group description holds, and counts towards the fallback."""
    away = replace(BUSY.seen(), group=ObservedGroup())
    assert make_decision(away, POLICY, CALM, NOW, "g")[1].unknown_iterations == 1


STILL = World({"a": {0: 0.0, 1: 0.0}}, plan=replace(PLAN, replicas=1))
ZERO = replace(POLICY, min_replicas=0)
SINCE = replace(CALM, idle_since=NOW - 121)


def test_the_last_replica_stops_after_the_idle_time() -> None:
    """With a minimum of 0 the last replica is drained and stopped although it owns idle partitions."""
    decision = decide(STILL, ZERO, SINCE)
    assert decision.action is ScalingAction.DRAIN
    assert decision.plan is not None
    assert (decision.plan.replicas, decision.plan.draining, decision.plan.epoch) == (0, ("a",), 7)
    stop = decide(replace(STILL, plan=decision.plan), ZERO, SINCE)
    assert (stop.action, stop.replicas_to_stop) == (ScalingAction.STOP, ("a",))


@pytest.mark.parametrize(
    ("world", "policy", "memory"),
    [
        (STILL, POLICY, SINCE),
        (STILL, ZERO, replace(CALM, idle_since=NOW - 119)),
        (STILL, ZERO, CALM),
        (replace(STILL, waits={1: 3.0}), ZERO, SINCE),
        (replace(STILL, reads={"a": {0: 0.0, 1: 0.1}}), ZERO, SINCE),
    ],
)
def test_the_last_replica_stays(world: World, policy: AutoscalingPolicy, memory: DecisionMemory) -> None:
    """The last replica stays with a minimum of 1, before the idle time, or with records to read."""
    assert decide(world, policy, memory).action is ScalingAction.HOLD


def test_nothing_scales_to_zero_while_a_broker_is_replaced() -> None:
    """A partition of unknown rate or backlog is not idle, and the idle time restarts."""
    for unknown in (PartitionLoad(), PartitionLoad(0.0, 0.0), PartitionLoad(None, None, 0.0, 0)):
        seen = STILL.seen()
        seen = replace(seen, write_rates={**seen.write_rates, TopicPartition("t", 1): unknown})
        decision, memory = make_decision(seen, ZERO, SINCE, NOW, "g")
        assert decision.action is ScalingAction.HOLD
        assert memory.idle_since is None
        assert make_decision(STILL.seen(), ZERO, memory, NOW + 10, "g")[1].idle_since == NOW + 10
    away = replace(STILL.seen(), group=ObservedGroup())
    assert make_decision(away, ZERO, SINCE, NOW, "g")[1].idle_since is None


def test_idle_replicas_stop_one_by_one() -> None:
    """Above one replica an idle group still follows windows and policies."""
    world = World({"a": {0: 0.0}, "b": {1: 0.0}})
    decision = decide(world, ZERO, SINCE)
    assert decision.action is ScalingAction.DRAIN
    assert decision.plan is not None
    assert decision.plan.replicas == 1


NONE = replace(PLAN, replicas=0)


def idle_group(first: PartitionLoad) -> Observation:
    """Return a group without replicas: one partition is idle, the other as given."""
    loads = {TopicPartition("t", 0): first, TopicPartition("t", 1): load(0.0, 0)}
    return Observation(loads, ObservedGroup(GroupState.EMPTY), (), NONE)


@pytest.mark.parametrize(
    "stirring", [load(0.0, 1), PartitionLoad(0.3, 0.1, 0.0, 0), PartitionLoad(None, 0.1)]
)
def test_the_first_observed_record_starts_a_replica(stirring: PartitionLoad) -> None:
    """From zero, neither window nor cooldown nor percentage delays the start."""
    slow = ScalingRules((ScalingPolicy(10, 600, is_percent=True),), stabilization_window=600)
    memory = DecisionMemory(last_change=NOW - 1)
    decision = decide(idle_group(stirring), replace(ZERO, scale_up=slow), memory)
    assert (decision.action, decision.replicas_to_start) == (ScalingAction.SCALE_UP, 1)


@pytest.mark.parametrize("quiet", [load(0.0, 0), PartitionLoad(), PartitionLoad(0.0, 0.0)])
def test_zero_stays_zero_until_a_record_is_observed(quiet: PartitionLoad) -> None:
    """Neither idleness nor unknown data starts a replica; none is drained again."""
    assert decide(idle_group(quiet), ZERO).action is ScalingAction.HOLD


def test_a_record_cancels_the_last_drain() -> None:
    """A record written before the last replica is stopped cancels its drain."""
    plan = replace(PLAN, replicas=0, draining=("a",))
    decision = decide(replace(STILL, plan=plan, waits={0: 1.0}), ZERO, SINCE)
    assert decision.action is ScalingAction.CANCEL_DRAIN
    unsure = replace(STILL, reads={"a": {0: 0.0, 1: None}}, plan=plan)
    assert decide(unsure, ZERO, SINCE).action is ScalingAction.HOLD


BEHIND = World(
    {"a": {0: 30, 1: 30, 2: 30}, "b": {3: 30, 4: 30, 5: 30}},
    waits=dict.fromkeys(range(6), 5000.0),
    consumed=dict.fromkeys(range(6), 25.0),
)


def scaled_up(consumed: float) -> World:
    """Return the group after two more have joined, each partition consumed at this rate."""
    reads = {"a": {0: 30.0, 1: 30.0}, "b": {2: 30.0, 3: 30.0}, "c": {4: 30.0}, "d": {5: 30.0}}
    consumption = dict.fromkeys(range(6), consumed)
    return World(reads, BEHIND.waits, consumption, plan=replace(PLAN, replicas=4))


GREW = replace(
    CALM, scale_up_evaluation=ScaleUpEvaluation(NOW - 100, 2, 150.0, joined_at=NOW - 61, joined_replicas=4)
)


def test_a_scale_up_records_the_consumption_before_it() -> None:
    """A scale-up is evaluated if the consumption is known, and only then."""
    memory = record_execution(decide(BEHIND), BEHIND.seen(), CALM, NOW)
    assert memory.scale_up_evaluation == ScaleUpEvaluation(NOW, 2, 150.0)
    assert record_execution(decide(BUSY), BUSY.seen(), CALM, NOW).scale_up_evaluation is None


def test_an_ineffective_scale_up_suspends_scale_up() -> None:
    """If twice the consumers read no more, scale-up is suspended with a reason until the retry."""
    decision, memory = make_decision(scaled_up(25.0).seen(), POLICY, GREW, NOW, "g")
    assert decision.action is ScalingAction.HOLD
    assert "scale-up is suspended: the sink is the limit" in decision.reasons
    assert memory.scale_up_suspension is not None
    for part in ("4 consumers read no more than 2 (150 B/s)", "the sink behind them is the limit"):
        assert part in memory.scale_up_suspension.reason
    assert decide(scaled_up(25.0), POLICY, memory, NOW + 59).action is ScalingAction.HOLD
    assert decide(scaled_up(25.0), POLICY, memory, NOW + 599).action is ScalingAction.DRAIN
    assert decide(scaled_up(25.0), POLICY, memory, NOW + 601).action is ScalingAction.SCALE_UP


@pytest.mark.parametrize(
    ("world", "memory"),
    [
        (scaled_up(40.0), GREW),
        (
            scaled_up(25.0),
            replace(
                GREW,
                scale_up_evaluation=ScaleUpEvaluation(
                    NOW - 100, 2, 150.0, joined_at=NOW - 59, joined_replicas=4
                ),
            ),
        ),
        (replace(scaled_up(25.0), consumed={}), GREW),
    ],
)
def test_an_effective_or_unknown_scale_up_continues(world: World, memory: DecisionMemory) -> None:
    """Scale-up continues if consumption rose, is unknown, or the window is not over."""
    assert decide(world, POLICY, memory).action is ScalingAction.SCALE_UP


def test_a_stalled_group_still_gets_its_minimum() -> None:
    """A suspension does not override the minimum."""
    decision, memory = make_decision(scaled_up(25.0).seen(), POLICY, GREW, NOW, "g")
    assert decision.action is ScalingAction.HOLD
    assert decide(scaled_up(25.0), replace(POLICY, min_replicas=5), memory).replicas_to_start == 1


def growth(seen: Observation, memory: DecisionMemory) -> ScaleUpEvaluation:
    """Return the pending evaluation after an iteration."""
    kept = make_decision(seen, POLICY, memory, NOW, "g")[1].scale_up_evaluation
    assert kept is not None
    return kept


def test_an_evaluation_starts_when_the_new_replicas_have_joined() -> None:
    """Slow pods delay the comparison and do not distort it."""
    seen, begun = (
        scaled_up(25.0).seen(),
        replace(CALM, scale_up_evaluation=ScaleUpEvaluation(NOW - 100, 2, 150.0)),
    )
    young = replace(
        seen,
        group=ObservedGroup(GroupState.STABLE, seen.group.members[:3]),
        replicas=tuple(ReplicaInstance(n, alive=True, started_at=NOW - 9) for n in "abcd"),
    )
    assert growth(young, begun).joined_replicas == 0
    assert growth(seen, begun) == ScaleUpEvaluation(NOW - 100, 2, 150.0, NOW, 4)


def test_small_growth_is_not_evaluated() -> None:
    """One consumer more than three is below the noise of commits."""
    begun = replace(CALM, scale_up_evaluation=ScaleUpEvaluation(NOW - 100, 3, 150.0, NOW - 61, 4))
    decision, memory = make_decision(scaled_up(25.0).seen(), POLICY, begun, NOW, "g")
    assert (decision.action, memory.scale_up_suspension) == (ScalingAction.SCALE_UP, None)
    assert memory.scale_up_evaluation == ScaleUpEvaluation(NOW - 100, 3, 150.0, NOW, 4)
    late = make_decision(scaled_up(25.0).seen(), POLICY, memory, NOW + 300, "g")[1]
    assert late.scale_up_evaluation is None


def counts(sink: float | Callable[[int, int], float], turns: int, policy: AutoscalingPolicy) -> list[int]:
    """Replicas by turn, ten seconds each, of a group whose sink takes so much at most (by turn and replicas).

    Twelve partitions, 25 B/s each, are shared out evenly; the group begins with two consumers.
    """
    takes = sink if callable(sink) else lambda _turn, _replicas: sink
    plan, memory, waiting, found = PLAN, CALM, 0.0, list[int]()
    for turn in range(turns):
        names, now = [f"w{n}" for n in range(plan.replicas)], NOW + 10 * turn
        total = min(takes(turn, plan.replicas), 100.0 * len(names))
        waiting = max(0.0, waiting + 10 * (300 - total))
        reads = {w: dict.fromkeys(range(n, 12, len(names)), 25.0) for n, w in enumerate(names)}
        each = range(12)
        world = World(reads, dict.fromkeys(each, waiting / 12), dict.fromkeys(each, total / 12), plan)
        seen = world.seen()
        decision, memory = make_decision(seen, policy, memory, now, "g")
        memory = record_execution(decision, seen, memory, now)
        plan = replace(decision.plan or plan, draining=())
        found.append(plan.replicas)
    return found


def test_a_slow_sink_does_not_drive_replicas_to_the_maximum() -> None:
    """Scale-up stops after one window, is retried, and continues once it helps."""
    policy = replace(
        POLICY, max_replicas=12, scale_up=ScalingRules((ScalingPolicy(1),)), scale_up_evaluation_retry=600
    )
    slow = counts(150.0, 100, policy)
    assert 2 < max(slow[:40]) <= 6
    assert slow[40] == slow[65] == 2 < max(slow[68:])
    assert counts(150.0, 60, replace(policy, scale_up_evaluation_window=0))[-1] == 12
    assert set(counts(1200.0, 30, policy)) == {3}


SINK_POLICY = replace(POLICY, max_replicas=6, scale_up=ScalingRules((ScalingPolicy(4),)))


@pytest.mark.parametrize(("limit", "useful"), [(150.0, 2), (195.0, 2), (250.0, 3)])
def test_useless_replicas_are_taken_back(limit: float, useful: int) -> None:
    """To those that read as much, once two windows have shown it."""
    found = counts(limit, 60, SINK_POLICY)
    assert set(found[5:12]) == {4}
    assert set(found[20:]) == {useful}


def test_replicas_that_were_not_tried_are_told_by_the_rate_of_one() -> None:
    """Where one read 60 B/s, what four read takes three, and less at their old rate takes all of them."""
    first = ScaleUpEvaluation(NOW - 100, 1, 60.0, joined_at=NOW - 61, joined_replicas=4)
    grew = replace(CALM, scale_up_evaluation=first)
    memory = make_decision(scaled_up(25.0).seen(), POLICY, grew, NOW, "g")[1]
    assert memory.scale_up_suspension is not None
    assert "4 consumers read no more than 3 (150 B/s)" in memory.scale_up_suspension.reason
    assert decide(scaled_up(25.0), POLICY, memory, NOW + 59).action is ScalingAction.HOLD
    assert decide(scaled_up(30.0), POLICY, memory, NOW + 61).action is ScalingAction.SCALE_UP
    drain = decide(scaled_up(25.0), POLICY, memory, NOW + 61)
    assert (drain.action, drain.plan and drain.plan.replicas) == (ScalingAction.DRAIN, 3)
    assert decide(scaled_up(40.0), POLICY, grew).action is ScalingAction.SCALE_UP


def test_useless_scale_ups_are_tried_more_and_more_rarely() -> None:
    """After 10, 20, 40 and then 60 minutes, and the time that it takes to see that they are useless."""
    found = counts(150.0, 1500, SINK_POLICY)
    starts = [n for n in range(1, len(found)) if found[n - 1] == 2 < found[n]]
    assert [(later - earlier) // 6 for earlier, later in pairwise(starts[:4])] == [21, 41, 61]


def test_a_sink_that_slows_down_with_fewer_consumers_gets_them_back() -> None:
    """Where those that are left read less, the others may run again, and later tries know it."""
    found = counts(lambda turn, count: 150.0 if count > 3 or turn < 9 else 90.0, 120, SINK_POLICY)
    assert 2 in found[16:24]
    assert set(found[30:60]) == {4}
    assert max(found[60:]) == 6
    assert set(found[100:]) == {4}


@pytest.mark.parametrize(("share", "seen"), [(40.0, 0.0), (20.0, 0.0), (30.0, 25.0)])
def test_replicas_are_taken_back_without_a_scale_up_to_compare(share: float, seen: float) -> None:
    """A third at a time, to what the capacity needs; also where one was `seen` to read all that there was."""
    total, policy, left = 5 * share, replace(POLICY, cooldown=0, max_replicas=6), [5, 4, 3, 2, 1]
    found, reasons = follow_limit(lambda _: total, 60, policy, start=6, replica_rate=seen)
    assert [n for n, _ in groupby(found)][1:] == left[: 6 - found[-1]]
    assert found[-1] == math.ceil(total / 100)
    assert f"6 consumers read no more than {found[-1]} (" in reasons[-1]
    assert "the sink behind them is the limit" in reasons[-1]


def test_a_capacity_that_is_set_too_high_takes_replicas_back_once() -> None:
    """Four read less than six: all run again, and the rate of one is known from then on."""
    found, _ = follow_limit(lambda count: 30.0 * count, 200, replace(POLICY, cooldown=0), start=6)
    assert [n for n, _ in groupby(found)] == [6, 5, 4, 6]


@pytest.mark.parametrize(
    "changes",
    [
        {"min_replicas": 6},
        {"paused_directions": frozenset({Direction.DOWN})},
        {"paused_directions": frozenset({Direction.UP})},
        {"scale_down": ScalingRules((ScalingPolicy(1),), SelectPolicy.DISABLED)},
        {"scale_up": ScalingRules((ScalingPolicy(1),), SelectPolicy.DISABLED)},
        {"advisory": True},
    ],
)
def test_fewer_replicas_are_tried_only_if_all_can_stop_and_run_again(changes: dict[str, Any]) -> None:
    """A trial that cannot take place would suspend scale-up for nothing."""
    policy = replace(POLICY, cooldown=0, **changes)
    found, reasons = follow_limit(lambda _: 200.0, 60, policy, start=6)
    assert (set(found), set(reasons)) == ({6}, {""})


def test_fewer_replicas_are_not_tried_in_an_unsteered_group() -> None:
    """Nobody would drain the others."""
    assert follow_limit(lambda _: 200.0, 60, POLICY, start=6, is_steered=False) == ([6] * 60, [""] * 60)


def test_a_limit_is_tried_down_to_the_minimum() -> None:
    """Not below it, where the load alone would need less."""
    for rate in (100.0, 0.0):
        found, _ = follow_limit(lambda _, r=rate: r, 60, replace(POLICY, cooldown=0, min_replicas=5), start=6)
        assert [n for n, _ in groupby(found)] == [6, 5]


def test_a_scale_up_that_the_load_needs_comes_before_a_trial() -> None:
    """What is written needs eleven: more are started and compared, and the limit is known without a trial."""
    policy = replace(POLICY, cooldown=200, max_replicas=12)
    found, reasons = follow_limit(lambda _: 200.0, 40, policy, start=6)
    assert found[0] == max(found) == 9
    assert not any("trying" in reason for reason in reasons)


def test_a_trial_that_does_not_take_place_ends() -> None:
    """Three windows after it began, and it is not begun again."""
    policy = replace(POLICY, cooldown=1e6)
    found, reasons = follow_limit(lambda _: 200.0, 120, policy, start=6)
    tried = [n for n, reason in enumerate(reasons) if reason]
    assert set(found) == {6}
    assert tried == list(range(12, 30))


@pytest.mark.parametrize(("capacity", "again"), [(100.0, [6]), (90.0, [6, 5, 4, 6])])
def test_replicas_are_tried_once_for_a_capacity(capacity: float, again: list[int]) -> None:
    """Backlog after backlog, until another capacity is configured."""
    policy = replace(POLICY, cooldown=0)
    other = replace(policy, placement=replace(policy.placement, capacity=capacity))
    found, _ = follow_limit(lambda count: 30.0 * count, 160, policy, start=6, gone_at=80, then=other)
    assert [n for n, _ in groupby(found[:80])] == [6, 5, 4, 6]
    assert [n for n, _ in groupby(found[80:])] == again


def follow_limit(
    rate: Callable[[int], float], turns: int, policy: AutoscalingPolicy, start: int, **more: Any
) -> tuple[list[int], list[str]]:
    """Replicas and causes of a suspension by turn of ten seconds; all partitions are far behind.

    At turn `gone_at` the backlog is gone for once, and policy `then` applies from that turn on.
    """
    memory = replace(CALM, replica_rate=more.get("replica_rate", 0.0))
    plan, found, reasons = replace(PLAN, replicas=start), list[int](), list[str]()
    for turn in range(turns):
        names = [f"w{n}" for n in range(plan.replicas)]
        reads = {w: dict.fromkeys(range(n, 12, len(names)), 90.0) for n, w in enumerate(names)}
        consumed = dict.fromkeys(range(12), rate(len(names)) / 12)
        waits = dict.fromkeys(range(12), 0.0 if turn == more.get("gone_at") else 1e6)
        policy = more["then"] if turn == more.get("gone_at") else policy
        seen = replace(World(reads, waits, consumed, plan).seen(), is_steered=more.get("is_steered", True))
        decision, memory = make_decision(seen, policy, memory, NOW + 10 * turn, "g")
        memory = record_execution(decision, seen, memory, NOW + 10 * turn)
        plan = replace(decision.plan or plan, draining=())
        found.append(plan.replicas)
        suspension = memory.scale_up_suspension
        reasons.append("" if suspension is None else suspension.reason)
    return found, reasons


def test_a_partition_that_lags_alone_takes_no_replica_back() -> None:
    """It is no limit of the sink: the others have read all that there is."""
    seen = replace(scaled_up(25.0), waits={**dict.fromkeys(range(6), 0.0), 0: 30_000.0}).seen()
    suspension = make_decision(seen, POLICY, GREW, NOW, "g")[1].scale_up_suspension
    assert suspension is not None
    assert suspension.limit is None
    assert "4 consumers read no more than 2 (150 B/s, 150 B/s before)" in suspension.reason


AGES = (20.0,) * 50 + (90.0,) * 50


def test_a_missed_slo_shortens_batches_before_it_adds_replicas() -> None:
    """Batches get shorter first and move nothing; a backlog that remains overdue adds consumers."""
    policy = replace(POLICY, freshness_slo=30.0, catch_up=CatchUpPolicy(30.0, 27.0))
    memory = replace(CALM, age_samples=tuple(AgeSample(NOW - 9 * n, AGES) for n in (1, 2, 3)))
    old = World({"a": {0: 30, 1: 30}, "b": {2: 30}}, waits=dict.fromkeys(range(3), 2700.0))
    rates = add_required_rates(old.seen().write_rates, policy.catch_up, policy.usable_capacity)
    seen = replace(old.seen(), write_rates=rates)
    decision = decide(seen, policy, memory)
    assert decision.action is ScalingAction.ADOPT
    assert decision.plan is not None
    assert seen.plan is not None
    assert decision.plan.epoch == seen.plan.epoch
    assert decision.plan.batch_max_age_s == pytest.approx(7.0, abs=0.5)
    seen = replace(seen, plan=decision.plan)
    decision = decide(seen, policy, memory)
    assert decision.action is ScalingAction.SCALE_UP
    assert decision.plan is not None
    assert decision.plan.batch_max_age_s == seen.plan.batch_max_age_s
    assert decision.metrics.max_batch_s == pytest.approx(7.0, abs=0.5)
    unasked = decide(seen, memory=memory).plan
    assert unasked is not None
    assert unasked.batch_max_age_s is None


LEARN = replace(POLICY, learned_capacity_bounds=CapacityBounds(0.5, 2.0))
ALL = frozenset(TopicPartition("t", n) for n in range(3))


def learned(rate: float, **more: Any) -> Mapping[str, float]:
    """Return the capacities learned from a worker saturated for the whole window."""
    world = replace(BEHIND, consumed={**BEHIND.consumed, 0: rate, 1: rate, 2: rate}, **more)
    memory = replace(CALM, saturated={"a": SaturatedConsumer(NOW - 60, ALL)})
    return make_decision(world.seen(), LEARN, memory, NOW, "g")[1].learned_capacities


def test_a_capacity_is_learned_while_a_consumer_is_behind() -> None:
    """It is the consumption over a window in which all of the consumer's partitions were overdue."""
    assert learned(30.0) == {"a": 90.0}
    assert learned(10.0) == {"a": 50.0}
    assert learned(400.0) == {"a": 200.0}
    assert learned(40.0, waits={**BEHIND.waits, 1: 0.0}) == {}


def test_a_change_of_partitions_restarts_the_learning() -> None:
    """A consumer's earlier rate says nothing about its new partitions."""
    memory = replace(CALM, saturated={"a": SaturatedConsumer(NOW - 60, frozenset())})
    after = make_decision(BEHIND.seen(), LEARN, memory, NOW, "g")[1]
    assert after.learned_capacities == {}
    assert after.saturated["a"] == SaturatedConsumer(NOW, ALL)


def test_learned_capacities_are_published_and_used() -> None:
    """One that differs by a fifth gets a new epoch; the others keep the configured capacity."""
    world = World({"a": {0: 40, 1: 30}, "b": {2: 30}}, plan=PLAN)
    memory = DecisionMemory(
        (TimestampedRecommendation(NOW - 50, 2),),
        last_change=NOW - 500,
        learned_capacities={"a": 60.0, "b": 110.0},
    )
    decision = decide(world, LEARN, memory)
    assert decision.action is ScalingAction.PLACE
    assert decision.plan is not None
    assert (decision.plan.epoch, decision.plan.capacities) == (8, {"a": 60.0, "b": 110.0})
    assert "a 60 B/s" in decision.format_line()
    world = replace(world, plan=decision.plan)
    assert decide(world, LEARN, memory).metrics.max_fill == pytest.approx(70 / 60)
    assert decide(world, POLICY, memory).action is ScalingAction.ANNOUNCE


def test_expired_offsets_add_no_replicas() -> None:
    """An unknown backlog weighs nothing: only the write rate counts."""
    seen = QUIET.seen()
    expired = {p: PartitionLoad(s.bytes_per_s, s.records_per_s) for p, s in seen.write_rates.items()}
    assert decide(replace(seen, write_rates=expired)).action is not ScalingAction.SCALE_UP


def test_a_transactional_tail_adds_no_replicas_and_keeps_one() -> None:
    """One unreadable marker per partition adds no consumer, and prevents scale to zero."""
    tails = replace(STILL, waits={0: 1.0, 1: 1.0})
    for policy in (POLICY, ZERO):
        decision = decide(tails, policy, SINCE)
        assert (decision.action, decision.metrics.desired_replicas) == (ScalingAction.HOLD, 1)


def test_a_replica_that_never_joins_starts_no_other() -> None:
    """A planned replica that does not join counts once, and is neither doubled nor dropped."""
    world = World({"a": {0: 50, 1: 30}})
    pending = ReplicaInstance("b", alive=True, started_at=NOW - 5000)
    seen = replace(world.seen(), replicas=(*(world.seen().replicas or ()), pending))
    memory = replace(CALM, recommendations=(TimestampedRecommendation(NOW - 50, 2),))
    assert decide(seen, memory=memory).action is ScalingAction.HOLD
    decision = decide(seen)
    assert decision.plan is not None
    assert decision.plan.draining == ("b",)
