"""Next fit decreasing: largest first, each into the last opened bin, else a new one."""

from typing import Final

from trimtab.assignor.heuristics.heuristic import Heuristic
from trimtab.assignor.model import IntArray, PackingProblem
from trimtab.assignor.packing import find_next_fit, order_decreasing, pack_any_fit


def pack_next_fit_decreasing(problem: PackingProblem) -> IntArray:
    """Pack by next fit decreasing; source: the paper's sections II-B and IV-C."""
    return pack_any_fit(problem, find_next_fit, order_decreasing(problem))


NEXT_FIT_DECREASING: Final = Heuristic(
    name="nfd",
    pack=pack_next_fit_decreasing,
    summary="next fit decreasing: largest first, into the last opened bin, else a new one",
    source="Kafka Consumer Group Autoscaler, II-B and IV-C",
    idempotent=True,
)
