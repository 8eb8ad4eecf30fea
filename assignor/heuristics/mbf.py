"""Modified best fit: Algorithm 1 with best fit, consumers by total load."""

from typing import Final

from trimtab.assignor.heuristics.heuristic import Heuristic
from trimtab.assignor.heuristics.modified_any_fit import pack_modified_any_fit, rank_by_total_load
from trimtab.assignor.model import IntArray, PackingProblem
from trimtab.assignor.packing import find_best_fit


def pack_modified_best_fit(problem: PackingProblem) -> IntArray:
    """Pack by modified best fit; source: the paper's Algorithm 1 and Table II."""
    return pack_modified_any_fit(problem, find_best_fit, rank_by_total_load)


MODIFIED_BEST_FIT: Final = Heuristic(
    name="mbf",
    pack=pack_modified_best_fit,
    summary="modified best fit: Algorithm 1, consumers by total load",
    source="Kafka Consumer Group Autoscaler, Algorithm 1 and Table II",
)
