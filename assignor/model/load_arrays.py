"""Write rates and lags in arrays by topic, which a rebalance reads without dictionary look-ups.

Unknown values are NaN in arrays and None by name.
"""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from trimtab.assignor.model import FloatArray, IntArray, Load, TopicPartition
from trimtab.assignor.model.partition_index import NOT_INDEXED, PartitionIndex
from trimtab.common.errors import InvalidProblemError


class TopicMeasurements(NamedTuple):
    """Partition numbers of one topic, without repeats, and a value for each."""

    number: IntArray  # (N,)
    value: FloatArray  # (N,) NaN where unknown

    @classmethod
    def from_values(cls, values: Mapping[int, float | None]) -> "TopicMeasurements":
        """Build from values by partition number; None and NaN are unknown."""
        known = [math.nan if value is None else value for value in values.values()]
        return cls(np.array(list(values), dtype=np.int32), np.array(known, dtype=np.float64))


class PartitionMeasurements(Mapping[TopicPartition, float | None]):
    """A value per partition, by topic; a rebalance calls `align_to_index` instead of `[]`."""

    def __init__(self, topics: Mapping[str, TopicMeasurements]) -> None:
        self._topics = topics  # not copied: do not write to the arrays afterwards

    def __getitem__(self, partition: TopicPartition) -> float | None:
        number, value = self._topics[partition.topic]
        (found,) = np.nonzero(number == partition.partition)
        if not found.size:
            raise KeyError(partition)
        return _none_if_nan(float(value[found[0]]))

    def __iter__(self) -> Iterator[TopicPartition]:
        for topic, (number, _) in self._topics.items():
            yield from (TopicPartition(topic, n) for n in number.tolist())

    def __len__(self) -> int:
        return sum(len(number) for number, _ in self._topics.values())

    def align_to_index(self, partition_index: PartitionIndex) -> FloatArray:
        """Return the value of each partition of the index, NaN if unknown."""
        aligned = np.full(len(partition_index), np.nan)
        index = {topic: i for i, topic in enumerate(partition_index.topics)}
        for topic, (number, value) in self._topics.items():
            if topic in index:
                topics = np.full(len(number), index[topic], dtype=np.int32)
                place = partition_index.find_indexes(topics, number)
                here = place != NOT_INDEXED
                aligned[place[here]] = value[here]
        return aligned


def align_write_rates(
    write_rates: Mapping[TopicPartition, float | None], partition_index: PartitionIndex
) -> FloatArray:
    """Return the write rate of each partition, NaN if unknown.

    Raises InvalidProblemError for a rate that is negative, infinite or, given by name, NaN.
    """
    rate = _align(write_rates, partition_index)
    _check_range("write rate", rate, write_rates, partition_index)
    return rate


def align_lags(lags: Mapping[TopicPartition, float | None], partition_index: PartitionIndex) -> FloatArray:
    """Return the lag of each partition in records, NaN if unknown; 0 if negative."""
    # A committed offset may be ahead of an end offset that was read before it.
    lag: FloatArray = np.maximum(_align(lags, partition_index), 0)
    return lag


def has_unknown_lag(load: Load, partition_index: PartitionIndex) -> bool:
    """Return whether the lag of a partition of the index is unknown."""
    return bool(np.isnan(align_lags(load.lags, partition_index)).any())


def align_deviations(
    deviations: Mapping[TopicPartition, float | None], partition_index: PartitionIndex
) -> FloatArray:
    """Return the deviation of each partition in bytes/s; 0 if unknown.

    Raises InvalidProblemError for a deviation that is negative or infinite.
    """
    deviation = _align(deviations, partition_index)
    _check_range("deviation", deviation, deviations, partition_index)
    return np.nan_to_num(deviation)


def _align(values: Mapping[TopicPartition, float | None], partition_index: PartitionIndex) -> FloatArray:
    if isinstance(values, PartitionMeasurements):
        return values.align_to_index(partition_index)
    if not values:
        return np.full(len(partition_index), np.nan)
    given = list(map(values.get, partition_index.list_partitions()))
    aligned = np.array(given, dtype=np.float64)  # None becomes NaN
    # None is unknown by name; NaN is a fault of the caller, which -inf brings to `_check_range`.
    for item in np.flatnonzero(np.isnan(aligned)).tolist():
        if given[item] is not None:
            aligned[item] = -math.inf
    return aligned


def _check_range(
    label: str,
    column: FloatArray,
    given: Mapping[TopicPartition, float | None],
    partition_index: PartitionIndex,
) -> None:
    for item in np.flatnonzero(np.isinf(column) | (column < 0)).tolist():
        name = partition_index.partition_at(item)
        raise InvalidProblemError(
            f"{label} of {name} is {given[name]} bytes/s; "
            "it must be finite and not negative, or None if unknown"
        )


def _none_if_nan(value: float) -> float | None:
    return None if math.isnan(value) else value
