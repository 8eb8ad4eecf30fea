"""Co-partitioned topics in the sidecar: the plan names them, and its target keeps their tasks together."""

from dataclasses import replace

import pytest

from support.policies import build_policy
from trimtab.assignor.model import PlacementPolicy, TopicPartition
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.decision.decide import make_decision
from trimtab.sidecar.decision.decision_memory import DecisionMemory
from trimtab.sidecar.model.observation import (
    GroupState,
    Observation,
    ObservedGroup,
    ObservedMember,
    ReplicaInstance,
)

NOW = 10_000.0
GROUPS = (("orders", "payments"),)
PLAN = GroupPlan("g", 7, NOW - 500, 2, "steady", 100.0, 0.9)


def observe(rates: dict[str, list[float]]) -> Observation:
    """Return two consumers that read one topic each."""
    owned = {t: frozenset(TopicPartition(t, n) for n in range(len(r))) for t, r in rates.items()}
    members = tuple(ObservedMember(f"id-{t}", f"reads-{t}", partitions) for t, partitions in owned.items())
    loads = {
        p: PartitionLoad(rates[p.topic][p.partition], rates[p.topic][p.partition], 0.0, 0)
        for partitions in owned.values()
        for p in partitions
    }
    replicas = tuple(ReplicaInstance(m.instance, alive=True, started_at=NOW - 500) for m in members)
    return Observation(loads, ObservedGroup(GroupState.STABLE, members), replicas, PLAN)


@pytest.mark.parametrize("heuristic", ["steady", "mwf", "sticky", "lag-aware"])
def test_a_plan_of_co_partitioned_topics_has_a_target_of_tasks(heuristic: str) -> None:
    """The changed setting starts an epoch; equal numbers have equal consumers in its target."""
    placement = PlacementPolicy(heuristic, 100.0, 0.9, consolidate=True, co_partitioned=GROUPS)
    seen = observe({"orders": [30.0, 10.0, 20.0, 5.0], "payments": [5.0, 30.0, 20.0, 30.0]})
    seen = replace(seen, plan=replace(PLAN, heuristic=heuristic))
    decision, _ = make_decision(seen, build_policy(placement=placement), DecisionMemory(), NOW, "g")
    plan = decision.plan
    assert plan is not None
    assert plan.epoch == PLAN.epoch + 1
    assert plan.reasons == ("settings changed: co-partitioned topics: orders,payments",)
    assert plan.co_partitioned == GROUPS
    assert plan.target is not None
    assert plan.target.partitions["orders"] == plan.target.partitions["payments"]
