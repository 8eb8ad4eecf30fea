"""Counts that somebody else set at the target: adopted, and replicas in an order."""

from dataclasses import replace

import pytest

from trimtab.assignor.model import PlacementPolicy, TopicPartition
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.decision.decide import make_decision, record_execution
from trimtab.sidecar.decision.decision import ScalingAction, ScalingDecision
from trimtab.sidecar.decision.hpa_behavior import ScalingPolicy, ScalingRules
from trimtab.sidecar.decision.scaling_policy import AutoscalingPolicy, DecisionMemory
from trimtab.sidecar.measurement.observation import (
    ExternalScaling,
    GroupState,
    Observation,
    ObservedGroup,
    ObservedMember,
    ReplicaInstance,
    RequestedReplicas,
)

NOW = 1_700_000_000.0
MBF = "mbf"


def partitions(count: int) -> list[TopicPartition]:
    return [TopicPartition("t", n) for n in range(count)]


def observed(
    *names: str,
    plan: GroupPlan,
    outside: ExternalScaling | None = None,
    speed: float = 30.0,
    idle: tuple[str, ...] = (),
    ordered: bool = False,
) -> Observation:
    """A group at rest in which each name but the idle ones reads one partition."""
    busy = [n for n in names if n not in idle]
    owned = dict(zip(busy, partitions(len(busy)), strict=True))
    readers = tuple(ObservedMember(f"id-{n}", n, frozenset({owned[n]} if n in owned else ())) for n in names)
    replicas = tuple(
        ReplicaInstance(n, alive=True, started_at=NOW - 500, ordinal=i if ordered else 0)
        for i, n in enumerate(names)
    )
    return Observation(
        {p: PartitionLoad(bytes_per_s=speed) for p in owned.values()},
        ObservedGroup(GroupState.STABLE, readers),
        replicas,
        plan,
        external_scaling=outside or ExternalScaling(),
    )


def policy() -> AutoscalingPolicy:
    return AutoscalingPolicy(placement=PlacementPolicy(MBF, 100.0, 1.0, consolidate=True))


def plan(replicas: int, draining: tuple[str, ...] = ()) -> GroupPlan:
    return GroupPlan("g", 1, NOW - 100, replicas, MBF, 100.0, 1.0, draining)


def by_others(count: int, *, at: float = NOW - 5) -> ExternalScaling:
    return ExternalScaling(RequestedReplicas(count, "kubectl", at, is_ours=False))


def test_a_foreign_count_is_followed() -> None:
    """The plan takes it over and says whose it is; windows and cooldown begin with it."""
    seen = observed("a", "b", "c", plan=plan(2), outside=by_others(3))
    verdict, memory = make_decision(seen, policy(), DecisionMemory(), NOW)
    assert verdict.action is ScalingAction.ADOPT_EXTERNAL
    assert verdict.plan is not None
    assert (verdict.plan.replicas, verdict.plan.epoch) == (3, 1)
    assert "kubectl set 3 replicas" in verdict.reasons[0]
    after = record_execution(verdict, seen, memory, NOW)
    assert [w.replicas for w in after.recommendations] == [3]
    assert after.last_change == NOW


def test_what_was_followed_is_left_in_peace() -> None:
    """The window of scaling in begins with the foreign count, whatever was wished for before."""
    seen = observed("a", "b", "c", plan=plan(2), outside=by_others(3), speed=5.0)
    verdict, memory = make_decision(seen, policy(), DecisionMemory(), NOW)
    memory = record_execution(verdict, seen, memory, NOW)
    assert verdict.plan is not None
    later = observed("a", "b", "c", plan=verdict.plan, outside=by_others(3), speed=5.0)
    verdict, _ = make_decision(later, policy(), memory, NOW + 60)
    assert verdict.action is ScalingAction.HOLD


def test_a_drain_ends_where_somebody_lowers_the_count() -> None:
    """Whom the controller took is not known, so whoever drains stays, and reads again."""
    seen = observed("a", "b", plan=plan(2, ("b",)), outside=by_others(2))
    verdict, _ = make_decision(seen, policy(), DecisionMemory(), NOW)
    assert verdict.action is ScalingAction.ADOPT_EXTERNAL
    assert verdict.plan is not None
    assert (verdict.plan.replicas, verdict.plan.draining, verdict.plan.epoch) == (2, (), 2)


def test_zero_is_a_pause() -> None:
    """Where somebody else set zero, whenever it was, nothing is started."""
    off = by_others(0, at=NOW - 9999)
    verdict, _ = make_decision(observed(plan=plan(2), outside=off), policy(), DecisionMemory(), NOW)
    assert verdict.action is ScalingAction.HOLD
    assert "kubectl set 0 replicas" in verdict.reasons[0]


@pytest.mark.parametrize(("planned", "action"), [(0, ScalingAction.SCALE_UP), (2, ScalingAction.HOLD)])
def test_a_zero_that_nobody_is_known_to_have_set_is_ours_where_it_is_planned(
    planned: int, action: ScalingAction
) -> None:
    """The API server forgets who scaled to zero; what the plan did not come to, others set."""
    off = ExternalScaling(
        RequestedReplicas(0, "somebody", NOW - 9999, is_ours=False, is_requester_known=False)
    )
    seen = observed(plan=plan(planned), outside=off)
    seen = replace(seen, write_rates={TopicPartition("t", 0): PartitionLoad(bytes_per_s=50.0)})
    verdict, _ = make_decision(seen, policy(), DecisionMemory(), NOW)
    assert verdict.action is action
    assert ("somebody set 0 replicas" in verdict.reasons[0]) is bool(planned)


def test_what_is_older_than_the_plan_is_not_foreign() -> None:
    """A plan that was published and not yet carried out is carried out."""
    seen = observed("a", plan=plan(3), outside=by_others(1, at=NOW - 200))
    verdict, _ = make_decision(seen, policy(), DecisionMemory(), NOW)
    assert (verdict.action, verdict.replicas_to_start) == (ScalingAction.REPLACE, 2)


def test_what_the_target_mends_is_not_mended_twice() -> None:
    """Where as many as planned are asked for already, a death is left to the target."""
    ours = ExternalScaling(RequestedReplicas(3, "trimtab", NOW - 50, is_ours=True))
    verdict, _ = make_decision(
        observed("a", "b", plan=plan(3), outside=ours), policy(), DecisionMemory(), NOW
    )
    assert verdict.action is ScalingAction.HOLD
    assert "the target is starting the others" in verdict.reasons


def withheld(planned: int, speed: float, after: float) -> tuple[ScalingDecision, DecisionMemory]:
    """Two of the planned replicas run, the target was asked for all of them and starts no more."""
    ours = ExternalScaling(RequestedReplicas(planned, "KEDA", NOW - 100, is_ours=True))
    seen = observed("a", "b", plan=plan(planned), outside=ours, speed=speed)
    _, memory = make_decision(seen, policy(), DecisionMemory(), NOW)
    return make_decision(seen, policy(), memory, NOW + after)


def test_what_the_target_withholds_is_not_waited_for() -> None:
    """Beyond the grace of a start it is said whose limit it may be, and other rules go on."""
    before, _ = withheld(5, 240.0, 119)
    assert (before.action, before.reasons[0]) == (ScalingAction.HOLD, "2 of 5 running")
    verdict, _ = withheld(5, 240.0, 121)
    assert "the target is starting the others" not in verdict.reasons
    (said,) = [r for r in verdict.reasons if "maxReplicaCount" in r]
    assert said.startswith("2 of 5 running, the target has not started the others within 120 s")


def test_a_count_that_is_withheld_is_given_up_when_it_is_wanted_no_more() -> None:
    """The plan comes down to what is wanted or exists, and nobody is drained for it."""
    quick = replace(policy(), scale_down=ScalingRules((ScalingPolicy(1),), stabilization_window=60.0))
    ours = ExternalScaling(RequestedReplicas(5, "KEDA", NOW - 100, is_ours=True))
    seen = observed("a", "b", plan=plan(5), outside=ours)
    _, memory = make_decision(seen, quick, DecisionMemory(), NOW)
    verdict, _ = make_decision(seen, quick, memory, NOW + 121)
    assert verdict.action is ScalingAction.ADOPT
    assert verdict.plan is not None
    assert (verdict.plan.replicas, verdict.plan.draining, verdict.replicas_to_stop) == (2, (), ())


def test_the_wait_for_a_start_begins_anew_with_each_count() -> None:
    """More that are asked for later have a grace of their own; those that came end it."""
    _, memory = withheld(5, 240.0, 121)
    assert memory.short_since == NOW
    assert memory.record_scaling(NOW + 130, 1).short_since is None
    seen = observed("a", "b", plan=plan(2))
    _, memory = make_decision(seen, policy(), memory, NOW + 130)
    assert memory.short_since is None


def test_a_rollouts_surplus_is_not_adopted() -> None:
    """A pod more than was asked for, as a rollout has it, is no new count."""
    ours = ExternalScaling(RequestedReplicas(2, "trimtab", NOW - 50, is_ours=True))
    seen = observed("a", "b", "c", plan=plan(2), outside=ours)
    verdict, _ = make_decision(seen, policy(), DecisionMemory(), NOW)
    assert verdict.action is not ScalingAction.ADOPT


def test_the_last_is_drained_where_the_target_has_an_order() -> None:
    """Only the highest ordinal may be drained, though another one would cost less to move."""
    seen = observed("a", "b", "c", plan=plan(3), speed=5.0, idle=("a",), ordered=True)
    long_ago = DecisionMemory(recommendations=())
    relaxed = AutoscalingPolicy(placement=PlacementPolicy(MBF, 100.0, 1.0, consolidate=True), max_replicas=2)
    verdict, _ = make_decision(seen, relaxed, long_ago, NOW)
    assert verdict.plan is not None
    assert verdict.plan.draining == ("c",)


def test_of_two_drained_the_last_goes_first() -> None:
    """One that is drained waits while a later one still reads."""
    drains = plan(1, ("b", "c"))
    seen = observed("a", "b", "c", plan=drains, idle=("b",), ordered=True)
    verdict, _ = make_decision(seen, policy(), DecisionMemory(), NOW)
    assert verdict.action is not ScalingAction.STOP
    seen = observed("a", "b", "c", plan=drains, idle=("c", "b"), ordered=True)
    verdict, _ = make_decision(seen, policy(), DecisionMemory(), NOW)
    assert verdict.replicas_to_stop == ("c", "b")
