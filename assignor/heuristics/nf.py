"""Next fit: partitions in order, each into the last opened bin, else a new one."""

from typing import Final

from trimtab.assignor.heuristics.heuristic import Heuristic
from trimtab.assignor.model import IntArray, Problem
from trimtab.assignor.packing import any_fit, as_given, next_fit


def pack(problem: Problem) -> IntArray:
    """Pack by next fit; source: the paper's sections II-B and IV-C."""
    return any_fit(problem, next_fit, as_given(problem))


HEURISTIC: Final = Heuristic(
    name="nf",
    pack=pack,
    summary="next fit: partitions in order, into the last opened bin, else a new one",
    source="Kafka Consumer Group Autoscaler, II-B and IV-C",
    settles=True,
)
