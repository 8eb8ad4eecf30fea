"""A decision in figures: how full each member was, how full it will be, and with how many."""

from dataclasses import dataclass

import numpy as np

from trimtab.assignor.model import NOBODY, BoolArray, FloatArray, IntArray, Policy
from trimtab.assignor.packing import TOLERANCE, loads
from trimtab.assignor.problem import Framed, own_capacity

ADDED = -2
"""In a census, the owner of what a member to be added gets."""


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """What each of N members reads: the load ÷ its capacity (before headroom), and the number."""

    fill: FloatArray  # (N,)
    count: IntArray  # (N,) partitions


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """Bins chosen for a framed group; N counts its M members and the members to be added.

    `before` leaves out what nobody reads or may go on reading. `spread` tells that the capacities
    were scaled to a common factor.
    """

    framed: Framed
    policy: Policy
    bins: IntArray  # (P,)
    names: tuple[str, ...]  # (N,) ids; those added are called "+1", "+2" and so on
    capacity: FloatArray  # (N,) bytes/s, before headroom
    before: Held
    after: Held
    spread: bool

    def overfull(self, held: Held) -> BoolArray:
        """Return which of the N carry more than their headroom allows."""
        return held.fill > self.policy.headroom * (1 + TOLERANCE)

    def person(self, number: int) -> str:
        """Return the name that people know: the instance where there is one, else the id."""
        eligible = self.framed.eligible
        if number >= len(eligible):
            return self.names[number]
        return self.framed.census.members[eligible[number]].instance or self.names[number]

    @property
    def source(self) -> IntArray:
        """Who reads each item now (P,), as a census has it."""
        return self.framed.census.owner[self.framed.item]

    @property
    def target(self) -> IntArray:
        """Who is to read each item (P,), as a census has it; ADDED for members to be added."""
        added = len(self.names) - len(self.framed.eligible)
        return np.append(self.framed.eligible, np.full(added, ADDED, dtype=np.int32))[self.bins]

    @property
    def crossing(self) -> float | None:
        """Load that crosses racks, bytes/s; None where racks are not weighed."""
        problem = self.framed.problem
        if problem.racks is None:
            return None
        return float(problem.weight[problem.racks.crossing(self.bins)].sum())

    @property
    def r_score(self) -> float:
        """What stops being read for a moment, over the capacity (equation 10 of the paper)."""
        source = self.source
        stops = (source != self.target) & (source != NOBODY)
        stops &= source < len(self.framed.census.members)
        return float(self.framed.problem.weight[stops].sum()) / self.policy.capacity


def outcome(framed: Framed, policy: Policy, bins: IntArray, *, spread: bool = False) -> Outcome:
    """Name the bins that were chosen; added ones are numbered on from M without gaps."""
    members = framed.members
    added, position = np.unique(bins[bins >= len(members)], return_inverse=True)
    bins = bins.copy()
    bins[bins >= len(members)] = len(members) + position
    own = [own_capacity(m, policy) for m in members]
    capacity = np.array([*own, *([policy.capacity] * len(added))], dtype=np.float64)
    weight = framed.problem.weight
    return Outcome(
        framed=framed,
        policy=policy,
        bins=bins,
        names=(*(m.id for m in members), *(f"+{n + 1}" for n in range(len(added)))),
        capacity=capacity,
        before=_held(framed.problem.owner, weight, capacity),
        after=_held(bins, weight, capacity),
        spread=spread,
    )


def _held(bins: IntArray, weight: FloatArray, capacity: FloatArray) -> Held:
    count = loads(bins, np.ones_like(weight), len(capacity)).astype(np.int32)
    return Held(loads(bins, weight, len(capacity)) / capacity, count)
