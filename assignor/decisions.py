"""The two decisions: partition placement (`place_partitions`) and group size (`size_group`).

Both are pure and deterministic: equal input gives equal bytes, in any order of members and
partitions. A rebalance calls `decide_placement`, which works on arrays instead of names.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

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
from trimtab.assignor.partition_index import PartitionIndex
from trimtab.assignor.problem import IndexedGroup, IndexedProblem, build_problem, index_group
from trimtab.assignor.racks.replica_racks import ReplicaRacks


def place_partitions(group: ConsumerGroup, load: Load, policy: PlacementPolicy) -> PlacementPlan:
    """Assign every subscribed partition to one of the members (closed mode).

    With `policy.consolidate` the heuristic packs the members as full as the headroom allows.
    Without it, if no write rate is known, or if a partition fits no member, the load is spread
    (`trimtab.assignor.closed_mode`). A heuristic that does not pack by capacity is applied as is.

    Raises InvalidProblemError, UnknownHeuristicError, BrokenHeuristicError.
    """
    return _build_plan(decide_placement(index_group(group), load, policy))


def size_group(group: ConsumerGroup, load: Load, policy: PlacementPolicy) -> PlacementPlan:
    """Return a plan with as many consumers as the load needs: `plan.consumers` (open mode).

    Empty members may stop. Added members have the policy's capacity, subscribe to all topics and
    are called "+1", "+2" and so on. A heuristic that does not pack by capacity gets the fewest
    members whose capacities add up to the load, at least one (`trimtab.assignor.open_mode`).
    `policy.consolidate` has no effect.

    Raises InvalidProblemError, UnknownHeuristicError, BrokenHeuristicError.
    """
    entry = get_heuristic(policy.heuristic)
    indexed = build_problem(group, load, policy, open_mode=True, weigh_racks=entry.weighs_racks)
    return _build_plan(evaluate_placement(indexed, policy, pack_open_mode(entry, indexed.problem)))


def decide_placement(
    indexed_group: IndexedGroup,
    load: Load,
    policy: PlacementPolicy,
    load_replica_racks: Callable[[PartitionIndex], ReplicaRacks] | None = None,
) -> PlacementDecision:
    """Place an indexed group by the rules of `place_partitions`, with the same errors.

    `load_replica_racks` is called only if the heuristic weighs racks.
    """
    entry = get_heuristic(policy.heuristic)
    if entry.weighs_racks and load_replica_racks is not None:
        racks = load_replica_racks(indexed_group.partition_index)
        indexed_group = replace(indexed_group, replica_racks=racks)
    indexed = build_problem(indexed_group, load, policy, weigh_racks=entry.weighs_racks)
    bins = _pack_unless_spread(entry, indexed, policy)
    if bins is not None:
        return evaluate_placement(indexed, policy, bins)
    return evaluate_placement(indexed, policy, spread_load(entry, indexed.problem), is_spread=True)


def _pack_unless_spread(
    entry: Heuristic, indexed: IndexedProblem, policy: PlacementPolicy
) -> IntArray | None:
    """Return the heuristic's bins, or None if the load shall be spread."""
    # Consolidating by unknown write rates would fill members by count and overload them.
    if entry.packs_by_capacity and not (policy.consolidate and indexed.measured.any()):
        return None
    bins = run_heuristic(entry, indexed.problem)
    return None if (bins == UNASSIGNED).any() else bins


def _build_plan(decision: PlacementDecision) -> PlacementPlan:
    partition_index = decision.indexed.indexed_group.partition_index
    return PlacementPlan(
        assignment=_list_assignment(decision),
        moves=tuple(DecidedMoves(decision)),
        r_score=decision.r_score,
        consumers=int(np.count_nonzero(decision.after.count)),
        fill=float(decision.after.fill.max(initial=0.0)),
        notes=list_plan_notes(decision),
        unassigned=tuple(map(partition_index.partition_at, decision.indexed.unassigned.tolist())),
        cross_rack_load=decision.cross_rack_load,
    )


def _list_assignment(decision: PlacementDecision) -> Mapping[str, tuple[TopicPartition, ...]]:
    names = {*(m.id for m in decision.indexed.indexed_group.members), *decision.names}
    held: dict[str, list[TopicPartition]] = {name: [] for name in sorted(names)}
    for partition, number in zip(decision.indexed.partitions, decision.bins.tolist(), strict=True):
        held[decision.names[number]].append(partition)
    return {name: tuple(partitions) for name, partitions in held.items()}
