"""Modified worst fit: Algorithm 1 with worst fit, consumers by total load."""

from typing import Final

from trimtab.assignor.heuristics.heuristic import Heuristic
from trimtab.assignor.heuristics.modified_any_fit import pack_modified_any_fit, rank_by_total_load
from trimtab.assignor.model import IntArray, PackingProblem
from trimtab.assignor.packing import find_worst_fit


def pack_modified_worst_fit(problem: PackingProblem) -> IntArray:
    """Pack by modified worst fit; source: the paper's Algorithm 1 and Table II."""
    return pack_modified_any_fit(problem, find_worst_fit, rank_by_total_load)


MODIFIED_WORST_FIT: Final = Heuristic(
    name="mwf",
    pack=pack_modified_worst_fit,
    summary="modified worst fit: Algorithm 1, consumers by total load",
    source="Kafka Consumer Group Autoscaler, Algorithm 1 and Table II",
)
