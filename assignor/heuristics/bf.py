"""Best fit: partitions in order, each into the fullest open bin that holds it."""

from typing import Final

from trimtab.assignor.heuristics.heuristic import Heuristic
from trimtab.assignor.model import IntArray, PackingProblem
from trimtab.assignor.packing import find_best_fit, order_as_given, pack_any_fit


def pack_best_fit(problem: PackingProblem) -> IntArray:
    """Pack by best fit; source: the paper's sections II-B and IV-C."""
    return pack_any_fit(problem, find_best_fit, order_as_given(problem))


BEST_FIT: Final = Heuristic(
    name="bf",
    pack=pack_best_fit,
    summary="best fit: partitions in order, into the fullest open bin that holds it",
    source="Kafka Consumer Group Autoscaler, II-B and IV-C",
    idempotent=True,
)
