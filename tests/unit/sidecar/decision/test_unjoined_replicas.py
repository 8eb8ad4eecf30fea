"""Replicas that have started and not joined: what their missing reads do not decide, and what is told."""

from dataclasses import replace

import pytest

from support.policies import build_policy
from trimtab.assignor.model import PlacementPolicy, TopicPartition
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.decision.decide import make_decision
from trimtab.sidecar.decision.decision import ScalingAction, ScalingDecision
from trimtab.sidecar.decision.decision_memory import DecisionMemory, TimestampedRecommendation
from trimtab.sidecar.model.hpa_behavior import ScalingPolicy, ScalingRules
from trimtab.sidecar.model.observation import (
    GroupState,
    Observation,
    ObservedGroup,
    ObservedMember,
    ReplicaInstance,
    TargetStatus,
)
from trimtab.sidecar.reporting.group_conditions import GroupFacts, find_conditions

NOW = 10_000.0
POLICY = build_policy(
    placement=PlacementPolicy("steady", 100.0, 0.9, consolidate=True),
    min_replicas=1,
    max_replicas=9,
    scale_up=ScalingRules((ScalingPolicy(9),)),
    scale_down=ScalingRules((ScalingPolicy(1),), stabilization_window=0),
    cooldown=30,
    startup_timeout=120,
)
LONG, YOUNG = (150.0, 20.0)  # seconds since the start
PARTITIONS = tuple(TopicPartition("t", n) for n in range(8))


def observe(
    started: int, joined: int, age: float, written: float = 15.0, backlog: float = 1500.0
) -> Observation:
    """Return a group of workers a, b, c, …, of which the first have joined and own everything."""
    names = "abcdefgh"[:started]
    members = tuple(
        ObservedMember(f"id-{n}", n, frozenset(PARTITIONS[i::joined])) for i, n in enumerate(names[:joined])
    )
    loads = {p: PartitionLoad(written, written, backlog, 9, written + backlog / 30) for p in PARTITIONS}
    group = ObservedGroup(GroupState.STABLE if joined else GroupState.EMPTY, members)
    replicas = tuple(ReplicaInstance(n, alive=True, started_at=NOW - age) for n in names)
    return Observation(loads, group, replicas, GroupPlan("g", 7, NOW - 500, started, "steady", 100.0, 0.9))


def decide(seen: Observation) -> ScalingDecision:
    count = 0 if seen.plan is None else seen.plan.replicas
    memory = DecisionMemory((TimestampedRecommendation(NOW - 5, count),), last_change=NOW - 500)
    return make_decision(seen, POLICY, memory, NOW, "g")[0]


@pytest.mark.parametrize(
    ("joined", "age", "action"),
    [
        (0, YOUNG, ScalingAction.HOLD),
        (1, YOUNG, ScalingAction.HOLD),
        (2, YOUNG, ScalingAction.HOLD),
        (0, LONG, ScalingAction.HOLD),
        (1, LONG, ScalingAction.HOLD),
        (2, LONG, ScalingAction.SCALE_UP),
        (3, YOUNG, ScalingAction.SCALE_UP),
    ],
)
def test_a_backlog_starts_no_more_replicas_while_others_have_yet_to_join(
    joined: int, age: float, action: ScalingAction
) -> None:
    """After the startup timeout, while fewer than half have: a single one that never joins holds up none."""
    decision = decide(observe(3, joined, age))
    assert decision.action is action
    if action is ScalingAction.HOLD:
        why = f"3 started, {joined} joined: no scale-up for a backlog that they do not read yet"
        assert why in decision.reasons


@pytest.mark.parametrize("joined", [0, 1])
def test_write_rates_start_replicas_whoever_has_joined(joined: int) -> None:
    """As many as the records written need, and none for the backlog."""
    decision = decide(observe(3, joined, LONG, written=45.0))
    assert decision.action is ScalingAction.SCALE_UP
    assert decision.plan is not None
    assert decision.plan.replicas == 4
    assert (decision.metrics.recommended_replicas or 0) > 4


def test_members_under_other_names_read_as_well() -> None:
    """Clients that the target does not know read the partitions: the backlog is theirs."""
    seen = observe(3, 3, LONG)
    members = tuple(replace(m, instance=f"other-{m.instance}") for m in seen.group.members)
    assert decide(replace(seen, group=replace(seen.group, members=members))).action is ScalingAction.SCALE_UP


@pytest.mark.parametrize(("several", "told"), [(1, True), (2, False)])
def test_a_replica_of_more_consumers_than_set_is_named(*, several: int, told: bool) -> None:
    """Otherwise its members would be nobody's, and hold up each scale-down."""
    members = tuple(
        ObservedMember(f"id-{n}", f"consumer-{n}", frozenset(PARTITIONS[n::4]), host=f"10.0.0.{n % 2}")
        for n in range(4)
    )
    seen = replace(
        observe(2, 2, LONG, written=1.0, backlog=0.0),
        group=ObservedGroup(GroupState.STABLE, members),
        target_status=TargetStatus(replicas_by_address={"10.0.0.0": "a", "10.0.0.1": "b"}),
    )
    policy = replace(POLICY, consumers_per_replica=several)
    decision = make_decision(seen, policy, DecisionMemory(), NOW, "g")[0]
    hint = "consumer-0 owns partitions and is not ours; a runs 2 consumers: set consumers-per-replica to 2"
    assert (hint in decision.reasons) is told


def test_a_replica_has_joined_once_all_its_consumers_have() -> None:
    """Those that have started two consumers and show one are not waited for beyond the startup timeout."""
    seen = observe(2, 2, YOUNG, backlog=0.0)
    members = (
        *(replace(m, instance=f"{m.instance}/1") for m in seen.group.members),
        ObservedMember("3", "a/2"),
    )
    policy = replace(POLICY, consumers_per_replica=2)
    seen = replace(seen, group=replace(seen.group, members=members))
    decision = make_decision(seen, policy, DecisionMemory(), NOW, "g")[0]
    assert (decision.metrics.running_replicas, decision.metrics.joined_replicas) == (2, 1)
    facts = GroupFacts(seen, policy, decision, DecisionMemory(), NOW + LONG)
    assert "b has not joined within 120 s" in {one.message for one in find_conditions(facts)}


def test_the_first_replicas_start_for_a_backlog() -> None:
    """Nothing is awaited from zero."""
    assert decide(observe(0, 0, LONG)).replicas_to_start > 1


def test_a_decision_tells_how_many_have_joined() -> None:
    """What a group without members fills is unknown, not 0 %."""
    line = decide(observe(3, 0, YOUNG)).format_line()
    assert "(3 started, 0 joined, 3 planned, 3 desired;" in line
    assert "fullest ?" in line
    assert "3 running, 3 planned" in decide(observe(3, 3, YOUNG, backlog=0.0)).format_line()


def test_no_placement_counts_on_replicas_that_have_not_joined() -> None:
    """Once the startup timeout is over the consumers that read share the load."""
    seen = observe(3, 2, LONG, written=25.0, backlog=0.0)
    first, second = seen.group.members
    uneven = (
        replace(first, owned_partitions=frozenset(PARTITIONS[:7])),
        replace(second, owned_partitions=frozenset(PARTITIONS[7:])),
    )
    decision = decide(replace(seen, group=replace(seen.group, members=uneven)))
    assert decision.action is ScalingAction.PLACE
    assert decision.plan is not None
    assert decision.plan.target is not None
    assert set(decision.plan.target.partitions["t"]) == {1, 2}


def test_a_drained_replica_that_never_joined_is_told_as_such() -> None:
    """It neither costs least to move nor owns nothing."""
    decision = decide(observe(3, 2, LONG, backlog=0.0))
    assert decision.action is ScalingAction.DRAIN
    assert decision.plan is not None
    assert decision.plan.draining == ("c",)
    assert decision.reasons[0].endswith("; c has not joined")
    after = replace(observe(3, 2, LONG, backlog=0.0), plan=decision.plan)
    assert decide(after).reasons[0] == "c is not in the group and no longer needed"
