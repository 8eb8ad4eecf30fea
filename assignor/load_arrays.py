"""Write speeds and lags kept in arrays by topic, so that a rebalance reads no dictionary.

`Measured` is a mapping by name like any other; who knows it takes `column` instead. What is
unknown is NaN inside and None by name.
"""

import math
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import NamedTuple

import numpy as np

from trimtab.assignor.model import FloatArray, IntArray, TopicPartition
from trimtab.assignor.partition_index import NOWHERE, Universe
from trimtab.common.errors import BadProblem


class Column(NamedTuple):
    """Values of one topic's partitions: numbers without repeats, and a value each."""

    number: IntArray  # (N,)
    value: FloatArray  # (N,) NaN where unknown

    @classmethod
    def of(cls, values: Mapping[int, float | None]) -> "Column":
        """Take values by partition number; None and NaN are unknown."""
        known = [math.nan if value is None else value for value in values.values()]
        return cls(np.array(list(values), dtype=np.int32), np.array(known, dtype=np.float64))


class Measured(Mapping[TopicPartition, float | None]):
    """A value per partition, by topic. The arrays are not to be written to afterwards."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self._columns = columns

    def __getitem__(self, partition: TopicPartition) -> float | None:
        number, value = self._columns[partition.topic]
        (found,) = np.nonzero(number == partition.partition)
        if not found.size:
            raise KeyError(partition)
        return _known(float(value[found[0]]))

    def __iter__(self) -> Iterator[TopicPartition]:
        for topic, (number, _) in self._columns.items():
            yield from (TopicPartition(topic, n) for n in number.tolist())

    def __len__(self) -> int:
        return sum(len(number) for number, _ in self._columns.values())

    def pairs(self) -> Iterator[tuple[TopicPartition, float | None]]:
        """Yield all items, without a search for each."""
        values = chain.from_iterable(value.tolist() for _, value in self._columns.values())
        return zip(self, map(_known, values), strict=True)

    def column(self, universe: Universe) -> FloatArray:
        """Return the value of each partition of the universe, NaN where it is unknown."""
        found = np.full(len(universe), np.nan)
        index = {topic: i for i, topic in enumerate(universe.topics)}
        for topic, (number, value) in self._columns.items():
            if topic in index:
                place = universe.find(np.full(len(number), index[topic], dtype=np.int32), number)
                here = place != NOWHERE
                found[place[here]] = value[here]
        return found


def speeds_of(speeds: Mapping[TopicPartition, float | None], universe: Universe) -> FloatArray:
    """Return the speed of each partition, NaN where it is unknown.

    Raises BadProblem for one that is negative, infinite or, given by name, not a number.
    """
    if isinstance(speeds, Measured):
        column = speeds.column(universe)
        wrong = np.isinf(column) | (column < 0)
    elif not speeds:
        return np.full(len(universe), np.nan)
    else:
        given = [speeds.get(name) for name in universe.names()]
        column = np.array([math.nan if s is None else s for s in given], dtype=np.float64)
        unknown = np.array([s is None for s in given], dtype=np.bool_)
        wrong = ~unknown & ~((column >= 0) & np.isfinite(column))
    for item in np.flatnonzero(wrong).tolist():
        name = universe.name(item)
        raise BadProblem(
            f"speed of {name} is {speeds[name]} bytes/s; "
            "it must be finite and not negative, or None if unknown"
        )
    return column


def lags_of(lags: Mapping[TopicPartition, float | None], universe: Universe) -> FloatArray:
    """Return the lag of each partition in records; 0 where it is unknown or negative."""
    if not lags:
        return np.zeros(len(universe))
    if isinstance(lags, Measured):
        return np.nan_to_num(np.maximum(lags.column(universe), 0))
    found = [lags.get(name) or 0 for name in universe.names()]
    return np.maximum(np.array(found, dtype=np.float64), 0)


def deviations_of(
    deviations: Mapping[TopicPartition, float | None], universe: Universe
) -> FloatArray:
    """Return each partition's deviation in bytes/s; 0 where it is unknown.

    Raises BadProblem for one that is negative or infinite.
    """
    if isinstance(deviations, Measured):
        column = np.nan_to_num(deviations.column(universe), posinf=math.inf)
    elif not deviations:
        return np.zeros(len(universe))
    else:
        given = [deviations.get(name) or 0.0 for name in universe.names()]
        column = np.array(given, dtype=np.float64)
    for item in np.flatnonzero(~((column >= 0) & np.isfinite(column))).tolist():
        raise BadProblem(
            f"deviation of {universe.name(item)} is {column[item]} bytes/s; "
            "it must be finite and not negative, or None if unknown"
        )
    return column


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
