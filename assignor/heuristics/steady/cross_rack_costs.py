"""What crossing racks costs: κ of a consumer for one consumer's worth of load.

A consumer to be added has no rack yet. It is expected where the members are, so a partition costs
there what it costs on average over the members whose rack is known: to open a consumer is no way
around a toll.
"""

from dataclasses import dataclass

import numpy as np

from trimtab.assignor.model import FloatArray, IntArray, PackingProblem


@dataclass(frozen=True, slots=True)
class CrossRackCosts:
    """Prices in consumers: those of the R racks, of the unknown one (0), and of members to come."""

    rack_of_bin: IntArray  # (bins,) column of each bin
    cross_rack_cost: FloatArray  # (P, R + 2)


def compute_cross_rack_costs(
    problem: PackingProblem, cost_per_byte: float
) -> CrossRackCosts | None:
    """Return the tolls at so many consumers a byte/s; None where nothing costs any."""
    if problem.racks is None or cost_per_byte == 0 or not problem.racks.remote.any():
        return None
    racks = problem.racks
    unknown = racks.remote.shape[1] - 1
    there = np.bincount(racks.member_rack[racks.member_rack != unknown], minlength=unknown)
    chance = racks.remote[:, :unknown] @ there / max(1, int(there.sum()))
    share = np.column_stack([racks.remote, chance])
    added = 0 if problem.new_member_capacity is None else len(problem.weight)
    return CrossRackCosts(
        rack_of_bin=np.append(racks.member_rack, np.full(added, unknown + 1)).astype(np.int32),
        cross_rack_cost=np.ascontiguousarray(cost_per_byte * problem.weight[:, None] * share),
    )
