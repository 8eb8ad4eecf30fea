"""Modified worst fit partition: Algorithm 1 with worst fit, consumers by largest partition."""

from typing import Final

from trimtab.assignor.heuristics.heuristic import Heuristic
from trimtab.assignor.heuristics.modified_any_fit import by_largest, modified_any_fit
from trimtab.assignor.model import IntArray, Problem
from trimtab.assignor.packing import worst_fit


def pack(problem: Problem) -> IntArray:
    """Pack by modified worst fit partition; source: the paper's Algorithm 1 and Table II."""
    return modified_any_fit(problem, worst_fit, by_largest)


HEURISTIC: Final = Heuristic(
    name="mwfp",
    pack=pack,
    summary="modified worst fit partition: Algorithm 1, consumers by largest partition",
    source="Kafka Consumer Group Autoscaler, Algorithm 1 and Table II",
)
