"""Fill level and partition count of each member before and after a decision."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from trimtab.assignor.model import UNASSIGNED, BoolArray, FloatArray, IntArray, PlacementPolicy
from trimtab.assignor.model.packing import CAPACITY_TOLERANCE, sum_loads
from trimtab.assignor.model.problem import IndexedProblem, member_capacity

ADDED_MEMBER: Final = -2  # `PlacementDecision.target` of partitions of a member to be added


@dataclass(frozen=True, slots=True, eq=False)
class FillLevels:
    """Load ÷ capacity (before headroom) and partition count of each of N members."""

    fill: FloatArray  # (N,)
    count: IntArray  # (N,) partitions


@dataclass(frozen=True, slots=True, eq=False)
class PlacementDecision:
    """Bins of an indexed problem; N counts its M members and the members to be added."""

    indexed: IndexedProblem
    policy: PlacementPolicy
    bins: IntArray  # (P,)
    names: tuple[str, ...]  # (N,) ids; those added are called "+1", "+2" and so on
    capacity: FloatArray  # (N,) bytes/s, before headroom
    before: FillLevels  # only of partitions that their owner may keep
    after: FillLevels
    is_spread: bool  # over all members, instead of packed

    def find_overfull(self, levels: FillLevels) -> BoolArray:
        """Return which of the N members exceed their headroom."""
        return levels.fill > self.policy.headroom * (1 + CAPACITY_TOLERANCE)

    def display_name(self, number: int) -> str:
        """Return a member's instance name, or its id if it has none."""
        eligible = self.indexed.eligible
        if number >= len(eligible):
            return self.names[number]
        return self.indexed.group.members[eligible[number]].instance or self.names[number]

    @property
    def source(self) -> IntArray:
        """Current owner of each item (P,), in the numbers of `IndexedGroup.owner`."""
        return self.indexed.group.owner[self.indexed.item]

    @property
    def target(self) -> IntArray:
        """New owner of each item (P,), in the same numbers; ADDED_MEMBER for added members."""
        added = len(self.names) - len(self.indexed.eligible)
        return np.append(self.indexed.eligible, np.full(added, ADDED_MEMBER, dtype=np.int32))[self.bins]

    @property
    def cross_rack_load(self) -> float | None:
        """Cross-rack load in bytes/s; None if racks are not weighed."""
        problem = self.indexed.problem
        if problem.racks is None:
            return None
        return float(problem.weight[problem.racks.find_cross_rack(self.bins)].sum())

    @property
    def r_score(self) -> float:
        """R-score: moved load ÷ the policy's capacity (equation 10 of the paper)."""
        source = self.source
        moved = (source != self.target) & (source != UNASSIGNED)
        moved &= source < len(self.indexed.group.members)  # a departed owner reads no more
        return float(self.indexed.problem.weight[moved].sum()) / self.policy.capacity


def evaluate_placement(
    indexed: IndexedProblem,
    policy: PlacementPolicy,
    bins: IntArray,
    *,
    is_spread: bool = False,
    added: int | None = None,
) -> PlacementDecision:
    """Return the decision of these bins; without a number of `added` members, those that got something."""
    members = indexed.members
    if added is None:
        bins, added = _close_gaps(bins, len(members))
    own = [member_capacity(m, policy) for m in members]
    capacity = np.array([*own, *([policy.capacity] * added)], dtype=np.float64)
    weight = indexed.problem.weight
    return PlacementDecision(
        indexed=indexed,
        policy=policy,
        bins=bins,
        names=(*(m.id for m in members), *(f"+{n + 1}" for n in range(added))),
        capacity=capacity,
        before=_compute_fill_levels(indexed.problem.owner, weight, capacity),
        after=_compute_fill_levels(bins, weight, capacity),
        is_spread=is_spread,
    )


def _close_gaps(bins: IntArray, members: int) -> tuple[IntArray, int]:
    """Return the bins with the added members that have partitions numbered in a row, and their number."""
    numbers, position = np.unique(bins[bins >= members], return_inverse=True)
    bins = bins.copy()
    bins[bins >= members] = members + position
    return bins, len(numbers)


def _compute_fill_levels(bins: IntArray, weight: FloatArray, capacity: FloatArray) -> FillLevels:
    count = sum_loads(bins, np.ones_like(weight), len(capacity)).astype(np.int32)
    return FillLevels(sum_loads(bins, weight, len(capacity)) / capacity, count)
