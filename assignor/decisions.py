"""The two decisions: who reads what (`place_partitions`), and how many consumers are needed (`size_group`).

Both are pure and deterministic: equal input gives equal bytes, in whatever order members and
partitions are given. `place_partitions` and `size_group` speak of names; `decide_placement` is `place_partitions` for a
group that is in numbers already.
"""

from collections.abc import Mapping

import numpy as np

from trimtab.assignor.closed_mode import spread_load
from trimtab.assignor.fill_levels import PlacementDecision, evaluate_placement
from trimtab.assignor.heuristics.heuristic import Heuristic, run_heuristic
from trimtab.assignor.heuristics.registry import get_heuristic
from trimtab.assignor.model import (
    UNASSIGNED,
    ConsumerGroup,
    IntArray,
    Load,
    PlacementPlan,
    PlacementPolicy,
    TopicPartition,
)
from trimtab.assignor.move_reasons import DecidedMoves, list_plan_notes
from trimtab.assignor.open_mode import pack_open_mode
from trimtab.assignor.problem import (
    IndexedGroup,
    IndexedProblem,
    build_problem,
    build_problem_from_index,
    index_group,
)


def place_partitions(group: ConsumerGroup, load: Load, policy: PlacementPolicy) -> PlacementPlan:
    """Give every partition that some member subscribes to one member that reads it (closed mode).

    With `policy.consolidate` the heuristic packs the members as full as the headroom allows.
    Without it, when no write speed is known, or when something would fit nowhere, the load is
    spread (`trimtab.assignor.closed_mode`). A heuristic that does not pack by capacity is simply
    applied.

    Raises InvalidProblemError, UnknownHeuristicError, BrokenHeuristicError.
    """
    return _build_plan(decide_placement(index_group(group), load, policy))


def size_group(group: ConsumerGroup, load: Load, policy: PlacementPolicy) -> PlacementPlan:
    """Find how many consumers the load needs: `consumers` of the plan (open mode).

    Members that are left empty may stop; those to be added have the policy's capacity, subscribe to
    everything and are called "+1", "+2" and so on. A heuristic that does not count gets the fewest
    members whose capacities add up to the load, at least one (`trimtab.assignor.open_mode`).
    `policy.consolidate` makes no difference here.

    Raises InvalidProblemError, UnknownHeuristicError, BrokenHeuristicError.
    """
    entry = get_heuristic(policy.heuristic)
    framed = build_problem(group, load, policy, open_mode=True, weigh_racks=entry.weighs_racks)
    return _build_plan(evaluate_placement(framed, policy, pack_open_mode(entry, framed.problem)))


def decide_placement(
    indexed_group: IndexedGroup, load: Load, policy: PlacementPolicy
) -> PlacementDecision:
    """Place a group that is in numbers already; rules and errors are those of `place_partitions`."""
    entry = get_heuristic(policy.heuristic)
    framed = build_problem_from_index(indexed_group, load, policy, weigh_racks=entry.weighs_racks)
    bins = _pack_unless_spread(entry, framed, policy)
    if bins is not None:
        return evaluate_placement(framed, policy, bins)
    return evaluate_placement(framed, policy, spread_load(entry, framed.problem), is_spread=True)


def _pack_unless_spread(
    entry: Heuristic, indexed: IndexedProblem, policy: PlacementPolicy
) -> IntArray | None:
    """Return the heuristic's own answer; None where the load is to be spread."""
    if entry.packs_by_capacity and not (policy.consolidate and indexed.measured.any()):
        return None
    bins = run_heuristic(entry, indexed.problem)
    return None if (bins == UNASSIGNED).any() else bins


def _build_plan(decision: PlacementDecision) -> PlacementPlan:
    universe = decision.indexed.indexed_group.partition_index
    return PlacementPlan(
        assignment=_list_assignment(decision),
        moves=tuple(DecidedMoves(decision)),
        r_score=decision.r_score,
        consumers=int(np.count_nonzero(decision.after.count)),
        fill=float(decision.after.fill.max(initial=0.0)),
        notes=list_plan_notes(decision),
        unassigned=tuple(map(universe.partition_at, decision.indexed.unassigned.tolist())),
        cross_rack_load=decision.cross_rack_load,
    )


def _list_assignment(decision: PlacementDecision) -> Mapping[str, tuple[TopicPartition, ...]]:
    everybody = {*(m.id for m in decision.indexed.indexed_group.members), *decision.names}
    held: dict[str, list[TopicPartition]] = {name: [] for name in sorted(everybody)}
    for partition, number in zip(decision.indexed.partitions, decision.bins.tolist(), strict=True):
        held[decision.names[number]].append(partition)
    return {name: tuple(partitions) for name, partitions in held.items()}
