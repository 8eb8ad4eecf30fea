"""Worst fit: partitions in order, each into the emptiest open bin."""

from typing import Final

from trimtab.assignor.heuristics.heuristic import Heuristic
from trimtab.assignor.model import IntArray, Problem
from trimtab.assignor.packing import any_fit, as_given, worst_fit


def pack(problem: Problem) -> IntArray:
    """Pack by worst fit; source: the paper's sections II-B and IV-C."""
    return any_fit(problem, worst_fit, as_given(problem))


HEURISTIC: Final = Heuristic(
    name="wf",
    pack=pack,
    summary="worst fit: partitions in order, into the emptiest open bin",
    source="Kafka Consumer Group Autoscaler, II-B and IV-C",
    settles=True,
)
