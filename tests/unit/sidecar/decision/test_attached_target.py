"""The target of a plan: which decisions carry one, what it names, and that the figures shown are its own."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from support.policies import build_policy
from trimtab.assignor.model import PlacementPolicy, TopicPartition
from trimtab.assignor.rebalance.plan_follower import PlanKey
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.plan_target import PlanTarget
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.decision.decide import make_decision, record_execution
from trimtab.sidecar.decision.decision import ScalingAction, ScalingDecision
from trimtab.sidecar.decision.decision_memory import DecisionMemory, TimestampedRecommendation
from trimtab.sidecar.decision.group_model import build_group_model
from trimtab.sidecar.decision.scale_in_selection import select_victims
from trimtab.sidecar.model.autoscaling_policy import AutoscalingPolicy, CapacityBounds
from trimtab.sidecar.model.hpa_behavior import FallbackBehavior, ScalingPolicy, ScalingRules
from trimtab.sidecar.model.observation import (
    GroupState,
    Observation,
    ObservedGroup,
    ObservedMember,
    ReplicaInstance,
    RequestedReplicas,
    TargetStatus,
)

NOW = 10_000.0
POLICY = build_policy(
    placement=PlacementPolicy("steady", 100.0, 0.9, consolidate=True),
    max_replicas=9,
    scale_up=ScalingRules((ScalingPolicy(9),)),
    scale_down=ScalingRules((ScalingPolicy(1),), stabilization_window=60),
    cooldown=30,
)
REVISION = int(NOW) - 400
PLAN = GroupPlan("g", 7, NOW - 500, 2, "steady", 100.0, 0.9)
SETTLED = DecisionMemory((TimestampedRecommendation(NOW - 50, 1),), last_change=NOW - 500)


def observe(
    owned: Mapping[str, Mapping[int, float | None]],
    plan: GroupPlan = PLAN,
    running: tuple[str, ...] | None = None,
    capacities: Mapping[str, float] | None = None,
    topics: Mapping[str, frozenset[str]] | None = None,
) -> Observation:
    """Return a stable group of these owners; the loads are known but for None."""
    rates = {TopicPartition("t", n): rate for items in owned.values() for n, rate in items.items()}
    members = tuple(
        ObservedMember(
            f"id-{name}",
            name,
            frozenset(TopicPartition("t", n) for n in items),
            capacity=(capacities or {}).get(name),
            topics=(topics or {}).get(name),
        )
        for name, items in owned.items()
    )
    return Observation(
        {p: PartitionLoad(rate, rate, 0.0, 0) for p, rate in rates.items()},
        ObservedGroup(GroupState.STABLE, members),
        tuple(ReplicaInstance(n, alive=True, started_at=NOW - 500) for n in running or sorted(owned)),
        plan,
    )


def decide(
    seen: Observation, policy: AutoscalingPolicy = POLICY, memory: DecisionMemory = SETTLED
) -> ScalingDecision:
    return make_decision(seen, policy, memory, NOW, "g")[0]


def list_owners(target: PlanTarget) -> dict[int, str]:
    """Return the consumer of each partition of the only topic; places are "+1", "+2" and so on."""
    names = [*target.consumers, *(f"+{place + 1}" for place in range(target.places))]
    return {n: names[number - 1] for n, number in enumerate(target.partitions["t"])}


def compute_fills(target: PlanTarget, seen: Observation, capacities: Mapping[str, float]) -> dict[str, float]:
    fills: dict[str, float] = {}
    for number, name in list_owners(target).items():
        rate = seen.write_rates[TopicPartition("t", number)].weight or 0.0
        fills[name] = fills.get(name, 0.0) + rate / capacities.get(name, 100.0)
    return fills


EVEN = {"a": {0: 40.0, 1: 40.0}, "b": {2: 40.0, 3: 40.0}}
BUSY = {"a": {0: 60.0, 1: 60.0, 2: 60.0}, "b": {3: 60.0, 4: 60.0}}
IDLE = {"a": {0: 10.0, 1: 10.0}, "b": {2: 5.0, 3: 5.0}}
UNEVEN = {"a": {0: 40.0, 1: 30.0, 2: 45.0}, "b": {3: 30.0}}
DRAINING = observe({"a": {0: 10.0}, "b": {1: 10.0}, "c": {2: 10.0}}, replace(PLAN, draining=("c",)))
MORE_CAPACITY = replace(POLICY, placement=replace(POLICY.placement, capacity=120.0))
LEARNED = replace(SETTLED, learned_capacities={"a": 60.0})
LEARNING = replace(POLICY, learned_capacity_bounds=CapacityBounds(0.5, 2.0))


def ask(seen: Observation, count: int) -> Observation:
    return replace(
        seen, target_status=TargetStatus(RequestedReplicas(count, "kubectl", NOW - 5, is_ours=False))
    )


@pytest.mark.parametrize(
    ("seen", "policy", "memory", "action"),
    [
        (observe(EVEN), MORE_CAPACITY, SETTLED, ScalingAction.ANNOUNCE),
        (observe(BUSY), POLICY, SETTLED, ScalingAction.SCALE_UP),
        (observe(IDLE), POLICY, SETTLED, ScalingAction.DRAIN),
        (observe(UNEVEN), POLICY, SETTLED, ScalingAction.PLACE),
        (DRAINING, replace(POLICY, min_replicas=3), SETTLED, ScalingAction.CANCEL_DRAIN),
        (DRAINING, POLICY, SETTLED, ScalingAction.RETRY_DRAIN),
        (ask(observe(EVEN), 4), POLICY, SETTLED, ScalingAction.ADOPT_EXTERNAL),
        (observe(EVEN), LEARNING, LEARNED, ScalingAction.PLACE),
        (observe(EVEN, running=("a", "b", "c")), MORE_CAPACITY, SETTLED, ScalingAction.ANNOUNCE),
    ],
)
def test_a_plan_that_places_names_its_consumers(
    seen: Observation, policy: AutoscalingPolicy, memory: DecisionMemory, action: ScalingAction
) -> None:
    """They are live and stay; with the places they are as many as replicas; every partition has one."""
    decision = decide(seen, policy, memory)
    plan = decision.plan
    assert decision.action is action
    assert plan is not None
    assert plan.target is not None
    staying = {i.name for i in seen.replicas or ()} - set(plan.draining)
    assert set(plan.target.consumers) == staying
    assert plan.target.size == max(plan.replicas, len(staying))
    assert 0 not in plan.target.partitions["t"]
    assert len(list_owners(plan.target)) == len(seen.write_rates)


@pytest.mark.parametrize("owned", [BUSY, IDLE, UNEVEN])
def test_the_figures_shown_are_those_of_the_target(owned: Mapping[str, Mapping[int, float]]) -> None:
    """R-score, moves and fill follow from the owners now and the target alone."""
    seen = observe(owned)
    decision = decide(seen)
    assert decision.plan is not None
    assert decision.plan.target is not None
    planned = list_owners(decision.plan.target)
    owners = {n: name for name, items in owned.items() for n in items}
    rates = {n: rate for items in owned.values() for n, rate in items.items()}
    moved = {n for n, name in planned.items() if owners[n] != name}
    fills = compute_fills(decision.plan.target, seen, {})
    assert decision.metrics.moves == len(moved)
    assert decision.metrics.r_score == pytest.approx(sum(rates[n] for n in moved) / 100)
    assert decision.metrics.planned_fill == pytest.approx(max(fills.values()))
    assert max(fills.values()) <= 0.9
    assert {m.partition.partition: m.target for m in decision.expected_moves} == {
        n: planned[n] for n in moved
    }


def test_a_scale_up_keeps_its_epoch_with_a_higher_revision() -> None:
    """The next target of the epoch is another one, also for members that read the first."""
    before = PlanTarget(20_000_000_000, ("a", "b"), 0, {"t": (1, 1, 1, 2, 2)})
    plan = decide(observe(BUSY, replace(PLAN, target=before))).plan
    assert plan is not None
    assert plan.target is not None
    assert (plan.epoch, plan.target.revision) == (7, 20_000_000_001)
    plan = decide(observe(BUSY)).plan
    assert plan is not None
    assert plan.target is not None
    assert plan.target.revision == NOW * 1e6  # after a plan without a target no revision is repeated


def test_a_plan_that_moves_nothing_carries_the_target_along() -> None:
    """A replica that is gone is forgotten; the target stays as it is, with its revision."""
    target = PlanTarget(3, ("a", "b"), 0, {"t": (1, 1, 2, 2)})
    seen = observe(EVEN, replace(PLAN, draining=("gone",), target=target))
    decision = decide(seen)
    assert decision.action is ScalingAction.ADOPT
    assert decision.plan is not None
    assert decision.plan.target is target
    assert (decision.metrics.moves, decision.metrics.planned_fill) == (0, None)


def test_without_a_known_write_rate_the_leader_decides() -> None:
    """New settings and a fallback count are published without a target, also if one is in force."""
    target = PlanTarget(3, ("a", "b"), 0, {"t": (1, 2)})
    seen = observe({"a": {0: None}, "b": {1: None}}, replace(PLAN, target=target))
    announced = decide(seen, MORE_CAPACITY).plan
    assert announced is not None
    assert announced.target is None
    fallback = replace(POLICY.fallback, behavior=FallbackBehavior.STATIC, replicas=4)
    memory = replace(SETTLED, unknown_iterations=9, recommendations=())
    grown = decide(seen, replace(POLICY, fallback=fallback), memory).plan
    assert grown is not None
    assert (grown.replicas, grown.target) == (4, None)


@pytest.mark.parametrize(
    "changed",
    [{"capacity": 120.0}, {"headroom": 0.8}, {"heuristic": "mwf"}, {"co_partitioned": (("t", "u"),)}],
)
def test_a_plan_that_keeps_no_consumer_has_no_target(changed: dict[str, Any]) -> None:
    """The last replica drains, and the sidecar was restarted with other settings."""
    seen = observe({"a": {0: 10.0}}, replace(PLAN, replicas=0, draining=("a",)))
    placement = replace(POLICY.placement, **changed)
    decision = decide(seen, replace(POLICY, placement=placement, min_replicas=0))
    assert decision.plan is not None
    assert decision.plan.target is None


def test_the_target_after_a_death_keeps_no_replica_that_still_drains() -> None:
    """The kept one died while all others drained: one of these stays and gets everything (seed 50776)."""
    plan = replace(PLAN, replicas=1, draining=("a", "b"))
    decision = decide(observe({"a": {0: 10.0}, "b": {1: 10.0}}, plan))
    assert decision.action is ScalingAction.CANCEL_DRAIN
    assert decision.plan is not None
    assert decision.plan.target is not None
    assert decision.plan.target.consumers == tuple({"a", "b"}.difference(decision.plan.draining))
    assert decision.plan.target.partitions == {"t": (1, 1)}


def test_a_share_group_has_no_target() -> None:
    """The broker hands its messages out."""
    seen = observe({"a": {0: 90.0, 1: 90.0}})
    shared = replace(seen, group=replace(seen.group, is_share_group=True), plan=replace(PLAN, replicas=1))
    decision = decide(shared)
    assert decision.action is ScalingAction.SCALE_UP
    assert decision.plan is not None
    assert decision.plan.target is None


def test_what_is_placed_is_what_was_sized() -> None:
    """Where sizing uses exactly these consumers its placement is the target."""
    seen = observe({"a": {0: 45.0, 1: 44.0, 2: 30.0}, "b": {3: 20.0}})
    plan = replace(PLAN, replicas=2)
    decision = decide(replace(seen, plan=plan))
    assert decision.action is ScalingAction.PLACE
    assert decision.plan is not None
    assert decision.plan.target is not None
    assert decision.metrics.recommended_replicas == 2
    assert max(compute_fills(decision.plan.target, seen, {}).values()) <= 0.9


def test_a_group_grows_beside_a_consumer_that_is_too_small() -> None:
    """Of {100, 20} the small one takes no partition of 30: the fourth needs a third consumer."""
    capacities = {"a": 100.0, "b": 20.0}
    seen = observe({"a": dict.fromkeys(range(4), 30.0), "b": {}}, capacities=capacities)
    decision = decide(seen)
    assert (decision.action, decision.replicas_to_start) == (ScalingAction.SCALE_UP, 1)
    assert decision.plan is not None
    assert decision.plan.target is not None
    assert decision.metrics.moves == 1
    assert max(compute_fills(decision.plan.target, seen, capacities).values()) <= 0.9


def test_a_consumer_is_placed_by_its_own_capacity_and_subscription() -> None:
    """What a member states itself precedes a learned capacity; it gets partitions of its topics only."""
    plan = replace(PLAN, capacities={"b": 300.0})
    topics = {"a": frozenset({"t"}), "b": frozenset({"t", "another"})}
    seen = observe({"a": {0: 60.0, 1: 60.0, 2: 60.0}, "b": {}}, plan, None, {"b": 200.0}, topics)
    policy = replace(POLICY, learned_capacity_bounds=None)
    decision = decide(seen, policy)  # "capacities are no longer learned"
    assert decision.plan is not None
    assert decision.plan.target is not None
    assert max(compute_fills(decision.plan.target, seen, {"b": 200.0}).values()) <= 0.9
    deaf = replace(seen, plan=PLAN, group=replace(seen.group, members=(
        seen.group.members[0], replace(seen.group.members[1], topics=frozenset({"another"})),
    )))  # fmt: skip
    grown = decide(deaf).plan
    assert grown is not None
    assert grown.target is not None
    assert "b" not in list_owners(grown.target).values()


def test_a_topic_that_nobody_reads_adds_no_consumer() -> None:
    """Commits of a topic that the application no longer subscribes to are not a reason to grow."""
    topics = {"a": frozenset({"other"}), "b": frozenset({"other"})}
    decision = decide(observe(EVEN, topics=topics))
    assert decision.action is ScalingAction.HOLD
    assert decision.metrics.recommended_replicas == 2


def test_the_only_reader_of_a_topic_is_no_victim() -> None:
    """Nobody could take its partitions over."""
    topics = {"a": frozenset({"t"}), "b": frozenset({"other"})}
    seen = observe({"a": {0: 5.0}, "b": {}}, topics=topics)
    decision = decide(seen)
    assert decision.action is ScalingAction.DRAIN
    assert decision.plan is not None
    assert decision.plan.draining == ("b",)


def test_victims_leave_a_placement_within_the_headroom() -> None:
    """A replica whose load fits the others' capacity, but not their headroom, is drained by force only."""
    seen = observe({"a": {0: 45.0, 1: 44.0}, "b": {2: 45.0, 3: 44.0}, "c": {4: 5.0}})
    model = build_group_model(seen, POLICY, PLAN)
    assert select_victims(model, 1) == ()
    assert select_victims(model, 1, forced=True) == ("c",)


def test_published_capacities_are_those_of_the_target() -> None:
    """A consumer that sustains less than assumed keeps no more than that."""
    seen = observe(EVEN)
    decision = decide(seen, LEARNING, LEARNED)
    assert decision.plan is not None
    assert decision.plan.target is not None
    assert decision.plan.capacities == {"a": 60.0}
    assert "a" in list_owners(decision.plan.target).values()
    assert compute_fills(decision.plan.target, seen, {"a": 60.0})["a"] <= 0.9


@pytest.mark.parametrize(
    ("since", "action"),
    [(NOW - 29, ScalingAction.HOLD), (NOW - 30, ScalingAction.PLACE), (None, ScalingAction.HOLD)],
)
def test_a_consumer_above_the_headroom_for_a_cooldown_gets_a_new_placement(
    since: float | None, action: ScalingAction
) -> None:
    """Not at once: write rates vary around the headroom. Above the capacity it does (`UNEVEN`)."""
    seen = observe({"a": {0: 40.0, 1: 30.0, 2: 26.0}, "b": {3: 30.0}})
    decision = decide(seen, memory=replace(SETTLED, overfull_since=since))
    assert decision.action is action
    if decision.plan is not None:
        assert decision.reasons[0] == "the fullest consumer is at 96%, above 90%, 70% in a better placement"
    else:  # a hold tells why, too
        assert decision.reasons[1] == (
            "the fullest consumer is at 96%, above 90%: tolerated for 30 s unless it exceeds its capacity, "
            "since moves interrupt reading"
        )


@pytest.mark.parametrize(
    ("since", "last_change", "action"),
    [
        (NOW - 299, NOW - 500, ScalingAction.HOLD),
        (NOW - 300, NOW - 299, ScalingAction.HOLD),
        (NOW - 300, NOW - 300, ScalingAction.PLACE),
    ],
)
def test_a_small_excess_over_the_headroom_waits_longer(
    since: float, last_change: float, action: ScalingAction
) -> None:
    """A placement fills consumers up to the headroom: a drift of a percent must not move partitions."""
    seen = observe({"a": {0: 40.0, 1: 30.0, 2: 22.0}, "b": {3: 30.0}})
    memory = replace(SETTLED, overfull_since=since, last_change=last_change)
    assert decide(seen, memory=memory).action is action


OVERFULL = {"a": {0: 40.0, 1: 40.0, 2: 40.0}, "b": {3: 30.0}, "c": {}}
DRAINED = replace(PLAN, draining=("c",))


@pytest.mark.parametrize(
    ("seen", "action"),
    [
        (observe(OVERFULL, replace(PLAN, replicas=3)), ScalingAction.DRAIN),
        (observe(OVERFULL, DRAINED), ScalingAction.STOP),
        (observe({n: OVERFULL[n] for n in "ab"}, DRAINED), ScalingAction.ADOPT),
    ],
)
def test_a_due_placement_does_not_wait_for_an_empty_replica(seen: Observation, action: ScalingAction) -> None:
    """Its drain, its stop and the plan without it move nothing: each carries the placement in a new epoch."""
    decision = decide(seen)
    assert decision.action is action
    assert decision.plan is not None
    assert decision.plan.target is not None
    assert (decision.plan.epoch, decision.plan.target.consumers) == (8, ("a", "b"))
    assert max(compute_fills(decision.plan.target, seen, {}).values()) <= 0.9
    assert decision.plan.reasons[-1].startswith("the fullest consumer is at 120%, above 90%")
    assert record_execution(decision, seen, SETTLED, NOW).last_change == NOW
    again = decide(seen, memory=replace(SETTLED, last_change=NOW - 29))
    assert again.plan is None or again.plan.epoch == 7  # but for the cooldown


GONE = replace(PLAN, target=PlanTarget(REVISION, ("old-1", "old-2"), 0, {"t": (1, 1, 2, 2)}))


def test_a_target_is_renewed_once_none_of_its_consumers_is_left() -> None:
    """As after a Deployment's Recreate: an old one that no leader carries out would stay in force."""
    decision = decide(observe(EVEN, GONE))
    assert decision.action is ScalingAction.PLACE
    assert decision.plan is not None
    assert decision.plan.target is not None
    assert decision.plan.target.consumers == ("a", "b")
    assert (decision.metrics.moves, decision.reasons[0]) == (0, "none of the plan's consumers is left")
    assert decide(observe(EVEN, decision.plan)).action is ScalingAction.HOLD
    waiting = decide(observe(EVEN, GONE), memory=replace(SETTLED, last_change=NOW - 29))
    assert waiting.reasons == ("none of the plan's consumers is left", "cooldown for another 1 s")


@pytest.mark.parametrize(("consumers", "places"), [(("a", "old-2"), 0), ((), 2)])
def test_a_target_stays_while_it_names_a_consumer_or_only_places(
    consumers: tuple[str, ...], places: int
) -> None:
    """The leader repairs it, or joiners take its places."""
    target = PlanTarget(REVISION, consumers, places, {"t": (1, 1, 2, 2)})
    assert decide(observe(EVEN, replace(PLAN, target=target))).action is ScalingAction.HOLD


def test_two_sidecars_never_publish_targets_of_one_revision() -> None:
    """Not in one second, either, from one predecessor: members would follow the first one only."""
    seen = observe(BUSY)
    keys = {
        PlanKey.of_plan(make_decision(seen, POLICY, SETTLED, now, "g")[0].plan)
        for now in (NOW, NOW + 1e-5, NOW + 0.5)
    }
    assert len(keys) == 3


def test_an_empty_replica_goes_without_a_placement() -> None:
    """Where none is due, its drain, its stop and the plan without it keep the epoch."""
    fine = {**EVEN, "c": dict[int, float | None]()}
    drain = decide(observe(fine, replace(PLAN, replicas=3)))
    assert drain.plan is not None
    assert (drain.action, drain.plan.epoch) == (ScalingAction.DRAIN, 7)
    assert decide(observe(fine, DRAINED)).plan is None


def test_a_placement_that_gains_too_little_is_not_published() -> None:
    """Where nothing fits the headroom, the fullest consumer must get emptier by a twentieth."""
    seen = observe({"a": {0: 33.0, 1: 32.0, 2: 31.0}, "b": {3: 31.0, 4: 31.0, 5: 31.0}})
    decision = decide(seen, replace(POLICY, max_replicas=2), replace(SETTLED, overfull_since=NOW - 99))
    assert decision.reasons[-1] == "no better placement found"


@pytest.mark.parametrize(
    ("since", "action"), [(NOW - 30, ScalingAction.SCALE_UP), (NOW - 29, ScalingAction.HOLD)]
)
def test_a_due_placement_ends_the_tolerance(since: float, action: ScalingAction) -> None:
    """If partitions move anyway, the recommended count is used instead of the present one, filled up."""
    seen = observe({"a": {0: 35.0, 1: 35.0, 2: 29.0}, "b": {3: 29.0, 4: 29.0, 5: 29.0}})
    decision = decide(seen, memory=replace(SETTLED, overfull_since=since))
    assert decision.action is action
    assert decision.metrics.recommended_replicas == 3


def test_partitions_without_an_owner_count_for_their_last_one() -> None:
    """A broker describes no assignments in a rebalance: a scale-up then moves no more than after it."""
    seen = observe(BUSY)
    _, memory = make_decision(seen, replace(POLICY, cooldown=1e6), SETTLED, NOW - 10, "g")
    members = tuple(replace(m, owned_partitions=frozenset()) for m in seen.group.members)
    rebalancing = replace(seen, group=ObservedGroup(GroupState.REBALANCING, members))
    decision = decide(rebalancing, memory=replace(memory, last_change=NOW - 500))
    assert decision.action is ScalingAction.SCALE_UP
    assert decision.metrics.moves == decide(seen).metrics.moves


def test_decisions_with_other_targets_disagree() -> None:
    """Owners that changed between the two looks postpone the decision; its revision and time do not."""
    seen = observe(BUSY)
    decision = decide(seen)
    assert decision.plan is not None
    assert decision.plan.target is not None
    later = replace(decision.plan.target, revision=decision.plan.target.revision + 5)
    assert decision.agrees_with(replace(decision, plan=replace(decision.plan, target=later)))
    other = replace(decision.plan.target, partitions={"t": (1, 1, 1, 1, 1)})
    assert not decision.agrees_with(replace(decision, plan=replace(decision.plan, target=other)))
    assert not decision.agrees_with(replace(decision, plan=replace(decision.plan, target=None)))
