"""A decision in figures: what each member carried, what it will carry, and of how much it can."""

from dataclasses import dataclass

import numpy as np

from trimtab.assignor.model import NOBODY, BoolArray, FloatArray, IntArray, Policy
from trimtab.assignor.packing import TOLERANCE, loads
from trimtab.assignor.problem import Framed, own_capacity


@dataclass(frozen=True, slots=True)
class Outcome:
    """Bins chosen for a framed group; N counts its M members and the members to be added.

    `owner` is NOBODY for what nobody reads or may go on reading. `spread` tells that the capacities
    were scaled to a common factor.
    """

    framed: Framed
    policy: Policy
    owner: IntArray  # (P,)
    bins: IntArray  # (P,)
    names: tuple[str, ...]  # (N,) ids; those added are called "+1", "+2" and so on
    capacity: FloatArray  # (N,) bytes/s, before headroom
    spread: bool = False

    def load(self, bins: IntArray) -> FloatArray:
        """Return what each of the N carries, in bytes/s, with these bins (P,)."""
        return loads(bins, self.framed.problem.weight, len(self.names))

    def fill(self, bins: IntArray) -> FloatArray:
        """Return load ÷ capacity of each of the N with these bins (P,)."""
        return self.load(bins) / self.capacity

    def count(self, bins: IntArray) -> IntArray:
        """Return how many partitions each of the N reads with these bins (P,)."""
        return np.bincount(bins[bins != NOBODY], minlength=len(self.names)).astype(np.int32)

    def overfull(self, bins: IntArray) -> BoolArray:
        """Return which of the N carry more than their headroom allows with these bins (P,)."""
        return self.fill(bins) > self.policy.headroom * (1 + TOLERANCE)

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
    return Outcome(
        framed=framed,
        policy=policy,
        owner=framed.problem.owner,
        bins=bins,
        names=(*(m.id for m in framed.members), *(f"+{n + 1}" for n in range(len(added)))),
        capacity=np.array([*own, *([policy.capacity] * len(added))], dtype=np.float64),
        spread=spread,
    )
