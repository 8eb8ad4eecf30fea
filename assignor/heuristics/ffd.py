"""First fit decreasing: largest first, each into the first open bin that holds it."""

from typing import Final

from trimtab.assignor.heuristics.heuristic import Heuristic
from trimtab.assignor.model import IntArray, PackingProblem
from trimtab.assignor.packing import find_first_fit, order_decreasing, pack_any_fit


def pack_first_fit_decreasing(problem: PackingProblem) -> IntArray:
    """Pack by first fit decreasing; source: the paper's sections II-B and IV-C."""
    return pack_any_fit(problem, find_first_fit, order_decreasing(problem))


FIRST_FIT_DECREASING: Final = Heuristic(
    name="ffd",
    pack=pack_first_fit_decreasing,
    summary="first fit decreasing: largest first, into the first open bin that holds it",
    source="Kafka Consumer Group Autoscaler, II-B and IV-C",
    idempotent=True,
)
