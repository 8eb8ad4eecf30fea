"""Partitions as numbers and back: gaps, absent partitions, and measured values by topic."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.assignor.model import TopicPartition
from trimtab.assignor.model.load_arrays import (
    PartitionMeasurements,
    TopicMeasurements,
    align_lags,
    align_write_rates,
)
from trimtab.assignor.model.partition_index import NOT_INDEXED, OwnedPartitions, PartitionIndex
from trimtab.assignor.rebalance.user_data import group_by_topic
from trimtab.common.errors import InvalidProblemError

partitions = st.frozensets(st.builds(TopicPartition, st.sampled_from(["a", "b", "c"]), st.integers(0, 9)))


@given(partitions, st.lists(partitions, max_size=3))
def test_owned_partitions_are_located(
    there: frozenset[TopicPartition], held: list[frozenset[TopicPartition]]
) -> None:
    """Each owned partition in the index is located, with any gaps in the numbers."""
    partition_index = PartitionIndex.from_partitions(there)
    assert (
        partition_index.list_partitions()
        == tuple(sorted(there))
        == tuple(partition_index.partition_at(i) for i in range(len(partition_index)))
    )
    member, index = partition_index.locate_owned(
        [OwnedPartitions.from_grouped(group_by_topic(names)) for names in held]
    )
    found = [
        (m, partition_index.partition_at(i)) for m, i in zip(member.tolist(), index.tolist(), strict=True)
    ]
    assert found == [(m, p) for m, names in enumerate(held) for p in sorted(names & there)]


def test_numbers_may_come_in_any_order_and_twice() -> None:
    """A topic's numbers are sorted without repeats; a topic without numbers is left out."""
    partition_index = PartitionIndex.from_numbers(
        {"t": np.array([2, 0, 2], dtype=np.int32), "u": np.empty(0, np.int32)}
    )
    assert partition_index.list_partitions() == (TopicPartition("t", 0), TopicPartition("t", 2))
    numbers = np.array([-1, 0, 1, 2, 2**31 - 1], dtype=np.int32)
    found = partition_index.find_indexes(np.zeros(5, dtype=np.int32), numbers)
    assert found.tolist() == [NOT_INDEXED, 0, NOT_INDEXED, 1, NOT_INDEXED]


def test_measured_values_are_a_mapping_and_an_array() -> None:
    """An unknown value is None by name and NaN in the array; absent partitions are ignored."""
    measured = PartitionMeasurements(
        {"t": TopicMeasurements.from_values({1: 5.0, 0: None}), "x": TopicMeasurements.from_values({0: 1.0})}
    )
    names = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)]
    assert dict(measured) == dict(measured.items())
    assert measured[names[1]] == 5.0
    assert (measured[names[0]], measured.get(names[2]), len(measured)) == (None, None, 3)
    with pytest.raises(KeyError):
        measured[TopicPartition("t", 7)]
    partition_index = PartitionIndex.from_partitions(names)
    by_array, by_name = (
        align_write_rates(measured, partition_index),
        align_write_rates(dict(measured), partition_index),
    )
    np.testing.assert_array_equal(by_array, [math.nan, 5.0, math.nan])
    np.testing.assert_array_equal(by_array, by_name)
    np.testing.assert_array_equal(align_lags(measured, partition_index), [math.nan, 5.0, math.nan])


@pytest.mark.parametrize("rate", [-1.0, math.inf])
def test_invalid_measured_rates_are_refused(rate: float) -> None:
    """A rate in an array is checked like one by name."""
    partition_index = PartitionIndex.from_partitions([TopicPartition("t", 0), TopicPartition("t", 1)])
    with pytest.raises(InvalidProblemError, match="write rate of t-1 is"):
        align_write_rates(
            PartitionMeasurements({"t": TopicMeasurements.from_values({0: 1.0, 1: rate})}), partition_index
        )
