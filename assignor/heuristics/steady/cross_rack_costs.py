"""What crossing racks costs: κ of a consumer for one consumer's worth of load.

A consumer to be added has no rack yet. It is expected where the members are, so a partition costs
there what it costs on average over the members whose rack is known: to open a consumer is no way
around a toll.
"""

from dataclasses import dataclass

import numpy as np

from trimtab.assignor.model import FloatArray, IntArray, Problem


@dataclass(frozen=True, slots=True)
class Tolls:
    """Prices in consumers: those of the R racks, of the unknown one (0), and of members to come."""

    rack: IntArray  # (bins,) column of each bin
    toll: FloatArray  # (P, R + 2)


def tolls(problem: Problem, price: float) -> Tolls | None:
    """Return the tolls at so many consumers a byte/s; None where nothing costs any."""
    if problem.racks is None or price == 0 or not problem.racks.far.any():
        return None
    racks = problem.racks
    unknown = racks.far.shape[1] - 1
    there = np.bincount(racks.at[racks.at != unknown], minlength=unknown)
    chance = racks.far[:, :unknown] @ there / max(1, int(there.sum()))
    share = np.column_stack([racks.far, chance])
    added = 0 if problem.spare is None else len(problem.weight)
    return Tolls(
        rack=np.append(racks.at, np.full(added, unknown + 1)).astype(np.int32),
        toll=np.ascontiguousarray(price * problem.weight[:, None] * share),
    )
