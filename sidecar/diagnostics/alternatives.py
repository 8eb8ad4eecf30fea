"""Cost of running one consumer fewer and one more in a group now. Pure."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from trimtab.assignor.decisions import place_partitions
from trimtab.assignor.model import Member, PlacementPlan, PlacementPolicy
from trimtab.sidecar.decision.group_model import GroupModel
from trimtab.sidecar.decision.scale_in_selection import OVERLOAD_SLACK, select_victims
from trimtab.sidecar.diagnostics.explanation import AlternativeCount
from trimtab.sidecar.diagnostics.what_if import GroupBaseline, model_baseline
from trimtab.sidecar.measurement.observation import GroupState

ADDED_CONSUMER_NAME: Final = "+1"
"""Name of the hypothetical additional consumer."""

MAX_COMPARED_PARTITIONS: Final = 2000
"""Maximum group size: the comparison computes up to nine placements."""


def compute_alternatives(baseline: GroupBaseline) -> tuple[AlternativeCount, ...]:
    """Return the cost of the counts next to the current one.

    Empty for a group that has no plan or no placement, rebalances, drains or is too large.
    """
    plan = baseline.plan
    stable = baseline.group.state is GroupState.STABLE and plan is not None and not plan.draining
    if (
        plan is None
        or not stable
        or not 0 < len(baseline.write_rates) <= MAX_COMPARED_PARTITIONS
        or baseline.group.is_share_group
    ):
        return ()
    at = model_baseline(
        baseline, PlacementPolicy(plan.heuristic, plan.capacity, plan.headroom, consolidate=True)
    )
    return (*_evaluate_one_fewer(at), _evaluate_one_more(at))


def _evaluate_one_fewer(at: GroupModel) -> Iterable[AlternativeCount]:
    victims = select_victims(at, 1, forced=True)
    if victims:
        yield _evaluate_plan(at, at.plan_without(victims), len(at.active) - 1)


def _evaluate_one_more(at: GroupModel) -> AlternativeCount:
    group = at.build_group()
    topics = frozenset(p.topic for p in at.observation.write_rates)
    wider = replace(
        group, members=(*group.members, Member(ADDED_CONSUMER_NAME, topics, instance=ADDED_CONSUMER_NAME))
    )
    return _evaluate_plan(
        at, place_partitions(wider, at.build_load(), at.policy.placement), len(at.active) + 1
    )


def _evaluate_plan(at: GroupModel, plan: PlacementPlan, count: int) -> AlternativeCount:
    before = {p: name for name in at.running for p in at.owned_partitions(name)}
    moves = [m for m in plan.moves if before.get(m.partition) is not None]
    return AlternativeCount(
        consumers=count,
        moves=len(moves),
        moved_bytes_per_s=sum(m.write_rate for m in moves),
        r_score=plan.r_score,
        fill=plan.fill,
        fits=plan.fill <= at.policy.placement.headroom * (1 + OVERLOAD_SLACK),
    )
