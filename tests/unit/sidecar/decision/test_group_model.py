"""Sums over loads, which decide between placements of equal cost."""

from itertools import permutations

from trimtab.assignor import Load, TopicPartition
from trimtab.sidecar.decision.group_model import sum_rates


def test_a_sum_of_rates_does_not_depend_on_their_order() -> None:
    """Owned partitions are a set, whose order differs from process to process."""
    rates = {TopicPartition("t", n): rate for n, rate in enumerate((0.1, 0.2, 0.3, 1e9))}
    assert len({sum_rates(order, Load(rates)) for order in permutations(rates)}) == 1
