"""Modified best fit partition: Algorithm 1 with best fit, consumers by largest partition."""

from typing import Final

from trimtab.assignor.heuristics.heuristic import Heuristic
from trimtab.assignor.heuristics.modified_any_fit import by_largest, modified_any_fit
from trimtab.assignor.model import IntArray, Problem
from trimtab.assignor.packing import best_fit


def pack(problem: Problem) -> IntArray:
    """Pack by modified best fit partition; source: the paper's Algorithm 1 and Table II."""
    return modified_any_fit(problem, best_fit, by_largest)


HEURISTIC: Final = Heuristic(
    name="mbfp",
    pack=pack,
    summary="modified best fit partition: Algorithm 1, consumers by largest partition",
    source="Kafka Consumer Group Autoscaler, Algorithm 1 and Table II",
)
