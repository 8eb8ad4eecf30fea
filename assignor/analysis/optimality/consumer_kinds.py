"""Kinds of consumers and their costs, as input of the linear program.

1. A used consumer costs 1 at any capacity. A move costs `per_move` times its load in consumers
   (`unit_capacity`); a partition without an owner moves at no cost.
2. Consumers without partitions, of equal capacity and subscription, are one *kind*, used as often
   as it has consumers. Added consumers are a kind without limit. If moves cost nothing, owners do
   not separate kinds.
3. A set of partitions fits a kind if its load is within the capacity (with the tolerance of
   `packing`) and the kind subscribes to all of it. A single partition always fits
   (docs/heuristics.md, rule 4).
"""

import math
from dataclasses import dataclass

import numpy as np

from trimtab.assignor.model import UNASSIGNED, BoolArray, FloatArray, IntArray, PackingProblem
from trimtab.assignor.packing import CAPACITY_TOLERANCE, append_readers


@dataclass(frozen=True, slots=True)
class ConsumerKinds:
    """K kinds of consumers for P partitions."""

    weight: FloatArray  # (P,) bytes/s
    capacity: FloatArray  # (K,) bytes/s, with the tolerance of sums
    subscribed: BoolArray  # (K, P) whether the kind subscribes to the partition
    move_cost: FloatArray  # (K, P) cost in consumers if the kind takes the partition
    max_uses: FloatArray  # (K,) number of consumers; inf for added ones
    kind_of_member: IntArray  # (M + 1,) kind of each member, then of added ones or UNASSIGNED

    def can_hold(self, kind: int, items: IntArray) -> bool:
        """Return whether the kind may hold this set."""
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
    away = (problem.owner != UNASSIGNED) & (problem.owner != np.array(firsts, dtype=np.int32)[:, None])
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
    """Return the load in bytes/s that R counts as one consumer.

    It is the capacity of an added consumer, in closed mode the largest capacity.
    """
    return problem.new_member_capacity or float(problem.capacity.max(initial=0.0)) or 1.0


def _list_consumers(problem: PackingProblem) -> tuple[FloatArray, BoolArray]:
    if problem.new_member_capacity is None:
        return problem.capacity, problem.subscribed
    # One added member stands for all of them: they are alike.
    return np.append(problem.capacity, problem.new_member_capacity), append_readers(problem.subscribed, 1)


def _group_consumers(problem: PackingProblem, *, owners_differ: bool) -> list[list[int]]:
    capacity, reads = _list_consumers(problem)
    owners = set(problem.owner.tolist()) if owners_differ else set[int]()
    groups: dict[object, list[int]] = {}
    for number, own in enumerate(capacity.tolist()):
        # An owner keeps its own partitions at no cost, so it is a kind by itself.
        alike = number if number in owners else (own, reads[:, number].tobytes())
        groups.setdefault(alike, []).append(number)
    return list(groups.values())
