"""Cost of an assignment by KIP-925: cross-rack traffic and moves."""

from dataclasses import dataclass

import numpy as np

from trimtab.assignor.model import UNASSIGNED, FloatArray, IntArray, PackingProblem, RackTopology


@dataclass(frozen=True, slots=True)
class RackCosts:
    """Costs per partition; the defaults are KIP-925's for its default assignor (sticky: 1, 10)."""

    traffic: float = 10.0  # of a partition of the mean write rate, read across racks
    non_overlap: float = 1.0  # of a moved partition


@dataclass(frozen=True, slots=True)
class PartitionCosts:
    """Cost of each of P partitions if read across racks, and if moved."""

    racks: RackTopology
    cross_rack: FloatArray  # (P,)
    move: FloatArray  # (P,) 0 without an owner

    def total_cost(self, problem: PackingProblem, bins: IntArray) -> float:
        """Return the total cost of the bins (P,)."""
        moves = (bins != UNASSIGNED) & (bins != problem.owner)
        return float(self.cross_rack[self.racks.find_cross_rack(bins)].sum() + self.move[moves].sum())


def price_partitions(problem: PackingProblem, costs: RackCosts) -> PartitionCosts:
    """Return the costs of a closed problem; without known racks only moves cost."""
    count, members = len(problem.weight), len(problem.capacity)
    unknown = RackTopology(np.zeros(members, dtype=np.int32), np.zeros((count, 1), dtype=np.bool_))
    racks = problem.racks or unknown
    mean = float(problem.weight.mean()) if count else 0.0
    # The proposal counts partitions; by write rate, equal rates give its costs.
    traffic = costs.traffic * problem.weight / mean if mean > 0 else np.zeros(count)
    moves = np.where(problem.owner != UNASSIGNED, costs.non_overlap, 0.0)
    return PartitionCosts(racks, np.where(racks.remote.any(axis=1), traffic, 0.0), moves)
