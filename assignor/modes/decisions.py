"""The two decisions: partition placement (`place_partitions`) and group size (`size_group`).

Both are pure and deterministic: equal input gives equal bytes, in any order of members and partitions.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from trimtab.assignor.heuristics.registry import get_heuristic
from trimtab.assignor.model import (
    UNASSIGNED,
    ConsumerGroup,
    IntArray,
    Load,
    PackingProblem,
    PlacementPlan,
    PlacementPolicy,
    TopicPartition,
)
from trimtab.assignor.model.heuristic import Heuristic, run_heuristic
from trimtab.assignor.model.load_arrays import has_unknown_lag
from trimtab.assignor.model.partition_index import PartitionIndex
from trimtab.assignor.model.problem import IndexedGroup, build_problem, index_group
from trimtab.assignor.model.replica_racks import ReplicaRacks
from trimtab.assignor.modes.closed_mode import spread_load
from trimtab.assignor.modes.exact_mode import pack_exactly
from trimtab.assignor.modes.move_reasons import DecidedMoves, list_plan_notes
from trimtab.assignor.modes.open_mode import close_problem, pack_open_mode
from trimtab.assignor.modes.task_groups import merge_tasks
from trimtab.assignor.scores.feasibility import confine_partitions
from trimtab.assignor.scores.fill_levels import PlacementDecision, evaluate_placement


def place_partitions(
    group: ConsumerGroup,
    load: Load,
    policy: PlacementPolicy,
    added: int = 0,
    *,
    partition_index: PartitionIndex | None = None,
) -> PlacementPlan:
    """Assign every subscribed partition to one of the members (closed mode).

    The `added` members "+1", "+2" and so on have the policy's capacity and subscribe to all topics.
    A caller that decides several times on the same partitions gives their index.

    With `policy.consolidate` the members are packed within the headroom if such a placement is found
    (`trimtab.assignor.modes.exact_mode`). Without it, or if no write rate is known, the load is spread
    (`trimtab.assignor.modes.closed_mode`). A heuristic that does not pack by capacity is applied as is.

    Raises InvalidProblemError, UnknownHeuristicError, BrokenHeuristicError.
    """
    return _build_plan(decide_placement(index_group(group, partition_index), load, policy, added=added))


def size_group(
    group: ConsumerGroup,
    load: Load,
    policy: PlacementPolicy,
    *,
    partition_index: PartitionIndex | None = None,
) -> PlacementPlan:
    """Return a plan with as many consumers as the load needs: `plan.consumers` (open mode).

    Empty members may stop. Added members have the policy's capacity and subscribe to all topics. No
    member gets a partition beyond its capacity that another one can hold. A heuristic that does not pack
    by capacity gets the fewest members whose capacities add up to the load, at least one (`open_mode`).
    `policy.consolidate` has no effect. A caller that decides several times on the same partitions gives
    their index.

    Raises InvalidProblemError, UnknownHeuristicError, BrokenHeuristicError.
    """
    entry = get_heuristic(policy.heuristic)
    indexed_group = index_group(group, partition_index)
    indexed = build_problem(indexed_group, load, policy, open_mode=True, weigh_racks=entry.weighs_racks)
    tasks = merge_tasks(indexed, policy.co_partitioned)
    problem = confine_partitions(tasks.problem) if entry.packs_by_capacity else tasks.problem
    bins = tasks.expand(pack_open_mode(entry, problem))
    return _build_plan(evaluate_placement(indexed, policy, bins))


def decide_placement(
    group: IndexedGroup,
    load: Load,
    policy: PlacementPolicy,
    load_replica_racks: Callable[[PartitionIndex], ReplicaRacks] | None = None,
    *,
    load_lags: Callable[[PartitionIndex], Mapping[TopicPartition, float | None]] | None = None,
    added: int = 0,
) -> PlacementDecision:
    """Place an indexed group by the rules of `place_partitions`, with the same errors."""
    entry = get_heuristic(policy.heuristic)
    if entry.weighs_racks and load_replica_racks is not None:
        # Only now: a rebalance has no racks at hand, and converting them takes time.
        group = replace(group, replica_racks=load_replica_racks(group.partition_index))
    if entry.places_by_lag and load_lags is not None and has_unknown_lag(load, group.partition_index):
        load = replace(load, lags=load_lags(group.partition_index))
    indexed = build_problem(
        group,
        load,
        policy,
        open_mode=added > 0,
        weigh_racks=entry.weighs_racks,
        place_by_lag=entry.places_by_lag,
    )
    tasks = merge_tasks(indexed, policy.co_partitioned)
    problem = close_problem(tasks.problem, np.arange(len(indexed.eligible), dtype=np.int32), added)
    # Consolidating by unknown write rates would fill members by count and overload them.
    consolidate = policy.consolidate and bool(indexed.measured.any())
    bins, is_spread = _place_closed(entry, problem, consolidate=consolidate)
    return evaluate_placement(indexed, policy, tasks.expand(bins), is_spread=is_spread, added=added)


def _place_closed(entry: Heuristic, problem: PackingProblem, *, consolidate: bool) -> tuple[IntArray, bool]:
    """Return the member of each partition (P,), and whether the load is spread."""
    if not entry.packs_by_capacity:
        bins = run_heuristic(entry, problem)
        if (bins != UNASSIGNED).all():
            return bins, False
    elif consolidate:
        return pack_exactly(entry, problem)
    return spread_load(entry, problem), True


def _build_plan(decision: PlacementDecision) -> PlacementPlan:
    index = decision.indexed.group.partition_index
    held: dict[str, list[TopicPartition]] = {m.id: [] for m in decision.indexed.group.members}
    held |= {name: [] for name in decision.names}
    for partition, number in zip(decision.indexed.partitions, decision.bins.tolist(), strict=True):
        held[decision.names[number]].append(partition)
    return PlacementPlan(
        assignment={name: tuple(held[name]) for name in sorted(held)},
        moves=DecidedMoves(decision),
        r_score=decision.r_score,
        consumers=int(np.count_nonzero(decision.after.count)),
        fill=float(decision.after.fill.max(initial=0.0)),
        notes=list_plan_notes(decision),
        unassigned=tuple(map(index.partition_at, decision.indexed.unassigned.tolist())),
        cross_rack_load=decision.cross_rack_load,
    )
