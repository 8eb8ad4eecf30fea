"""What to know about racks in a decision: where nothing is known, and what no care can help."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trimtab.assignor.fill_levels import PlacementDecision
from trimtab.assignor.model import RackTopology
from trimtab.assignor.problem import IndexedProblem
from trimtab.assignor.racks.replica_racks import ReplicaRacks
from trimtab.common.units import format_name_list

MAX_NAMES_IN_WARNING: Final = 3  # names in a list


def list_rack_warnings(indexed: IndexedProblem) -> Iterator[str]:
    """Yield what to know, nothing where the heuristic does not weigh racks."""
    racks, replicas = indexed.problem.racks, indexed.indexed_group.replica_racks
    if racks is None or replicas is None or not len(indexed.item):
        return
    missing = [m.instance or m.id for m in indexed.members if not m.rack]
    if missing:
        who = format_name_list(missing[:MAX_NAMES_IN_WARNING], len(missing))
        yield f"no rack is known of {who} (client.rack): nothing is far from them"
    unknown = np.flatnonzero(~replicas.known[indexed.item])
    if unknown.size:
        yield (
            f"no rack is known of brokers with replicas of {_join_partition_names(indexed, unknown)} "
            "(broker.rack): nothing is far of theirs"
        )
    yield from _warn_unmatched_racks(indexed, replicas)
    far = find_without_local_replica(racks)
    if far.size:
        yield f"no member is in a rack with a replica of {_join_partition_names(indexed, far)}"


def find_racks_without_members(indexed: IndexedProblem) -> tuple[str, ...]:
    """Return the racks that hold replicas and in which no member says it is."""
    replicas = indexed.indexed_group.replica_racks
    manned = {m.rack for m in indexed.members}
    return () if replicas is None else tuple(r for r in replicas.racks if r not in manned)


def find_without_local_replica(racks: RackTopology) -> NDArray[np.intp]:
    """Return the partitions that cross racks with whoever reads them; none where that is unknown.

    A member of unknown rack could be near.
    """
    unknown = racks.remote.shape[1] - 1
    if not unknown or (racks.member_rack == unknown).any():
        return np.zeros(0, dtype=np.intp)
    return np.flatnonzero(racks.remote[:, :unknown].all(axis=1))


def _warn_unmatched_racks(indexed: IndexedProblem, replica_racks: ReplicaRacks) -> Iterator[str]:
    """Name racks of one side only: a member there would save traffic; names may be misspelt."""
    lonely = find_racks_without_members(indexed)
    if lonely:
        yield f"replicas are in {format_name_list(lonely[:MAX_NAMES_IN_WARNING], len(lonely))}, but no member says it is"
    away = [m for m in indexed.members if m.rack and m.rack not in replica_racks.racks]
    if away and replica_racks.known[indexed.item].all():
        who = [f"{m.instance or m.id} ({m.rack})" for m in away[:MAX_NAMES_IN_WARNING]]
        yield (
            f"no replica is in the rack of {format_name_list(who, len(away))}: all that they read crosses "
            "racks; are racks of consumers and brokers called the same?"
        )


def _join_partition_names(indexed: IndexedProblem, items: NDArray[np.intp]) -> str:
    universe = indexed.indexed_group.partition_index
    shown = [str(universe.partition_at(int(indexed.item[i]))) for i in items[:MAX_NAMES_IN_WARNING]]
    return format_name_list(shown, len(items))


def explain_rack_move(decision: PlacementDecision, item: int) -> str:
    """Say that the item moves nearer to a replica; "" where it does not."""
    framed, racks = decision.indexed, decision.indexed.problem.racks
    source, target = int(framed.problem.owner[item]), int(decision.bins[item])
    if racks is None or max(source, target) >= len(racks.member_rack):
        return ""
    if (
        not racks.remote[item, racks.member_rack[source]]
        or racks.remote[item, racks.member_rack[target]]
    ):
        return ""
    there = [framed.members[member].rack for member in (source, target)]
    giver, taker = decision.display_name(source), decision.display_name(target)
    return f"a replica is in rack {there[1]} of {taker}, none in rack {there[0]} of {giver}"
