"""Cross-rack traffic of the current owners, for any heuristic."""

from dataclasses import dataclass

from trimtab.assignor.model import ConsumerGroup, Load, PlacementPolicy
from trimtab.assignor.model.problem import build_problem, index_group
from trimtab.assignor.racks.rack_warnings import (
    find_racks_without_members,
    find_without_local_replica,
    list_rack_warnings,
)


@dataclass(frozen=True, slots=True)
class CrossRackTraffic:
    """Cross-rack reads of a group."""

    load: float  # bytes/s
    partitions: int
    without_local_replica: int  # partitions that cross racks with every owner
    racks_without_members: tuple[str, ...]  # of replicas
    notes: tuple[str, ...]  # on both, and on unknown racks


def measure_cross_rack_traffic(group: ConsumerGroup, load: Load) -> CrossRackTraffic:
    """Measure cross-rack traffic; draining members do not count. Raises InvalidProblemError."""
    indexed = build_problem(index_group(group), load, PlacementPolicy(), weigh_racks=True)
    problem = indexed.problem
    racks = problem.racks
    assert racks is not None, "built with weigh_racks"
    crosses = racks.find_cross_rack(problem.owner)
    return CrossRackTraffic(
        load=float(problem.weight[crosses].sum()),
        partitions=int(crosses.sum()),
        without_local_replica=len(find_without_local_replica(racks)),
        racks_without_members=find_racks_without_members(indexed),
        notes=tuple(list_rack_warnings(indexed)),
    )
