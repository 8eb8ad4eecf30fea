"""Worst fit: partitions in order, each into the emptiest open bin."""

from typing import Final

from trimtab.assignor.heuristics.heuristic import Heuristic
from trimtab.assignor.model import IntArray, PackingProblem
from trimtab.assignor.packing import find_worst_fit, order_as_given, pack_any_fit


def pack_worst_fit(problem: PackingProblem) -> IntArray:
    """Pack by worst fit; source: the paper's sections II-B and IV-C."""
    return pack_any_fit(problem, find_worst_fit, order_as_given(problem))


WORST_FIT: Final = Heuristic(
    name="wf",
    pack=pack_worst_fit,
    summary="worst fit: partitions in order, into the emptiest open bin",
    source="Kafka Consumer Group Autoscaler, II-B and IV-C",
    idempotent=True,
)
