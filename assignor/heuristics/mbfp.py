"""Modified best fit partition: Algorithm 1 with best fit, consumers by largest partition."""

from typing import Final

from trimtab.assignor.heuristics.heuristic import Heuristic
from trimtab.assignor.heuristics.modified_any_fit import (
    pack_modified_any_fit,
    rank_by_largest_partition,
)
from trimtab.assignor.model import IntArray, PackingProblem
from trimtab.assignor.packing import find_best_fit


def pack_modified_best_fit_partition(problem: PackingProblem) -> IntArray:
    """Pack by modified best fit partition; source: the paper's Algorithm 1 and Table II."""
    return pack_modified_any_fit(problem, find_best_fit, rank_by_largest_partition)


MODIFIED_BEST_FIT_PARTITION: Final = Heuristic(
    name="mbfp",
    pack=pack_modified_best_fit_partition,
    summary="modified best fit partition: Algorithm 1, consumers by largest partition",
    source="Kafka Consumer Group Autoscaler, Algorithm 1 and Table II",
)
