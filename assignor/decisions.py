"""The two decisions: who reads what (`place`), and how many consumers are needed (`size`).

Both are pure and deterministic: equal input gives equal bytes, in whatever order members and
partitions are given. `place` and `size` speak of names; `placed` is `place` for a
group that is in numbers already.
"""

from collections.abc import Mapping

import numpy as np

from trimtab.assignor.closed_mode import spread
from trimtab.assignor.fill_levels import Outcome, outcome
from trimtab.assignor.heuristics.heuristic import Heuristic, run
from trimtab.assignor.heuristics.registry import get
from trimtab.assignor.model import NOBODY, Group, IntArray, Load, Plan, Policy, TopicPartition
from trimtab.assignor.move_reasons import Moves, notes
from trimtab.assignor.open_mode import pack_open
from trimtab.assignor.problem import Census, Framed, census, frame, frame_census


def place(group: Group, load: Load, policy: Policy) -> Plan:
    """Give every partition that some member subscribes to one member that reads it (closed mode).

    With `policy.consolidate` the heuristic packs the members as full as the headroom allows.
    Without it, when no write speed is known, or when something would fit nowhere, the load is
    spread (`trimtab.assignor.closed_mode`). A heuristic that does not pack by capacity is simply
    applied.

    Raises BadProblem, UnknownHeuristic, BrokenHeuristic.
    """
    return _plan(placed(census(group), load, policy))


def size(group: Group, load: Load, policy: Policy) -> Plan:
    """Find how many consumers the load needs: `consumers` of the plan (open mode).

    Members that are left empty may stop; those to be added have the policy's capacity, subscribe to
    everything and are called "+1", "+2" and so on. A heuristic that does not count gets the fewest
    members whose capacities add up to the load, at least one (`trimtab.assignor.open_mode`).
    `policy.consolidate` makes no difference here.

    Raises BadProblem, UnknownHeuristic, BrokenHeuristic.
    """
    entry = get(policy.heuristic)
    framed = frame(group, load, policy, spare=True, racks=entry.racks)
    return _plan(outcome(framed, policy, pack_open(entry, framed.problem)))


def placed(there: Census, load: Load, policy: Policy) -> Outcome:
    """Place a group that is in numbers already; rules and errors are those of `place`."""
    entry = get(policy.heuristic)
    framed = frame_census(there, load, policy, racks=entry.racks)
    bins = _packed(entry, framed, policy)
    if bins is not None:
        return outcome(framed, policy, bins)
    return outcome(framed, policy, spread(entry, framed.problem), spread=True)


def _packed(entry: Heuristic, framed: Framed, policy: Policy) -> IntArray | None:
    """Return the heuristic's own answer; None where the load is to be spread."""
    if entry.counts and not (policy.consolidate and framed.known.any()):
        return None
    bins = run(entry, framed.problem)
    return None if (bins == NOBODY).any() else bins


def _plan(decided: Outcome) -> Plan:
    universe = decided.framed.census.universe
    return Plan(
        assignment=_assignment(decided),
        moves=tuple(Moves(decided)),
        r_score=decided.r_score,
        consumers=int(np.count_nonzero(decided.after.count)),
        fill=float(decided.after.fill.max(initial=0.0)),
        notes=notes(decided),
        unassigned=tuple(map(universe.name, decided.framed.unassigned.tolist())),
        crossing=decided.crossing,
    )


def _assignment(decided: Outcome) -> Mapping[str, tuple[TopicPartition, ...]]:
    everybody = {*(m.id for m in decided.framed.census.members), *decided.names}
    held: dict[str, list[TopicPartition]] = {name: [] for name in sorted(everybody)}
    for partition, number in zip(decided.framed.partitions, decided.bins.tolist(), strict=True):
        held[decided.names[number]].append(partition)
    return {name: tuple(partitions) for name, partitions in held.items()}
