"""What one consumer fewer and one more would cost a group now. Pure."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from trimtab.assignor.decisions import place
from trimtab.assignor.model import Member, Plan, Policy
from trimtab.sidecar.decision.group_model import Situation
from trimtab.sidecar.decision.scale_in_selection import SLACK, choose
from trimtab.sidecar.diagnostics.explanation import Other
from trimtab.sidecar.diagnostics.what_if import Survey, situated
from trimtab.sidecar.measurement.observation import GroupState

NEW: Final = "+1"
"""Name of the consumer that would be added."""

LARGEST: Final = 2000
"""Partitions of a group for which this is cheap: it takes up to nine placements."""


def others(found: Survey) -> tuple[Other, ...]:
    """Return what the counts beside the present one would cost.

    None of a group that has no plan or no placement, is not at rest, drains or is too large.
    """
    plan = found.plan
    quiet = found.group.state is GroupState.STABLE and plan is not None and not plan.draining
    if plan is None or not quiet or not 0 < len(found.speeds) <= LARGEST or found.group.shared:
        return ()
    at = situated(found, Policy(plan.heuristic, plan.capacity, plan.headroom, consolidate=True))
    return (*_fewer(at), _more(at))


def _fewer(at: Situation) -> Iterable[Other]:
    gone = choose(at, 1, forced=True)
    if gone:
        yield _cost(at, at.without(gone), len(at.active) - 1)


def _more(at: Situation) -> Other:
    group = at.group()
    topics = frozenset(p.topic for p in at.seen.speeds)
    wider = replace(group, members=(*group.members, Member(NEW, topics, instance=NEW)))
    return _cost(at, place(wider, at.load(), at.policy.placement), len(at.active) + 1)


def _cost(at: Situation, plan: Plan, count: int) -> Other:
    before = {p: name for name in at.running for p in at.owned(name)}
    moves = [m for m in plan.moves if before.get(m.partition) is not None]
    return Other(
        count=count,
        moves=len(moves),
        moved=sum(m.speed for m in moves),
        r_score=plan.r_score,
        fill=plan.fill,
        fits=plan.fill <= at.policy.placement.headroom * (1 + SLACK),
    )
