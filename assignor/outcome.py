"""A decision in figures: how full each member was, how full it will be, and with how many."""

from dataclasses import dataclass

import numpy as np

from trimtab.assignor.model import BoolArray, FloatArray, IntArray, Policy
from trimtab.assignor.packing import TOLERANCE, loads
from trimtab.assignor.problem import Framed, own_capacity


@dataclass(frozen=True, slots=True)
class Held:
    """What each of N members reads: the load ÷ its capacity (before headroom), and the number."""

    fill: FloatArray  # (N,)
    count: IntArray  # (N,) partitions


@dataclass(frozen=True, slots=True)
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
        members = self.framed.members
        instance = members[number].instance if number < len(members) else ""
        return instance or self.names[number]


def outcome(framed: Framed, policy: Policy, bins: IntArray, *, spread: bool = False) -> Outcome:
    """Name the bins that were chosen; added ones are numbered on from M without gaps."""
    members = len(framed.members)
    added, position = np.unique(bins[bins >= members], return_inverse=True)
    bins = bins.copy()
    bins[bins >= members] = members + position
    own = [own_capacity(m, policy) for m in framed.members]
    capacity = np.array([*own, *([policy.capacity] * len(added))], dtype=np.float64)
    weight = framed.problem.weight
    return Outcome(
        framed=framed,
        policy=policy,
        bins=bins,
        names=(*(m.id for m in framed.members), *(f"+{n + 1}" for n in range(len(added)))),
        capacity=capacity,
        before=_held(framed.problem.owner, weight, capacity),
        after=_held(bins, weight, capacity),
        spread=spread,
    )


def _held(bins: IntArray, weight: FloatArray, capacity: FloatArray) -> Held:
    count = loads(bins, np.ones_like(weight), len(capacity)).astype(np.int32)
    return Held(loads(bins, weight, len(capacity)) / capacity, count)
