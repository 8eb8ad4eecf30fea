"""Counts set by others at the target are adopted; targets may remove replicas in order."""

from dataclasses import replace

import pytest

from support.policies import build_policy
from trimtab.assignor.model import PlacementPolicy, TopicPartition
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.decision.decide import make_decision, record_execution
from trimtab.sidecar.decision.decision import ScalingAction, ScalingDecision
from trimtab.sidecar.decision.decision_memory import DecisionMemory
from trimtab.sidecar.model.autoscaling_policy import AutoscalingPolicy
from trimtab.sidecar.model.hpa_behavior import ScalingPolicy, ScalingRules
from trimtab.sidecar.model.observation import (
    GroupState,
    Observation,
    ObservedGroup,
    ObservedMember,
    ReplicaInstance,
    RequestedReplicas,
    TargetStatus,
)

NOW = 1_700_000_000.0
MBF = "mbf"


def partitions(count: int) -> list[TopicPartition]:
    return [TopicPartition("t", n) for n in range(count)]


def observed(
    *names: str,
    plan: GroupPlan,
    outside: TargetStatus | None = None,
    rate: float = 30.0,
    idle: tuple[str, ...] = (),
    ordered: bool = False,
) -> Observation:
    """Return a stable group in which each replica except `idle` ones owns one partition."""
    busy = [n for n in names if n not in idle]
    owned = dict(zip(busy, partitions(len(busy)), strict=True))
    readers = tuple(ObservedMember(f"id-{n}", n, frozenset({owned[n]} if n in owned else ())) for n in names)
    replicas = tuple(
        ReplicaInstance(n, alive=True, started_at=NOW - 500, ordinal=i if ordered else 0)
        for i, n in enumerate(names)
    )
    return Observation(
        {p: PartitionLoad(bytes_per_s=rate) for p in owned.values()},
        ObservedGroup(GroupState.STABLE, readers),
        replicas,
        plan,
        target_status=outside or TargetStatus(),
    )


def policy() -> AutoscalingPolicy:
    return build_policy(placement=PlacementPolicy(MBF, 100.0, 1.0, consolidate=True))


def plan(replicas: int, draining: tuple[str, ...] = ()) -> GroupPlan:
    return GroupPlan("g", 1, NOW - 100, replicas, MBF, 100.0, 1.0, draining)


def by_others(count: int, *, at: float = NOW - 5) -> TargetStatus:
    return TargetStatus(RequestedReplicas(count, "kubectl", at, is_ours=False))


def test_an_external_count_is_adopted() -> None:
    """The plan takes the count and names the requester; windows and cooldown restart."""
    seen = observed("a", "b", "c", plan=plan(2), outside=by_others(3))
    decision, memory = make_decision(seen, policy(), DecisionMemory(), NOW)
    assert decision.action is ScalingAction.ADOPT_EXTERNAL
    assert decision.plan is not None
    assert (decision.plan.replicas, decision.plan.epoch) == (3, 1)
    assert "kubectl set 3 replicas" in decision.reasons[0]
    after = record_execution(decision, seen, memory, NOW)
    assert [w.replicas for w in after.recommendations] == [3]
    assert after.last_change == NOW


def test_an_adopted_count_restarts_the_window() -> None:
    """The scale-down window starts with the external count and drops older recommendations."""
    seen = observed("a", "b", "c", plan=plan(2), outside=by_others(3), rate=5.0)
    decision, memory = make_decision(seen, policy(), DecisionMemory(), NOW)
    memory = record_execution(decision, seen, memory, NOW)
    assert decision.plan is not None
    later = observed("a", "b", "c", plan=decision.plan, outside=by_others(3), rate=5.0)
    decision, _ = make_decision(later, policy(), memory, NOW + 60)
    assert decision.action is ScalingAction.HOLD


def test_a_lowered_external_count_ends_all_drains() -> None:
    """The controller may have removed any pod, so draining replicas stay and get partitions again."""
    seen = observed("a", "b", plan=plan(2, ("b",)), outside=by_others(2))
    decision, _ = make_decision(seen, policy(), DecisionMemory(), NOW)
    assert decision.action is ScalingAction.ADOPT_EXTERNAL
    assert decision.plan is not None
    assert (decision.plan.replicas, decision.plan.draining, decision.plan.epoch) == (2, (), 2)


def test_an_external_zero_is_a_pause() -> None:
    """After an external zero, whenever it was set, nothing starts."""
    off = by_others(0, at=NOW - 9999)
    decision, _ = make_decision(observed(plan=plan(2), outside=off), policy(), DecisionMemory(), NOW)
    assert decision.action is ScalingAction.HOLD
    assert "kubectl set 0 replicas" in decision.reasons[0]


@pytest.mark.parametrize(("planned", "action"), [(0, ScalingAction.SCALE_UP), (2, ScalingAction.HOLD)])
def test_a_zero_without_requester_is_ours_if_planned(planned: int, action: ScalingAction) -> None:
    """The API server keeps no requester of a zero; it is external unless the plan has zero replicas."""
    off = TargetStatus(RequestedReplicas(0, "somebody", NOW - 9999, is_ours=False, is_requester_known=False))
    seen = observed(plan=plan(planned), outside=off)
    seen = replace(seen, write_rates={TopicPartition("t", 0): PartitionLoad(bytes_per_s=50.0)})
    decision, _ = make_decision(seen, policy(), DecisionMemory(), NOW)
    assert decision.action is action
    assert ("somebody set 0 replicas" in decision.reasons[0]) is bool(planned)


def test_a_count_older_than_the_plan_is_not_external() -> None:
    """A published plan that was not executed yet is executed."""
    seen = observed("a", plan=plan(3), outside=by_others(1, at=NOW - 200))
    decision, _ = make_decision(seen, policy(), DecisionMemory(), NOW)
    assert (decision.action, decision.replicas_to_start) == (ScalingAction.REPLACE, 2)


def test_a_replica_the_target_replaces_is_not_replaced_twice() -> None:
    """If the target already requests the planned count, a dead replica is left to it."""
    ours = TargetStatus(RequestedReplicas(3, "trimtab", NOW - 50, is_ours=True))
    decision, _ = make_decision(
        observed("a", "b", plan=plan(3), outside=ours), policy(), DecisionMemory(), NOW
    )
    assert decision.action is ScalingAction.HOLD
    assert "the target is starting the others" in decision.reasons


def withheld(planned: int, rate: float, after: float) -> tuple[ScalingDecision, DecisionMemory]:
    """Return a group with two of the planned replicas; the target was asked for all and starts no more."""
    ours = TargetStatus(RequestedReplicas(planned, "KEDA", NOW - 100, is_ours=True))
    seen = observed("a", "b", plan=plan(planned), outside=ours, rate=rate)
    _, memory = make_decision(seen, policy(), DecisionMemory(), NOW)
    return make_decision(seen, policy(), memory, NOW + after)


def test_a_shortfall_is_reported_after_the_startup_timeout() -> None:
    """After the timeout other rules apply."""
    before, _ = withheld(5, 240.0, 119)
    assert (before.action, before.reasons[0]) == (ScalingAction.HOLD, "2 of 5 running")
    decision, _ = withheld(5, 240.0, 121)
    assert "the target is starting the others" not in decision.reasons


def test_an_unreachable_count_is_lowered_when_fewer_suffice() -> None:
    """The plan falls to the desired or running count, and no replica is drained."""
    quick = replace(policy(), scale_down=ScalingRules((ScalingPolicy(1),), stabilization_window=60.0))
    ours = TargetStatus(RequestedReplicas(5, "KEDA", NOW - 100, is_ours=True))
    seen = observed("a", "b", plan=plan(5), outside=ours)
    _, memory = make_decision(seen, quick, DecisionMemory(), NOW)
    decision, _ = make_decision(seen, quick, memory, NOW + 121)
    assert decision.action is ScalingAction.ADOPT
    assert decision.plan is not None
    assert (decision.plan.replicas, decision.plan.draining, decision.replicas_to_stop) == (2, (), ())


def test_the_startup_timeout_restarts_with_each_count() -> None:
    """A later scale-up has its own timeout; a start that completes ends it."""
    _, memory = withheld(5, 240.0, 121)
    assert memory.short_since == NOW
    assert memory.record_scaling(NOW + 130, 1).short_since is None
    seen = observed("a", "b", plan=plan(2))
    _, memory = make_decision(seen, policy(), memory, NOW + 130)
    assert memory.short_since is None


def test_a_rollouts_surplus_is_not_adopted() -> None:
    """The surge pod of a rollout does not change the plan."""
    ours = TargetStatus(RequestedReplicas(2, "trimtab", NOW - 50, is_ours=True))
    seen = observed("a", "b", "c", plan=plan(2), outside=ours)
    decision, _ = make_decision(seen, policy(), DecisionMemory(), NOW)
    assert decision.action is not ScalingAction.ADOPT


def test_only_the_highest_ordinal_is_drained() -> None:
    """With an ordered target the highest ordinal is drained, though another would cost less to move."""
    seen = observed("a", "b", "c", plan=plan(3), rate=5.0, idle=("a",), ordered=True)
    long_ago = DecisionMemory(recommendations=())
    relaxed = build_policy(placement=PlacementPolicy(MBF, 100.0, 1.0, consolidate=True), max_replicas=2)
    decision, _ = make_decision(seen, relaxed, long_ago, NOW)
    assert decision.plan is not None
    assert decision.plan.draining == ("c",)


def test_of_two_drained_replicas_the_highest_ordinal_stops_first() -> None:
    """A drained replica waits while a higher ordinal still owns partitions."""
    drains = plan(1, ("b", "c"))
    seen = observed("a", "b", "c", plan=drains, idle=("b",), ordered=True)
    decision, _ = make_decision(seen, policy(), DecisionMemory(), NOW)
    assert decision.action is not ScalingAction.STOP
    seen = observed("a", "b", "c", plan=drains, idle=("c", "b"), ordered=True)
    decision, _ = make_decision(seen, policy(), DecisionMemory(), NOW)
    assert decision.replicas_to_stop == ("c", "b")
