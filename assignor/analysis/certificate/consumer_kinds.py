"""Who may hold what, and what it costs: a decision as the linear program sees it.

Rules of this file:
- A consumer that is used costs one, whatever its capacity; a move costs `per_move` times the load
  in units of one consumer (`unit_capacity`). A partition without an owner moves for nothing.
- Consumers that no set of partitions can tell apart are one *kind*, which may be used as often as
  there are such consumers: those that own nothing, of one capacity and one subscription. Those
  to be added are a kind without limit. Where moves cost nothing, owners make no difference either.
- A set of partitions fits a kind when its load is within the capacity (as `packing` counts it) and
  the kind subscribes to all of it. One partition alone fits, however large (HEURISTICS, rule 4).
"""

import math
from dataclasses import dataclass

import numpy as np

from trimtab.assignor.model import UNASSIGNED, BoolArray, FloatArray, IntArray, PackingProblem
from trimtab.assignor.packing import CAPACITY_TOLERANCE


@dataclass(frozen=True, slots=True)
class ConsumerKinds:
    """K kinds of consumers for P partitions."""

    weight: FloatArray  # (P,) bytes/s
    capacity: FloatArray  # (K,) bytes/s, the tolerance of sums included
    subscribed: BoolArray  # (K, P) whether the kind subscribes to the partition
    move_cost: FloatArray  # (K, P) what it costs, in consumers, that the kind takes the partition
    max_uses: FloatArray  # (K,) how often it may be used; inf with those to be added
    kind_of_member: (
        IntArray  # (M + 1,) the kind of each member, then of those to be added (or NOBODY)
    )

    def can_hold(self, kind: int, items: IntArray) -> bool:
        """Tell whether the kind may hold this set."""
        fits = len(items) == 1 or self.weight[items].sum() <= self.capacity[kind]
        return bool(fits and self.subscribed[kind, items].all())


def build_consumer_kinds(problem: PackingProblem, per_move: float) -> ConsumerKinds:
    """Return the kinds of a problem's consumers, sorted by their first member."""
    groups = _group_consumers(problem, owners_differ=per_move > 0)
    kind = np.full(len(problem.capacity) + 1, UNASSIGNED, dtype=np.int32)
    for number, consumers in enumerate(groups):
        kind[consumers] = number
    capacity, reads = _list_consumers(problem)
    firsts = [consumers[0] for consumers in groups]
    away = (problem.owner != UNASSIGNED) & (
        problem.owner != np.array(firsts, dtype=np.int32)[:, None]
    )
    added = len(problem.capacity)
    return ConsumerKinds(
        weight=problem.weight,
        capacity=capacity[firsts] * (1 + CAPACITY_TOLERANCE),
        subscribed=reads[problem.topic][:, firsts].T,
        move_cost=away * (per_move * problem.weight / unit_capacity(problem)),
        max_uses=np.array([math.inf if added in group else len(group) for group in groups]),
        kind_of_member=kind,
    )


def unit_capacity(problem: PackingProblem) -> float:
    """Return the load in bytes/s that R counts as one consumer: the capacity of an added one.

    In closed mode it is the largest capacity there is.
    """
    return problem.new_member_capacity or float(problem.capacity.max(initial=0.0)) or 1.0


def _list_consumers(problem: PackingProblem) -> tuple[FloatArray, BoolArray]:
    """Return capacity and subscriptions of the members, and of one to be added if any may be."""
    if problem.new_member_capacity is None:
        return problem.capacity, problem.subscribed
    everything = np.ones((len(problem.subscribed), 1), dtype=np.bool_)
    reads = np.concatenate([problem.subscribed, everything], axis=1)
    return np.append(problem.capacity, problem.new_member_capacity), reads


def _group_consumers(problem: PackingProblem, *, owners_differ: bool) -> list[list[int]]:
    capacity, reads = _list_consumers(problem)
    owners = set(problem.owner.tolist()) if owners_differ else set[int]()
    found: dict[object, list[int]] = {}
    for number, own in enumerate(capacity.tolist()):
        alike = number if number in owners else (own, reads[:, number].tobytes())
        found.setdefault(alike, []).append(number)
    return list(found.values())
