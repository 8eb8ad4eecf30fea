"""Next fit decreasing: largest first, each into the last opened bin, else a new one."""

from typing import Final

from trimtab.assignor.heuristics.heuristic import Heuristic
from trimtab.assignor.model import IntArray, Problem
from trimtab.assignor.packing import any_fit, decreasing, next_fit


def pack(problem: Problem) -> IntArray:
    """Pack by next fit decreasing; source: the paper's sections II-B and IV-C."""
    return any_fit(problem, next_fit, decreasing(problem))


HEURISTIC: Final = Heuristic(
    name="nfd",
    pack=pack,
    summary="next fit decreasing: largest first, into the last opened bin, else a new one",
    source="Kafka Consumer Group Autoscaler, II-B and IV-C",
    settles=True,
)
