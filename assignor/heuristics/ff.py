"""First fit: partitions in order, each into the first open bin that holds it."""

from typing import Final

from trimtab.assignor.heuristics.heuristic import Heuristic
from trimtab.assignor.model import IntArray, PackingProblem
from trimtab.assignor.packing import find_first_fit, order_as_given, pack_any_fit


def pack_first_fit(problem: PackingProblem) -> IntArray:
    """Pack by first fit; source: the paper's sections II-B and IV-C."""
    return pack_any_fit(problem, find_first_fit, order_as_given(problem))


FIRST_FIT: Final = Heuristic(
    name="ff",
    pack=pack_first_fit,
    summary="first fit: partitions in order, into the first open bin that holds it",
    source="Kafka Consumer Group Autoscaler, II-B and IV-C",
    idempotent=True,
)
