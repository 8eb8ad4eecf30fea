"""Worst fit decreasing: largest first, each into the emptiest open bin."""

from typing import Final

from trimtab.assignor.heuristics.heuristic import Heuristic
from trimtab.assignor.model import IntArray, PackingProblem
from trimtab.assignor.packing import find_worst_fit, order_decreasing, pack_any_fit


def pack_worst_fit_decreasing(problem: PackingProblem) -> IntArray:
    """Pack by worst fit decreasing; source: the paper's sections II-B and IV-C."""
    return pack_any_fit(problem, find_worst_fit, order_decreasing(problem))


WORST_FIT_DECREASING: Final = Heuristic(
    name="wfd",
    pack=pack_worst_fit_decreasing,
    summary="worst fit decreasing: largest first, into the emptiest open bin",
    source="Kafka Consumer Group Autoscaler, II-B and IV-C",
    idempotent=True,
)
