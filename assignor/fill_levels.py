"""A decision in figures: how full each member was, how full it will be, and with how many."""

from dataclasses import dataclass

import numpy as np

from trimtab.assignor.model import UNASSIGNED, BoolArray, FloatArray, IntArray, PlacementPolicy
from trimtab.assignor.packing import CAPACITY_TOLERANCE, sum_loads
from trimtab.assignor.problem import IndexedProblem, member_capacity

ADDED_MEMBER = -2
"""In a census, the owner of what a member to be added gets."""


@dataclass(frozen=True, slots=True, eq=False)
class FillLevels:
    """What each of N members reads: the load ÷ its capacity (before headroom), and the number."""

    fill: FloatArray  # (N,)
    count: IntArray  # (N,) partitions


@dataclass(frozen=True, slots=True, eq=False)
class PlacementDecision:
    """Bins chosen for a framed group; N counts its M members and the members to be added.

    `before` leaves out what nobody reads or may go on reading. `is_spread` tells that the capacities
    were scaled to a common factor.
    """

    indexed: IndexedProblem
    policy: PlacementPolicy
    bins: IntArray  # (P,)
    names: tuple[str, ...]  # (N,) ids; those added are called "+1", "+2" and so on
    capacity: FloatArray  # (N,) bytes/s, before headroom
    before: FillLevels
    after: FillLevels
    is_spread: bool

    def find_overfull(self, levels: FillLevels) -> BoolArray:
        """Return which of the N carry more than their headroom allows."""
        return levels.fill > self.policy.headroom * (1 + CAPACITY_TOLERANCE)

    def display_name(self, number: int) -> str:
        """Return the name that people know: the instance where there is one, else the id."""
        eligible = self.indexed.eligible
        if number >= len(eligible):
            return self.names[number]
        return self.indexed.indexed_group.members[eligible[number]].instance or self.names[number]

    @property
    def source(self) -> IntArray:
        """Who reads each item now (P,), as a census has it."""
        return self.indexed.indexed_group.owner[self.indexed.item]

    @property
    def target(self) -> IntArray:
        """Who is to read each item (P,), as a census has it; ADDED for members to be added."""
        added = len(self.names) - len(self.indexed.eligible)
        return np.append(self.indexed.eligible, np.full(added, ADDED_MEMBER, dtype=np.int32))[
            self.bins
        ]

    @property
    def cross_rack_load(self) -> float | None:
        """Load that crosses racks, bytes/s; None where racks are not weighed."""
        problem = self.indexed.problem
        if problem.racks is None:
            return None
        return float(problem.weight[problem.racks.find_cross_rack(self.bins)].sum())

    @property
    def r_score(self) -> float:
        """What stops being read for a moment, over the capacity (equation 10 of the paper)."""
        source = self.source
        stops = (source != self.target) & (source != UNASSIGNED)
        stops &= source < len(self.indexed.indexed_group.members)
        return float(self.indexed.problem.weight[stops].sum()) / self.policy.capacity


def evaluate_placement(
    indexed: IndexedProblem, policy: PlacementPolicy, bins: IntArray, *, is_spread: bool = False
) -> PlacementDecision:
    """Name the bins that were chosen; added ones are numbered on from M without gaps."""
    members = indexed.members
    added, position = np.unique(bins[bins >= len(members)], return_inverse=True)
    bins = bins.copy()
    bins[bins >= len(members)] = len(members) + position
    own = [member_capacity(m, policy) for m in members]
    capacity = np.array([*own, *([policy.capacity] * len(added))], dtype=np.float64)
    weight = indexed.problem.weight
    return PlacementDecision(
        indexed=indexed,
        policy=policy,
        bins=bins,
        names=(*(m.id for m in members), *(f"+{n + 1}" for n in range(len(added)))),
        capacity=capacity,
        before=_compute_fill_levels(indexed.problem.owner, weight, capacity),
        after=_compute_fill_levels(bins, weight, capacity),
        is_spread=is_spread,
    )


def _compute_fill_levels(bins: IntArray, weight: FloatArray, capacity: FloatArray) -> FillLevels:
    count = sum_loads(bins, np.ones_like(weight), len(capacity)).astype(np.int32)
    return FillLevels(sum_loads(bins, weight, len(capacity)) / capacity, count)
