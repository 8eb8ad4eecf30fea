"""Write rates and lags in arrays by topic, which a rebalance reads without dictionary look-ups.

`PartitionMeasurements` is a mapping by name with a fast path, `align_to_index`. Unknown values are
NaN in arrays and None by name.
"""

import math
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import NamedTuple

import numpy as np

from trimtab.assignor.model import FloatArray, IntArray, TopicPartition
from trimtab.assignor.partition_index import NOT_INDEXED, PartitionIndex
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
    """A value per partition, by topic. Do not write to the arrays afterwards."""

    def __init__(self, topics: Mapping[str, TopicMeasurements]) -> None:
        self._topics = topics

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

    def iter_items(self) -> Iterator[tuple[TopicPartition, float | None]]:
        """Yield all items without a search for each."""
        values = chain.from_iterable(value.tolist() for _, value in self._topics.values())
        return zip(self, map(_none_if_nan, values), strict=True)

    def align_to_index(self, partition_index: PartitionIndex) -> FloatArray:
        """Return the value of each partition of the index, NaN if unknown."""
        aligned = np.full(len(partition_index), np.nan)
        index = {topic: i for i, topic in enumerate(partition_index.topics)}
        for topic, (number, value) in self._topics.items():
            if topic in index:
                place = partition_index.find_indexes(
                    np.full(len(number), index[topic], dtype=np.int32), number
                )
                here = place != NOT_INDEXED
                aligned[place[here]] = value[here]
        return aligned


def align_write_rates(
    write_rates: Mapping[TopicPartition, float | None], partition_index: PartitionIndex
) -> FloatArray:
    """Return the write rate of each partition, NaN if unknown.

    Raises InvalidProblemError for a rate that is negative, infinite or, given by name, NaN.
    """
    if isinstance(write_rates, PartitionMeasurements):
        column = write_rates.align_to_index(partition_index)
        wrong = np.isinf(column) | (column < 0)
    elif not write_rates:
        return np.full(len(partition_index), np.nan)
    else:
        given = [write_rates.get(name) for name in partition_index.list_partitions()]
        column = np.array([math.nan if s is None else s for s in given], dtype=np.float64)
        unknown = np.array([s is None for s in given], dtype=np.bool_)
        wrong = ~unknown & ~((column >= 0) & np.isfinite(column))
    for item in np.flatnonzero(wrong).tolist():
        name = partition_index.partition_at(item)
        raise InvalidProblemError(
            f"write rate of {name} is {write_rates[name]} bytes/s; "
            "it must be finite and not negative, or None if unknown"
        )
    return column


def align_lags(lags: Mapping[TopicPartition, float | None], partition_index: PartitionIndex) -> FloatArray:
    """Return the lag of each partition in records; 0 if unknown or negative."""
    if not lags:
        return np.zeros(len(partition_index))
    if isinstance(lags, PartitionMeasurements):
        return np.nan_to_num(np.maximum(lags.align_to_index(partition_index), 0))
    known = [lags.get(name) or 0 for name in partition_index.list_partitions()]
    return np.maximum(np.array(known, dtype=np.float64), 0)


def align_deviations(
    deviations: Mapping[TopicPartition, float | None], partition_index: PartitionIndex
) -> FloatArray:
    """Return the deviation of each partition in bytes/s; 0 if unknown.

    Raises InvalidProblemError for a deviation that is negative or infinite.
    """
    if isinstance(deviations, PartitionMeasurements):
        column = np.nan_to_num(deviations.align_to_index(partition_index), posinf=math.inf)
    elif not deviations:
        return np.zeros(len(partition_index))
    else:
        given = [deviations.get(name) or 0.0 for name in partition_index.list_partitions()]
        column = np.array(given, dtype=np.float64)
    for item in np.flatnonzero(~((column >= 0) & np.isfinite(column))).tolist():
        raise InvalidProblemError(
            f"deviation of {partition_index.partition_at(item)} is {column[item]} bytes/s; "
            "it must be finite and not negative, or None if unknown"
        )
    return column


def _none_if_nan(value: float) -> float | None:
    return None if math.isnan(value) else value
