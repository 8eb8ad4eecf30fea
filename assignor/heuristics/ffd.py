"""First fit decreasing: largest first, each into the first open bin that holds it."""

from typing import Final

from trimtab.assignor.heuristics.heuristic import Heuristic
from trimtab.assignor.model import IntArray, Problem
from trimtab.assignor.packing import any_fit, decreasing, first_fit


def pack(problem: Problem) -> IntArray:
    """Pack by first fit decreasing; source: the paper's sections II-B and IV-C."""
    return any_fit(problem, first_fit, decreasing(problem))


HEURISTIC: Final = Heuristic(
    name="ffd",
    pack=pack,
    summary="first fit decreasing: largest first, into the first open bin that holds it",
    source="Kafka Consumer Group Autoscaler, II-B and IV-C",
    settles=True,
)
