"""Worst fit decreasing: largest first, each into the emptiest open bin."""

from typing import Final

from trimtab.assignor.heuristics.heuristic import Heuristic
from trimtab.assignor.model import IntArray, Problem
from trimtab.assignor.packing import any_fit, decreasing, worst_fit


def pack(problem: Problem) -> IntArray:
    """Pack by worst fit decreasing; source: the paper's sections II-B and IV-C."""
    return any_fit(problem, worst_fit, decreasing(problem))


HEURISTIC: Final = Heuristic(
    name="wfd",
    pack=pack,
    summary="worst fit decreasing: largest first, into the emptiest open bin",
    source="Kafka Consumer Group Autoscaler, II-B and IV-C",
    settles=True,
)
