"""Warnings about unknown racks and unavoidable cross-rack traffic, and reasons of rack moves."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trimtab.assignor.model import RackTopology
from trimtab.assignor.model.problem import IndexedProblem
from trimtab.assignor.model.replica_racks import ReplicaRacks
from trimtab.assignor.scores.fill_levels import PlacementDecision
from trimtab.common.units import format_name_list

MAX_NAMES_IN_WARNING: Final = 3  # a warning is one line of a log


def list_rack_warnings(indexed: IndexedProblem) -> Iterator[str]:
    """Yield the warnings; none if the heuristic does not weigh racks."""
    racks = indexed.problem.racks
    replicas = indexed.group.replica_racks
    if racks is None or replicas is None or not len(indexed.item):
        return
    missing = [m.instance or m.id for m in indexed.members if not m.rack]
    if missing:
        names = format_name_list(missing[:MAX_NAMES_IN_WARNING], len(missing))
        yield f"unknown rack of {names} (client.rack): their reads do not count as cross-rack"
    unknown = np.flatnonzero(~replicas.known[indexed.item])
    if unknown.size:
        names = _join_partition_names(indexed, unknown)
        yield (
            f"unknown rack of brokers with replicas of {names} (broker.rack): "
            "reads of them do not count as cross-rack"
        )
    yield from _warn_unmatched_racks(indexed, replicas)
    far = find_without_local_replica(racks)
    if far.size:
        yield f"no member is in a rack with a replica of {_join_partition_names(indexed, far)}"


def find_racks_without_members(indexed: IndexedProblem) -> tuple[str, ...]:
    """Return the racks with replicas but without a member."""
    replicas = indexed.group.replica_racks
    occupied = {m.rack for m in indexed.members}
    return () if replicas is None else tuple(r for r in replicas.racks if r not in occupied)


def find_without_local_replica(racks: RackTopology) -> NDArray[np.intp]:
    """Return the partitions remote from every member."""
    unknown = racks.remote.shape[1] - 1
    if not unknown or (racks.member_rack == unknown).any():  # that member may be near all of them
        return np.zeros(0, dtype=np.intp)
    return np.flatnonzero(racks.remote[:, :unknown].all(axis=1))


def _warn_unmatched_racks(indexed: IndexedProblem, replica_racks: ReplicaRacks) -> Iterator[str]:
    # A rack on one side only is often a misspelt one.
    vacant = find_racks_without_members(indexed)
    if vacant:
        names = format_name_list(vacant[:MAX_NAMES_IN_WARNING], len(vacant))
        yield f"replicas are in {names}, but no member is"
    away = [m for m in indexed.members if m.rack and m.rack not in replica_racks.racks]
    if away and replica_racks.known[indexed.item].all():
        shown = [f"{m.instance or m.id} ({m.rack})" for m in away[:MAX_NAMES_IN_WARNING]]
        yield (
            f"no replica is in the rack of {format_name_list(shown, len(away))}: "
            "all they read crosses racks; check that client.rack and broker.rack use the same names"
        )


def _join_partition_names(indexed: IndexedProblem, items: NDArray[np.intp]) -> str:
    index = indexed.group.partition_index
    shown = [str(index.partition_at(int(indexed.item[i]))) for i in items[:MAX_NAMES_IN_WARNING]]
    return format_name_list(shown, len(items))


def explain_rack_move(decision: PlacementDecision, item: int) -> str:
    """Return the reason of a move to a replica's rack, or "" for any other move."""
    indexed = decision.indexed
    racks = indexed.problem.racks
    source, target = int(indexed.problem.owner[item]), int(decision.bins[item])
    if racks is None or max(source, target) >= len(racks.member_rack):
        return ""
    if not racks.remote[item, racks.member_rack[source]] or racks.remote[item, racks.member_rack[target]]:
        return ""
    before, after = (indexed.members[member].rack for member in (source, target))
    donor, recipient = decision.display_name(source), decision.display_name(target)
    return f"a replica is in rack {after} of {recipient}, none in rack {before} of {donor}"
