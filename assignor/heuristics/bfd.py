"""Best fit decreasing: largest first, each into the fullest open bin that holds it."""

from typing import Final

from trimtab.assignor.heuristics.heuristic import Heuristic
from trimtab.assignor.model import IntArray, Problem
from trimtab.assignor.packing import any_fit, best_fit, decreasing


def pack(problem: Problem) -> IntArray:
    """Pack by best fit decreasing; source: the paper's sections II-B and IV-C."""
    return any_fit(problem, best_fit, decreasing(problem))


HEURISTIC: Final = Heuristic(
    name="bfd",
    pack=pack,
    summary="best fit decreasing: largest first, into the fullest open bin that holds it",
    source="Kafka Consumer Group Autoscaler, II-B and IV-C",
    settles=True,
)
