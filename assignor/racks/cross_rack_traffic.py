"""Cross-rack traffic of the current owners, for any heuristic."""

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
    """Cross-rack load in bytes/s and its number of partitions.

    `without_local_replica` counts the partitions without a replica in any member's rack, which
    cross racks with every owner. `racks_without_members` hold replicas but no member. `notes`
    describe both, and unknown racks.
    """

    load: float
    partitions: int
    without_local_replica: int
    racks_without_members: tuple[str, ...]
    notes: tuple[str, ...]


def measure_cross_rack_traffic(group: ConsumerGroup, load: Load) -> CrossRackTraffic:
    """Measure cross-rack traffic; draining members do not count. Raises InvalidProblemError."""
    indexed = build_problem(group, load, PlacementPolicy(), weigh_racks=True)
    problem, racks = indexed.problem, indexed.problem.racks
    assert racks is not None, "built with weigh_racks"
    crosses = racks.find_cross_rack(problem.owner)
    return CrossRackTraffic(
        load=float(problem.weight[crosses].sum()),
        partitions=int(crosses.sum()),
        without_local_replica=len(find_without_local_replica(racks)),
        racks_without_members=find_racks_without_members(indexed),
        notes=tuple(list_rack_warnings(indexed)),
    )
