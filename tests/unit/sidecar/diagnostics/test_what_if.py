"""`trimtab plan` and the alternatives of `explain` tell what the sidecar would do."""

import numpy as np
import pytest

from support.policies import build_policy
from trimtab.assignor.model import PlacementPolicy, TopicPartition
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.decision.decide import make_decision
from trimtab.sidecar.decision.decision_memory import DecisionMemory, TimestampedRecommendation
from trimtab.sidecar.diagnostics.alternatives import compute_alternatives
from trimtab.sidecar.diagnostics.what_if import SOURCE_PUBLISHED, GroupBaseline, evaluate_heuristics
from trimtab.sidecar.model.hpa_behavior import ScalingPolicy, ScalingRules
from trimtab.sidecar.model.observation import (
    GroupState,
    Observation,
    ObservedGroup,
    ObservedMember,
    ReplicaInstance,
)

NOW = 10_000.0
NAMES = ("w1", "w2", "w3")
PARTITIONS = tuple(TopicPartition("t", n) for n in range(16))
PLACEMENT = PlacementPolicy("steady", 100.0, 0.9, consolidate=True)
POLICY = build_policy(placement=PLACEMENT, max_replicas=9, scale_up=ScalingRules((ScalingPolicy(3),)))
MEMORY = DecisionMemory((TimestampedRecommendation(NOW - 50, 3),), last_change=NOW - 500)


def measured(seed: int) -> GroupBaseline:
    """Three consumers of 16 partitions, spread by count, with a load for four."""
    rates = np.random.default_rng(seed).uniform(17.0, 25.0, 16)
    rates = (330.0 * rates / rates.sum()).tolist()
    loads = {p: PartitionLoad(rate) for p, rate in zip(PARTITIONS, rates, strict=True)}
    members = tuple(
        ObservedMember(f"id-{name}", name, frozenset(PARTITIONS[n::3])) for n, name in enumerate(NAMES)
    )
    plan = GroupPlan("g", 7, NOW - 500, 3, "steady", 100.0, 0.9)
    return GroupBaseline(ObservedGroup(GroupState.STABLE, members), loads, SOURCE_PUBLISHED, plan)


@pytest.mark.parametrize("seed", range(6))
def test_plan_tells_what_the_sidecar_decides(seed: int) -> None:
    """Moves, R-score and fill of `plan`, and of one more, are those that a sidecar publishes."""
    baseline = measured(seed)
    (told,) = evaluate_heuristics(baseline, ["steady"], POLICY, 3)
    replicas = tuple(ReplicaInstance(name, alive=True, started_at=0.0) for name in NAMES)
    seen = Observation(baseline.write_rates, baseline.group, replicas, baseline.plan)
    decision = make_decision(seen, POLICY, MEMORY, NOW, "g")[0]
    assert decision.plan is not None
    done = decision.metrics
    assert (told.consumers, told.moves) == (decision.plan.replicas, done.moves)
    assert (told.r_score, told.fill) == (pytest.approx(done.r_score), pytest.approx(done.planned_fill))
    *_, more = compute_alternatives(baseline, POLICY)
    assert (more.consumers, more.moves) == (decision.plan.replicas, done.moves)
    assert (more.r_score, more.fill) == (told.r_score, told.fill)
