"""What an operator may ask of scaling: pauses, periods, fallbacks, zero, and growth that helps."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from trimtab.assignor.model import PlacementPolicy, TopicPartition
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.decision.decide import make_decision, record_execution
from trimtab.sidecar.decision.decision import ScalingAction, ScalingDecision
from trimtab.sidecar.decision.hpa_behavior import (
    Direction,
    ScaleEvent,
    ScalingPolicy,
    ScalingRules,
    SelectPolicy,
)
from trimtab.sidecar.decision.scaling_policy import (
    AutoscalingPolicy,
    CapacityBounds,
    DecisionMemory,
    FallbackBehavior,
    FallbackPolicy,
    SaturatedConsumer,
    ScaleUpEvaluation,
    TimestampedRecommendation,
)
from trimtab.sidecar.decision.schedule import CronPeriod
from trimtab.sidecar.measurement.freshness import AgeSample
from trimtab.sidecar.measurement.observation import (
    ExternalScaling,
    GroupState,
    Observation,
    ObservedGroup,
    ObservedMember,
    ReplicaInstance,
)
from trimtab.sidecar.measurement.write_rate import CatchUpPolicy, add_needed_rates

NOW = 1.8e9
POLICY = AutoscalingPolicy(
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
    """What each worker reads at which speed, what of it waits, and what is consumed."""

    reads: Mapping[str, Mapping[int, float | None]]
    waits: Mapping[int, float] = field(default_factory=dict)
    consumed: Mapping[int, float] = field(default_factory=dict)
    plan: GroupPlan = PLAN
    outside: ExternalScaling = field(default_factory=ExternalScaling)

    def seen(self) -> Observation:
        speeds = {
            TopicPartition("t", n): speed(s, self.waits.get(n, 0.0))
            for reads in self.reads.values()
            for n, s in reads.items()
        }
        readers = tuple(
            ObservedMember(name, name, frozenset(TopicPartition("t", n) for n in reads))
            for name, reads in self.reads.items()
        )
        state = GroupState.STABLE if readers else GroupState.EMPTY
        return Observation(
            add_needed_rates(speeds, POLICY.catch_up, POLICY.usable_capacity),
            ObservedGroup(state, readers),
            tuple(ReplicaInstance(n, alive=True, started_at=NOW - 900) for n in sorted(self.reads)),
            self.plan,
            external_scaling=self.outside,
            consumption_rates={TopicPartition("t", n): rate for n, rate in self.consumed.items()},
        )


def speed(rate: float | None, waiting: float | None) -> PartitionLoad:
    """Records of one byte, so that both figures are one."""
    if rate is None:
        return PartitionLoad()
    return PartitionLoad(rate, rate, waiting, None if waiting is None else int(waiting))


def judge(
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
    """Two added half a minute ago leave one of three a minute; a minute later all three."""
    policy = replace(POLICY, scale_up=ScalingRules((ScalingPolicy(3, 60),)))
    memory = replace(CALM, scale_events=(ScaleEvent(NOW - 31, 2),))
    assert judge(BUSY, policy, memory).replicas_to_start == 1
    assert judge(BUSY, policy, memory, NOW + 30).replicas_to_start == 3
    used = judge(BUSY, policy, replace(CALM, scale_events=(ScaleEvent(NOW - 31, 3),)))
    assert used.action is ScalingAction.HOLD
    assert "scale-up-policies allows no more in its period" in used.format_line()


def test_changes_are_recorded_when_they_are_made() -> None:
    """Both directions are remembered with their size, and forgotten after the longest period."""
    memory = record_execution(judge(BUSY), BUSY.seen(), CALM, NOW)
    assert memory.scale_events == (ScaleEvent(NOW, 3),)
    memory = record_execution(judge(QUIET), QUIET.seen(), memory, NOW + 40)
    assert memory.scale_events == (ScaleEvent(NOW, 3), ScaleEvent(NOW + 40, -1))
    assert len(memory.record_scaling(NOW + 1810, 1).scale_events) == 2


def test_a_disabled_direction_holds() -> None:
    """`select: disabled` forbids one direction and says so; the other goes on."""
    policy = replace(POLICY, scale_down=replace(POLICY.scale_down, select_policy=SelectPolicy.DISABLED))
    assert "scale-down-policies is disabled" in judge(QUIET, policy).format_line()
    assert judge(BUSY, policy).action is ScalingAction.SCALE_UP


@pytest.mark.parametrize(
    ("pause", "out", "back"),
    [
        ("scale-up", ScalingAction.HOLD, ScalingAction.DRAIN),
        ("scale-down", ScalingAction.SCALE_UP, ScalingAction.HOLD),
        ("all", ScalingAction.HOLD, ScalingAction.HOLD),
        ("", ScalingAction.SCALE_UP, ScalingAction.DRAIN),
    ],
)
def test_what_is_paused_is_not_scaled(pause: str, out: ScalingAction, back: ScalingAction) -> None:
    """By the target's annotation or by a setting; the verdict says by which."""
    said = ExternalScaling(paused_direction=pause)
    policy = replace(POLICY, paused_directions=frozenset(w for w in Direction if pause in (w, "all")))
    for world, action in ((BUSY, out), (QUIET, back)):
        by_target, by_setting = judge(replace(world, outside=said)), judge(world, policy)
        assert (by_target.action, by_setting.action) == (action, action)
        if action is ScalingAction.HOLD:
            assert "paused at the target" in by_target.format_line()
            assert "paused by the settings" in by_setting.format_line()


def test_a_pause_does_not_leave_the_dead_unreplaced() -> None:
    """The count is what is paused: one that died is started again."""
    world = World({"a": {0: 10}}, plan=PLAN, outside=ExternalScaling(paused_direction="all"))
    assert judge(world).action is ScalingAction.REPLACE


def test_a_period_without_scaling_in() -> None:
    """A period of the schedule may exclude a direction."""
    minute = CronPeriod("0 0 1 1 *", "1 0 1 1 *", paused_directions=frozenset({Direction.DOWN}))
    year = replace(minute, start=minute.end, end=minute.start)
    assert judge(QUIET, replace(POLICY, schedule=(year,))).action is ScalingAction.HOLD
    assert judge(QUIET, replace(POLICY, schedule=(minute,))).action is ScalingAction.DRAIN


def test_a_scheduled_minimum_is_there_at_its_time() -> None:
    """It is brought about at once, whatever the load, and given up after the usual window."""
    office = CronPeriod("0 0 2 1 *", "0 0 1 1 *", min_replicas=4)
    verdict = judge(QUIET, replace(POLICY, schedule=(office,)))
    assert (verdict.action, verdict.replicas_to_start) == (ScalingAction.SCALE_UP, 2)


def dark_turns(policy: AutoscalingPolicy, count: int) -> ScalingDecision:
    """What is decided in the last of so many turns in which nothing is known."""
    memory = CALM
    for turn in range(count):
        verdict, memory = make_decision(DARK.seen(), policy, memory, NOW + 10 * turn, "g")
    return verdict


@pytest.mark.parametrize(
    ("fallback", "turns", "action"),
    [
        (FallbackPolicy(), 50, ScalingAction.HOLD),
        (FallbackPolicy(FallbackBehavior.STATIC, 4, 3), 2, ScalingAction.HOLD),
        (FallbackPolicy(FallbackBehavior.STATIC, 4, 3), 3, ScalingAction.SCALE_UP),
        (FallbackPolicy(FallbackBehavior.STATIC, 1, 3), 20, ScalingAction.DRAIN),
        (FallbackPolicy(FallbackBehavior.CURRENT_IF_HIGHER, 4, 3), 3, ScalingAction.SCALE_UP),
        (FallbackPolicy(FallbackBehavior.CURRENT_IF_HIGHER, 1, 3), 50, ScalingAction.HOLD),
    ],
)
def test_fallback_when_measuring_fails(fallback: FallbackPolicy, turns: int, action: ScalingAction) -> None:
    """After so many turns in the dark the count is what was asked for; else nothing is scaled."""
    verdict = dark_turns(replace(POLICY, fallback=fallback), turns)
    assert verdict.action is action
    if fallback.behavior is not FallbackBehavior.CURRENT and turns >= fallback.failure_threshold:
        assert verdict.metrics.desired_replicas == max(
            fallback.replicas, fallback.behavior is FallbackBehavior.CURRENT_IF_HIGHER and 2
        )


def test_one_measurement_ends_the_fallback() -> None:
    """The turns are counted in a row."""
    policy = replace(POLICY, fallback=FallbackPolicy(FallbackBehavior.STATIC, 6, 3))
    memory = make_decision(DARK.seen(), policy, replace(CALM, unknown_iterations=2), NOW, "g")[1]
    assert memory.unknown_iterations == 3
    assert make_decision(QUIET.seen(), policy, memory, NOW, "g")[1].unknown_iterations == 0


def test_a_broker_that_is_away_counts_as_measuring_that_fails() -> None:
    """A turn in which the group is not described holds, and is counted."""
    away = replace(BUSY.seen(), group=ObservedGroup())
    assert make_decision(away, POLICY, CALM, NOW, "g")[1].unknown_iterations == 1


STILL = World({"a": {0: 0.0, 1: 0.0}}, plan=replace(PLAN, replicas=1))
ZERO = replace(POLICY, min_replicas=0)
SINCE = replace(CALM, idle_since=NOW - 121)


def test_the_last_replica_goes_when_nothing_is_to_be_read_for_long_enough() -> None:
    """With a minimum of 0 it is drained and stopped although it owns what is idle."""
    verdict = judge(STILL, ZERO, SINCE)
    assert verdict.action is ScalingAction.DRAIN
    assert verdict.plan is not None
    assert (verdict.plan.replicas, verdict.plan.draining, verdict.plan.epoch) == (0, ("a",), 7)
    stop = judge(replace(STILL, plan=verdict.plan), ZERO, SINCE)
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
    """With a minimum of 1, before the time is over, or with anything written or waiting."""
    assert judge(world, policy, memory).action is ScalingAction.HOLD


def test_nothing_scales_to_zero_while_a_broker_is_replaced() -> None:
    """A partition whose speed or backlog is unknown is not idle, and the time begins anew."""
    for unknown in (PartitionLoad(), PartitionLoad(0.0, 0.0), PartitionLoad(None, None, 0.0, 0)):
        seen = STILL.seen()
        seen = replace(seen, write_rates={**seen.write_rates, TopicPartition("t", 1): unknown})
        verdict, memory = make_decision(seen, ZERO, SINCE, NOW, "g")
        assert verdict.action is ScalingAction.HOLD
        assert memory.idle_since is None
        assert make_decision(STILL.seen(), ZERO, memory, NOW + 10, "g")[1].idle_since == NOW + 10
    away = replace(STILL.seen(), group=ObservedGroup())
    assert make_decision(away, ZERO, SINCE, NOW, "g")[1].idle_since is None


def test_several_replicas_go_one_after_the_other_and_the_last_after_them() -> None:
    """Idle time does not spare the windows and steps above one replica."""
    world = World({"a": {0: 0.0}, "b": {1: 0.0}})
    verdict = judge(world, ZERO, SINCE)
    assert verdict.action is ScalingAction.DRAIN
    assert verdict.plan is not None
    assert verdict.plan.replicas == 1


NONE = replace(PLAN, replicas=0)


def nobody(first: PartitionLoad) -> Observation:
    """No replica runs; one partition is known to be idle, the other is as given."""
    speeds = {TopicPartition("t", 0): first, TopicPartition("t", 1): speed(0.0, 0)}
    return Observation(speeds, ObservedGroup(GroupState.EMPTY), (), NONE)


@pytest.mark.parametrize(
    "stirring", [speed(0.0, 1), PartitionLoad(0.3, 0.1, 0.0, 0), PartitionLoad(None, 0.1)]
)
def test_the_first_turn_that_sees_a_record_starts_one(stirring: PartitionLoad) -> None:
    """From zero neither window nor cooldown nor percentage is waited for."""
    slow = ScalingRules((ScalingPolicy(10, 600, is_percent=True),), stabilization_window=600)
    memory = DecisionMemory(last_change=NOW - 1)
    verdict = judge(nobody(stirring), replace(ZERO, scale_up=slow), memory)
    assert (verdict.action, verdict.replicas_to_start) == (ScalingAction.SCALE_UP, 1)


@pytest.mark.parametrize("quiet", [speed(0.0, 0), PartitionLoad(), PartitionLoad(0.0, 0.0)])
def test_zero_stays_zero_until_a_record_is_seen(quiet: PartitionLoad) -> None:
    """Neither idleness nor what is not known starts anybody; nothing is drained again."""
    assert judge(nobody(quiet), ZERO).action is ScalingAction.HOLD


def test_a_record_on_the_way_to_zero_keeps_the_last_one() -> None:
    """Written before the last one was told to end, it undrains it."""
    plan = replace(PLAN, replicas=0, draining=("a",))
    verdict = judge(replace(STILL, plan=plan, waits={0: 1.0}), ZERO, SINCE)
    assert verdict.action is ScalingAction.CANCEL_DRAIN
    unsure = replace(STILL, reads={"a": {0: 0.0, 1: None}}, plan=plan)
    assert judge(unsure, ZERO, SINCE).action is ScalingAction.HOLD


BEHIND = World(
    {"a": {0: 30, 1: 30, 2: 30}, "b": {3: 30, 4: 30, 5: 30}},
    waits=dict.fromkeys(range(6), 5000.0),
    consumed=dict.fromkeys(range(6), 25.0),
)


def wider(consumed: float) -> World:
    """The same group after two more have joined, each partition consumed at this speed."""
    reads = {"a": {0: 30.0, 1: 30.0}, "b": {2: 30.0, 3: 30.0}, "c": {4: 30.0}, "d": {5: 30.0}}
    consumption = dict.fromkeys(range(6), consumed)
    return World(reads, BEHIND.waits, consumption, plan=replace(PLAN, replicas=4))


GREW = replace(
    CALM, scale_up_evaluation=ScaleUpEvaluation(NOW - 100, 2, 150.0, joined_at=NOW - 61, joined_replicas=4)
)


def test_growing_remembers_what_was_consumed_before() -> None:
    """A scale-out of a group that is behind is looked at later; of one that is not, never."""
    memory = record_execution(judge(BEHIND), BEHIND.seen(), CALM, NOW)
    assert memory.scale_up_evaluation == ScaleUpEvaluation(NOW, 2, 150.0)
    assert record_execution(judge(BUSY), BUSY.seen(), CALM, NOW).scale_up_evaluation is None


def test_growth_without_effect_stops_growing_and_says_so() -> None:
    """Twice the consumers read the same: nothing is added, until it is tried again."""
    verdict, memory = make_decision(wider(25.0).seen(), POLICY, GREW, NOW, "g")
    assert verdict.action is ScalingAction.HOLD
    for part in ("4 consumers read no more than 2 (", "150 B/s before", "retried in 600 s"):
        assert part in verdict.format_line()
    assert memory.scale_up_suspension is not None
    assert judge(wider(25.0), POLICY, memory, NOW + 599).action is ScalingAction.HOLD
    assert judge(wider(25.0), POLICY, memory, NOW + 601).action is ScalingAction.SCALE_UP


@pytest.mark.parametrize(
    ("world", "memory"),
    [
        (wider(40.0), GREW),
        (
            wider(25.0),
            replace(
                GREW,
                scale_up_evaluation=ScaleUpEvaluation(
                    NOW - 100, 2, 150.0, joined_at=NOW - 59, joined_replicas=4
                ),
            ),
        ),
        (replace(wider(25.0), consumed={}), GREW),
    ],
)
def test_growth_that_helped_or_cannot_be_judged_goes_on(world: World, memory: DecisionMemory) -> None:
    """More is consumed, the window is not over, or consumption is not known."""
    assert judge(world, POLICY, memory).action is ScalingAction.SCALE_UP


def test_a_stalled_group_still_gets_its_minimum() -> None:
    """Limits stand above the guard."""
    verdict, memory = make_decision(wider(25.0).seen(), POLICY, GREW, NOW, "g")
    assert verdict.action is ScalingAction.HOLD
    assert judge(wider(25.0), replace(POLICY, min_replicas=5), memory).replicas_to_start == 1


def growth(seen: Observation, memory: DecisionMemory) -> ScaleUpEvaluation:
    """What is remembered of a growth after a turn."""
    kept = make_decision(seen, POLICY, memory, NOW, "g")[1].scale_up_evaluation
    assert kept is not None
    return kept


def test_growth_is_judged_from_when_the_new_ones_have_joined() -> None:
    """Slow pods make the comparison later, not unfair."""
    seen, begun = (
        wider(25.0).seen(),
        replace(CALM, scale_up_evaluation=ScaleUpEvaluation(NOW - 100, 2, 150.0)),
    )
    young = replace(
        seen,
        group=ObservedGroup(GroupState.STABLE, seen.group.members[:3]),
        replicas=tuple(ReplicaInstance(n, alive=True, started_at=NOW - 9) for n in "abcd"),
    )
    assert growth(young, begun).joined_replicas == 0
    assert growth(seen, begun) == ScaleUpEvaluation(NOW - 100, 2, 150.0, NOW, 4)


def test_growth_by_little_is_not_judged_before_there_is_more() -> None:
    """One consumer more than three does not show above the noise of commits."""
    begun = replace(CALM, scale_up_evaluation=ScaleUpEvaluation(NOW - 100, 3, 150.0, NOW - 61, 4))
    verdict, memory = make_decision(wider(25.0).seen(), POLICY, begun, NOW, "g")
    assert (verdict.action, memory.scale_up_suspension) == (ScalingAction.SCALE_UP, None)
    assert memory.scale_up_evaluation == ScaleUpEvaluation(NOW - 100, 3, 150.0, NOW, 4)
    late = make_decision(wider(25.0).seen(), POLICY, memory, NOW + 300, "g")[1]
    assert late.scale_up_evaluation is None


def counts(sink: float, turns: int, policy: AutoscalingPolicy) -> list[int]:
    """Replicas by turn, ten seconds each, of a group whose sink takes no more than so much.

    Twelve partitions, 25 B/s each, are shared out evenly; the group begins with two consumers.
    """
    plan, memory, waiting, found = PLAN, CALM, 0.0, list[int]()
    for turn in range(turns):
        names, now = [f"w{n}" for n in range(plan.replicas)], NOW + 10 * turn
        total = min(sink, 100.0 * len(names))
        waiting = max(0.0, waiting + 10 * (300 - total))
        reads = {w: dict.fromkeys(range(n, 12, len(names)), 25.0) for n, w in enumerate(names)}
        each = range(12)
        world = World(reads, dict.fromkeys(each, waiting / 12), dict.fromkeys(each, total / 12), plan)
        seen = world.seen()
        verdict, memory = make_decision(seen, policy, memory, now, "g")
        memory = record_execution(verdict, seen, memory, now)
        plan = replace(verdict.plan or plan, draining=())
        found.append(plan.replicas)
    return found


def test_a_slow_sink_does_not_drive_replicas_to_the_maximum() -> None:
    """Growing stops after the steps of one window, is tried again, and goes on where it helps."""
    policy = replace(
        POLICY, max_replicas=12, scale_up=ScalingRules((ScalingPolicy(1),)), scale_up_evaluation_retry=600
    )
    slow = counts(150.0, 100, policy)
    assert slow[20] == slow[70] <= 6
    assert slow[70] < slow[99] < 12
    assert counts(150.0, 60, replace(policy, scale_up_evaluation_window=0))[-1] == 12
    assert set(counts(1200.0, 30, policy)) == {3}


AGES = (20.0,) * 50 + (90.0,) * 50


def test_a_goal_that_is_missed_shortens_batches_and_then_scales_what_is_late() -> None:
    """Batches come first, and move nothing; what is late all the same asks for more consumers."""
    policy = replace(POLICY, freshness_slo=30.0, catch_up=CatchUpPolicy(30.0, 27.0))
    memory = replace(CALM, age_samples=tuple(AgeSample(NOW - 9 * n, AGES) for n in (1, 2, 3)))
    old = World({"a": {0: 30, 1: 30}, "b": {2: 30}}, waits=dict.fromkeys(range(3), 2700.0))
    seen = replace(
        old.seen(),
        write_rates=add_needed_rates(old.seen().write_rates, policy.catch_up, policy.usable_capacity),
    )
    verdict = judge(seen, policy, memory)
    assert verdict.action is ScalingAction.ADOPT
    assert verdict.plan is not None
    assert seen.plan is not None
    assert verdict.plan.epoch == seen.plan.epoch
    assert verdict.plan.batch_max_age_s == pytest.approx(7.0, abs=0.5)
    seen = replace(seen, plan=verdict.plan)
    verdict = judge(seen, policy, memory)
    assert verdict.action is ScalingAction.SCALE_UP
    assert verdict.plan is not None
    assert verdict.plan.batch_max_age_s == seen.plan.batch_max_age_s
    assert "the SLO 30 s: batches take" in verdict.format_line()
    assert verdict.metrics.max_batch_s == pytest.approx(7.0, abs=0.5)
    assert "the SLO 30 s" not in judge(seen, memory=memory).format_line()
    unasked = judge(seen, memory=memory).plan
    assert unasked is not None
    assert unasked.batch_max_age_s is None


LEARN = replace(POLICY, learned_capacity_bounds=CapacityBounds(0.5, 2.0))
ALL = frozenset(TopicPartition("t", n) for n in range(3))


def learned(rate: float, **more: Any) -> Mapping[str, float]:
    """What is learned of a worker that was busy for the whole window."""
    world = replace(BEHIND, consumed={**BEHIND.consumed, 0: rate, 1: rate, 2: rate}, **more)
    memory = replace(CALM, saturated={"a": SaturatedConsumer(NOW - 60, ALL)})
    return make_decision(world.seen(), LEARN, memory, NOW, "g")[1].learned_capacities


def test_a_capacity_is_learned_while_a_consumer_is_behind() -> None:
    """What it consumed over a window in which all of its partitions were behind."""
    assert learned(30.0) == {"a": 90.0}
    assert learned(10.0) == {"a": 50.0}
    assert learned(400.0) == {"a": 200.0}
    assert learned(40.0, waits={**BEHIND.waits, 1: 0.0}) == {}


def test_a_change_of_partitions_begins_the_learning_anew() -> None:
    """What a consumer read before says nothing of what it reads now."""
    memory = replace(CALM, saturated={"a": SaturatedConsumer(NOW - 60, frozenset())})
    after = make_decision(BEHIND.seen(), LEARN, memory, NOW, "g")[1]
    assert after.learned_capacities == {}
    assert after.saturated["a"] == SaturatedConsumer(NOW, ALL)


def test_learned_capacities_are_published_and_counted_with() -> None:
    """One that differs by a fifth gets a new epoch; the others keep what was configured."""
    world = World({"a": {0: 40, 1: 30}, "b": {2: 30}}, plan=PLAN)
    memory = DecisionMemory(
        (TimestampedRecommendation(NOW - 50, 2),),
        last_change=NOW - 500,
        learned_capacities={"a": 60.0, "b": 110.0},
    )
    verdict = judge(world, LEARN, memory)
    assert verdict.action is ScalingAction.PLACE
    assert verdict.plan is not None
    assert (verdict.plan.epoch, verdict.plan.capacities) == (8, {"a": 60.0, "b": 110.0})
    assert "a 60 B/s" in verdict.format_line()
    world = replace(world, plan=verdict.plan)
    assert judge(world, LEARN, memory).metrics.max_fill == pytest.approx(70 / 60)
    assert judge(world, POLICY, memory).action is ScalingAction.ANNOUNCE


def test_false_lag_from_expired_offsets_does_not_drive_replicas_up() -> None:
    """A backlog that is not known weighs nothing: only what is written counts."""
    seen = QUIET.seen()
    expired = {p: PartitionLoad(s.bytes_per_s, s.records_per_s) for p, s in seen.write_rates.items()}
    assert judge(replace(seen, write_rates=expired)).action is not ScalingAction.SCALE_UP


def test_a_transactional_tail_drives_nothing_up_and_keeps_one() -> None:
    """One marker per partition that nobody can read adds no consumer, and none goes to zero."""
    tails = replace(STILL, waits={0: 1.0, 1: 1.0})
    for policy in (POLICY, ZERO):
        verdict = judge(tails, policy, SINCE)
        assert (verdict.action, verdict.metrics.desired_replicas) == (ScalingAction.HOLD, 1)


def test_a_pod_that_never_comes_does_not_bring_another_one() -> None:
    """A planned replica that does not join is counted as it is, neither doubled nor forgotten."""
    world = World({"a": {0: 50, 1: 30}})
    pending = ReplicaInstance("b", alive=True, started_at=NOW - 5000)
    seen = replace(world.seen(), replicas=(*(world.seen().replicas or ()), pending))
    assert (
        judge(seen, memory=replace(CALM, recommendations=(TimestampedRecommendation(NOW - 50, 2),))).action
        is ScalingAction.HOLD
    )
    verdict = judge(seen)
    assert verdict.plan is not None
    assert verdict.plan.draining == ("b",)
