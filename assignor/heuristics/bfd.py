"""Best fit decreasing: largest first, each into the fullest open bin that holds it."""

from typing import Final

from trimtab.assignor.heuristics.heuristic import Heuristic
from trimtab.assignor.model import IntArray, PackingProblem
from trimtab.assignor.packing import find_best_fit, order_decreasing, pack_any_fit


def pack_best_fit_decreasing(problem: PackingProblem) -> IntArray:
    """Pack by best fit decreasing; source: the paper's sections II-B and IV-C."""
    return pack_any_fit(problem, find_best_fit, order_decreasing(problem))


BEST_FIT_DECREASING: Final = Heuristic(
    name="bfd",
    pack=pack_best_fit_decreasing,
    summary="best fit decreasing: largest first, into the fullest open bin that holds it",
    source="Kafka Consumer Group Autoscaler, II-B and IV-C",
    idempotent=True,
)
