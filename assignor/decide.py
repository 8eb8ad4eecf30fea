"""The two decisions: who reads what (`place`), and how many consumers are needed (`size`).

Both are pure and deterministic: equal input gives equal bytes, in whatever order members and
partitions are given.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from trimtab.assignor.counting import pack_open
from trimtab.assignor.heuristic import Heuristic, run
from trimtab.assignor.model import NOBODY, Group, IntArray, Load, Move, Plan, Policy, TopicPartition
from trimtab.assignor.outcome import Outcome, outcome
from trimtab.assignor.problem import Framed, frame
from trimtab.assignor.reasons import notes, reason
from trimtab.assignor.registry import get
from trimtab.assignor.spread import spread


def place(group: Group, load: Load, policy: Policy) -> Plan:
    """Give every partition that some member subscribes to one member that reads it (closed mode).

    With `policy.consolidate` the heuristic packs the members as full as the headroom allows.
    Without it, when no write speed is known, or when something would fit nowhere, the load is
    spread (`trimtab.assignor.spread`). A heuristic that does not pack by capacity is simply
    applied.

    Raises BadProblem, UnknownHeuristic, BrokenHeuristic.
    """
    entry = get(policy.heuristic)
    framed = frame(group, load, policy)
    bins = _packed(entry, framed, policy)
    if bins is not None:
        return _plan(group, outcome(framed, policy, bins))
    return _plan(group, outcome(framed, policy, spread(entry, framed.problem), spread=True))


def size(group: Group, load: Load, policy: Policy) -> Plan:
    """Find how many consumers the load needs: `consumers` of the plan (open mode).

    Members that are left empty may stop; those to be added have the policy's capacity, subscribe to
    everything and are called "+1", "+2" and so on. A heuristic that does not count gets the fewest
    members whose capacities add up to the load, at least one (`trimtab.assignor.counting`).
    `policy.consolidate` makes no difference here.

    Raises BadProblem, UnknownHeuristic, BrokenHeuristic.
    """
    entry = get(policy.heuristic)
    framed = frame(group, load, policy, spare=True)
    return _plan(group, outcome(framed, policy, pack_open(entry, framed.problem)))


def _packed(entry: Heuristic, framed: Framed, policy: Policy) -> IntArray | None:
    """Return the heuristic's own answer; None where the load is to be spread."""
    if entry.counts and not (policy.consolidate and framed.known.any()):
        return None
    bins = run(entry, framed.problem)
    return None if (bins == NOBODY).any() else bins


def _plan(group: Group, decided: Outcome) -> Plan:
    moves = tuple(_moves(group, decided))
    stopped = sum(move.speed for move in moves if move.source is not None)
    return Plan(
        assignment=_assignment(group, decided),
        moves=moves,
        r_score=stopped / decided.policy.capacity,
        consumers=int(np.count_nonzero(decided.after.count)),
        fill=float(decided.after.fill.max(initial=0.0)),
        notes=notes(decided, group),
        unassigned=decided.framed.unassigned,
    )


def _moves(group: Group, decided: Outcome) -> Iterator[Move]:
    """Yield the changes of owner; an owner that has left the group counts as nobody."""
    members = {m.id: m for m in group.members}
    for item, partition in enumerate(decided.framed.partitions):
        owner = group.owners.get(partition)
        target = decided.names[decided.bins[item]]
        if owner != target:
            member = members.get(owner or "")
            yield Move(
                partition=partition,
                source=member.id if member else None,
                target=target,
                speed=float(decided.framed.problem.weight[item]),
                reason=reason(decided, item, owner, member),
            )


def _assignment(group: Group, decided: Outcome) -> Mapping[str, tuple[TopicPartition, ...]]:
    held: dict[str, list[TopicPartition]] = {
        name: [] for name in sorted({*(m.id for m in group.members), *decided.names})
    }
    for partition, number in zip(decided.framed.partitions, decided.bins.tolist(), strict=True):
        held[decided.names[number]].append(partition)
    return {name: tuple(partitions) for name, partitions in held.items()}
