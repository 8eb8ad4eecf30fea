"""Best fit: partitions in order, each into the fullest open bin that holds it."""

from typing import Final

from trimtab.assignor.heuristics.heuristic import Heuristic
from trimtab.assignor.model import IntArray, Problem
from trimtab.assignor.packing import any_fit, as_given, best_fit


def pack(problem: Problem) -> IntArray:
    """Pack by best fit; source: the paper's sections II-B and IV-C."""
    return any_fit(problem, best_fit, as_given(problem))


HEURISTIC: Final = Heuristic(
    name="bf",
    pack=pack,
    summary="best fit: partitions in order, into the fullest open bin that holds it",
    source="Kafka Consumer Group Autoscaler, II-B and IV-C",
    settles=True,
)
