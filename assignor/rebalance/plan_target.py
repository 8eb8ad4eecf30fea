"""Carries out the target of a plan: consumers become members, and what changed meanwhile is repaired."""

from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.assignor.fill_levels import PlacementDecision
from trimtab.assignor.model import BoolArray, IntArray, Load, PlacementPolicy
from trimtab.assignor.problem import IndexedGroup
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.plan_target import PlanTarget


@dataclass(frozen=True, slots=True, eq=False)
class TargetMatch:
    """Members that stand for the C consumers and places of a target, and its P partitions."""

    member: IntArray  # (C,) member of each consumer; UNASSIGNED: absent
    consumer: IntArray  # (P,) consumer of each partition, from 0; UNASSIGNED: the target has none

    def resolve_target(self) -> IntArray:
        """Return the member of each partition (P,); UNASSIGNED if its consumer is absent."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=False)
class CarriedPlan:
    """Decision that carries out a plan's target, and what could not be."""

    decision: PlacementDecision
    elsewhere: BoolArray  # (P,) of the decision's partitions: not on the consumer of the target
    note: str = ""  # "plan 7 carried out; 3 partitions elsewhere: worker-2 is gone"; empty if as planned


def name_members(ids: Sequence[str], instances: Sequence[str]) -> tuple[str, ...]:
    """Return each member's instance name, its id where the instance is shared or empty."""
    raise NotImplementedError


def match_consumers(
    target: PlanTarget, group: IndexedGroup, promised_to: IntArray | None = None
) -> TargetMatch:
    """Return the members that stand for the target's consumers.

    `promised_to` (P,): member that an earlier round promised a partition, or UNASSIGNED.
    """
    raise NotImplementedError


def carry_out_target(
    plan: GroupPlan,
    group: IndexedGroup,
    load: Load,
    policy: PlacementPolicy,
    promised_to: IntArray | None = None,
) -> CarriedPlan | None:
    """Place the partitions as the plan's target says; None if the target names nobody who is here."""
    raise NotImplementedError
