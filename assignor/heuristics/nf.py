"""Next fit: partitions in order, each into the last opened bin, else a new one."""

from typing import Final

from trimtab.assignor.heuristics.heuristic import Heuristic
from trimtab.assignor.model import IntArray, PackingProblem
from trimtab.assignor.packing import find_next_fit, order_as_given, pack_any_fit


def pack_next_fit(problem: PackingProblem) -> IntArray:
    """Pack by next fit; source: the paper's sections II-B and IV-C."""
    return pack_any_fit(problem, find_next_fit, order_as_given(problem))


NEXT_FIT: Final = Heuristic(
    name="nf",
    pack=pack_next_fit,
    summary="next fit: partitions in order, into the last opened bin, else a new one",
    source="Kafka Consumer Group Autoscaler, II-B and IV-C",
    idempotent=True,
)
