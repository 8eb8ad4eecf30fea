"""Weights of partitions from outside, in place of write rates."""

import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.measurement.partition_weights import weigh_loads, weigh_rates

A, B, C = (TopicPartition("t", number) for number in range(3))
OTHER = TopicPartition("u", 0)


def test_a_backlog_counts_by_the_weight_of_its_partitions_bytes() -> None:
    """A partition that weighs 3 a byte has a backlog of 3 a byte; records stay records."""
    measured = {A: PartitionLoad(100.0, 1.0, backlog_bytes=1_000.0, backlog_records=10)}
    weighed = weigh_loads(measured, {A: 300.0})
    assert weighed == {A: PartitionLoad(300.0, 1.0, backlog_bytes=3_000.0, backlog_records=10)}


def test_without_writes_a_backlog_counts_by_its_topics_mean() -> None:
    """A weighs 3 and B 1 a byte, of which B has three times as many: a byte of C weighs 1.5."""
    measured = {
        A: PartitionLoad(100.0),
        B: PartitionLoad(300.0),
        C: PartitionLoad(0.0, backlog_bytes=10.0),
        OTHER: PartitionLoad(0.0, backlog_bytes=10.0),
    }
    weighed = weigh_loads(measured, {A: 300.0, B: 300.0, C: 7.0, OTHER: 7.0})
    assert weighed[C] == PartitionLoad(7.0, backlog_bytes=15.0)
    assert weighed[OTHER] == PartitionLoad(7.0, backlog_bytes=None)


@pytest.mark.parametrize("backlog", [0.0, None])
def test_no_backlog_weighs_nothing_and_an_unknown_one_stays_unknown(backlog: float | None) -> None:
    """Neither depends on what a byte weighs."""
    weighed = weigh_loads({A: PartitionLoad(0.0, backlog_bytes=backlog)}, {A: 7.0})
    assert weighed == {A: PartitionLoad(7.0, backlog_bytes=backlog)}


def test_a_partition_without_weight_is_unknown() -> None:
    """Rate and backlog, though both were measured."""
    measured = {A: PartitionLoad(100.0, backlog_bytes=10.0), B: PartitionLoad(100.0)}
    assert weigh_loads(measured, {B: 1.0})[A] == PartitionLoad(None, backlog_bytes=None)


def test_consumption_counts_in_the_unit_of_the_weights() -> None:
    """Consumption that cannot be weighed is absent; 0 stays 0."""
    measured = {A: PartitionLoad(100.0), OTHER: PartitionLoad(100.0)}
    assert weigh_rates({A: 50.0, OTHER: 50.0, B: 0.0}, measured, {A: 300.0}) == {A: 150.0, B: 0.0}
