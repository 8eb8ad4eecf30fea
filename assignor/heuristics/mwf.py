"""Modified worst fit: Algorithm 1 with worst fit, consumers by total load."""

from typing import Final

from trimtab.assignor.heuristics.heuristic import Heuristic
from trimtab.assignor.heuristics.modified_any_fit import by_total, modified_any_fit
from trimtab.assignor.model import IntArray, Problem
from trimtab.assignor.packing import worst_fit


def pack(problem: Problem) -> IntArray:
    """Pack by modified worst fit; source: the paper's Algorithm 1 and Table II."""
    return modified_any_fit(problem, worst_fit, by_total)


HEURISTIC: Final = Heuristic(
    name="mwf",
    pack=pack,
    summary="modified worst fit: Algorithm 1, consumers by total load",
    source="Kafka Consumer Group Autoscaler, Algorithm 1 and Table II",
)
