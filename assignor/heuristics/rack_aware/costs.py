"""What an assignment costs after KIP-925: cross-rack traffic and moves.

A partition whose owner has no replica in its rack costs `traffic` times its write speed, one that
changes its owner costs `non_overlap`. Speeds count in means of all of them, so that where all
write alike a partition costs what it costs in the proposal: the one or the other.
"""

from dataclasses import dataclass

import numpy as np

from trimtab.assignor.model import UNASSIGNED, FloatArray, IntArray, PackingProblem, RackTopology


@dataclass(frozen=True, slots=True)
class RackCosts:
    """The proposal's settings.

    The defaults are those of its default assignor; its sticky one has 1 and 10.
    """

    traffic: float = 10.0
    non_overlap: float = 1.0


@dataclass(frozen=True, slots=True)
class PartitionCosts:
    """What each of P partitions costs far from its replicas, and moved."""

    racks: RackTopology
    cross_rack: FloatArray  # (P,)
    move: FloatArray  # (P,) 0 where nobody reads it

    def total_cost(self, problem: PackingProblem, bins: IntArray) -> float:
        """Return what the bins (P,) cost together."""
        moves = (bins != UNASSIGNED) & (bins != problem.owner)
        return float(
            self.cross_rack[self.racks.find_cross_rack(bins)].sum() + self.move[moves].sum()
        )


def price_partitions(problem: PackingProblem, costs: RackCosts) -> PartitionCosts:
    """Price a closed problem; where no rack is known only moves cost."""
    count, members = len(problem.weight), len(problem.capacity)
    nowhere = RackTopology(np.zeros(members, dtype=np.int32), np.zeros((count, 1), dtype=np.bool_))
    racks = problem.racks or nowhere
    mean = float(problem.weight.mean()) if count else 0.0
    toll = costs.traffic * problem.weight / mean if mean > 0 else np.zeros(count)
    moves = np.where(problem.owner != UNASSIGNED, costs.non_overlap, 0.0)
    return PartitionCosts(racks, np.where(racks.remote.any(axis=1), toll, 0.0), moves)
