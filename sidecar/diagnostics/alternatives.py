"""Cost of running one consumer fewer and one more in a group now. Pure."""

from dataclasses import replace
from typing import Final

from trimtab.assignor.model import PlacementPlan, PlacementPolicy
from trimtab.sidecar.decision.group_model import OVERLOAD_SLACK, GroupModel
from trimtab.sidecar.decision.scale_in_selection import select_victims
from trimtab.sidecar.diagnostics.explanation import AlternativeCount
from trimtab.sidecar.diagnostics.what_if import GroupBaseline, model_baseline
from trimtab.sidecar.model.autoscaling_policy import AutoscalingPolicy
from trimtab.sidecar.model.observation import GroupState

MAX_COMPARED_PARTITIONS: Final = 2000  # the comparison computes up to nine placements


def compute_alternatives(baseline: GroupBaseline, policy: AutoscalingPolicy) -> tuple[AlternativeCount, ...]:
    """Return the cost of one consumer fewer and one more, placed as the sidecar would place them.

    Empty for a group that has no plan or no placement, rebalances, drains or is too large.
    """
    group = baseline.group
    plan = baseline.plan
    if plan is None or plan.draining or group.state is not GroupState.STABLE or group.is_share_group:
        return ()
    if not 0 < len(baseline.write_rates) <= MAX_COMPARED_PARTITIONS:
        return ()
    placement = PlacementPolicy(
        plan.heuristic, plan.capacity, plan.headroom, consolidate=True, co_partitioned=plan.co_partitioned
    )
    at = model_baseline(baseline, replace(policy, placement=placement))
    # forced: the cost is of interest even if the remaining consumers would be overloaded
    victims = select_victims(at, 1, forced=True)
    others = set(at.active).difference(victims)
    fewer = (_evaluate(at, at.place_on(others), len(others)),) if victims else ()
    return (*fewer, _evaluate(at, at.place_on(at.active, added=1), len(at.active) + 1))


def _evaluate(at: GroupModel, plan: PlacementPlan, consumers: int) -> AlternativeCount:
    owners = {p: name for name in at.running for p in at.owned_partitions(name)}
    moves = [m for m in plan.moves if owners.get(m.partition) is not None]  # not the first assignments
    return AlternativeCount(
        consumers=consumers,
        moves=len(moves),
        moved_bytes_per_s=sum(m.write_rate for m in moves),
        r_score=plan.r_score,
        fill=plan.fill,
        fits=plan.fill <= at.policy.placement.headroom * (1 + OVERLOAD_SLACK),
    )
