"""What crosses racks as things are, whatever heuristic brought it about."""

from dataclasses import dataclass

from trimtab.assignor.model import ConsumerGroup, Load, PlacementPolicy
from trimtab.assignor.problem import build_problem
from trimtab.assignor.racks.rack_warnings import (
    find_racks_without_members,
    find_without_local_replica,
    list_rack_warnings,
)


@dataclass(frozen=True, slots=True)
class CrossRackTraffic:
    """Load that is read from other racks (bytes/s), of so many partitions.

    `without_local_replica` partitions have no replica in the rack of any member: they cross with whoever reads
    them. `racks_without_members` are racks with replicas in which no member says it is; `notes` say all of that,
    and what is not known.
    """

    load: float
    partitions: int
    without_local_replica: int
    racks_without_members: tuple[str, ...]
    notes: tuple[str, ...]


def measure_cross_rack_traffic(group: ConsumerGroup, load: Load) -> CrossRackTraffic:
    """Tell what crosses racks; who drains reads nothing here. Raises InvalidProblemError."""
    framed = build_problem(group, load, PlacementPolicy(), weigh_racks=True)
    problem, racks = framed.problem, framed.problem.racks
    assert racks is not None, "it was asked for"
    crosses = racks.find_cross_rack(problem.owner)
    return CrossRackTraffic(
        load=float(problem.weight[crosses].sum()),
        partitions=int(crosses.sum()),
        without_local_replica=len(find_without_local_replica(racks)),
        racks_without_members=find_racks_without_members(framed),
        notes=tuple(list_rack_warnings(framed)),
    )
