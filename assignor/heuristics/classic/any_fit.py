"""Next, first, worst and best fit, online and decreasing: sections II-B and IV-C of the paper.

The online variants take partitions in their order, the decreasing ones by falling write rate.
A partition that fits no open bin opens a new one.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from trimtab.assignor.model import IntArray, PackingProblem
from trimtab.assignor.model.heuristic import Heuristic
from trimtab.assignor.model.packing import (
    FitRule,
    Packing,
    find_best_fit,
    find_first_fit,
    find_next_fit,
    find_worst_fit,
    order_as_given,
    order_decreasing,
    place_items,
)


def pack_any_fit(
    problem: PackingProblem, find_bin: FitRule, order_items: Callable[[PackingProblem], Iterable[int]]
) -> IntArray:
    """Return the bin of each partition, shape (P,): one that fits, else a new one."""
    packing = Packing(problem)
    place_items(packing, find_bin, order_items(problem))
    return packing.bin


_ONLINE: Final = ("", "", "partitions in order", order_as_given)
_DECREASING: Final = ("d", " decreasing", "largest first", order_decreasing)
_FIT_RULES: Final = (
    ("nf", "next fit", find_next_fit, "the last opened bin, else a new one"),
    ("ff", "first fit", find_first_fit, "the first open bin that holds it"),
    ("wf", "worst fit", find_worst_fit, "the emptiest open bin"),
    ("bf", "best fit", find_best_fit, "the fullest open bin that holds it"),
)

ANY_FIT_HEURISTICS: Final = tuple(
    Heuristic(
        name=name + suffix,
        pack=partial(pack_any_fit, find_bin=find_bin, order_items=order_items),
        summary=f"{title}{variant}: {order}, into {bin_rule}",
        source="Kafka Consumer Group Autoscaler, II-B and IV-C",
        idempotent=True,
    )
    for name, title, find_bin, bin_rule in _FIT_RULES
    for suffix, variant, order, order_items in (_ONLINE, _DECREASING)
)
