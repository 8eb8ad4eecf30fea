"""Cost of cross-rack load: κ consumers per consumer's worth of load."""

from dataclasses import dataclass

import numpy as np

from trimtab.assignor.model import FloatArray, IntArray, PackingProblem


@dataclass(frozen=True, slots=True)
class CrossRackCosts:
    """Costs in consumers for the R racks, the unknown rack (0), and added members."""

    rack_of_bin: IntArray  # (bins,) column of each bin
    cross_rack_cost: FloatArray  # (P, R + 2)


def compute_cross_rack_costs(problem: PackingProblem, cost_per_byte: float) -> CrossRackCosts | None:
    """Return the costs at `cost_per_byte` consumers per byte/s; None if all are 0."""
    if problem.racks is None or cost_per_byte == 0 or not problem.racks.remote.any():
        return None
    racks = problem.racks
    unknown = racks.remote.shape[1] - 1
    members = np.bincount(racks.member_rack[racks.member_rack != unknown], minlength=unknown)
    # An added member's rack is unknown: the mean over the members. At no cost it would be a way
    # around the cost of any rack.
    expected = racks.remote[:, :unknown] @ members / max(1, int(members.sum()))
    share = np.column_stack([racks.remote, expected])
    added = 0 if problem.new_member_capacity is None else len(problem.weight)
    return CrossRackCosts(
        rack_of_bin=np.append(racks.member_rack, np.full(added, unknown + 1)).astype(np.int32),
        cross_rack_cost=np.ascontiguousarray(cost_per_byte * problem.weight[:, None] * share),
    )
