"""Tracks which consumer is most likely above its capacity a window from now, and how such predictions fared.

Write rates of overlapping windows hardly differ, so it predicts once a window, and until then tells the last
prediction. Consumers of one partition are left out: no placement helps them. What it knows of loads begins
anew when records weigh otherwise, since all loads change then at once; the record of past predictions stays.
A consumer shows its capacity only while it is behind. So an overload came true with the chance that the
capacity was below the load: 0 or 1 where the capacity is not known to vary.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

import numpy as np

from trimtab.assignor.forecast import RateChangeStats
from trimtab.assignor.model import UNASSIGNED, FloatArray, IntArray, TopicPartition
from trimtab.assignor.packing import sum_loads
from trimtab.common.control_topics.number_ranges import Count, Figure
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.common.units import format_count
from trimtab.sidecar.measurement.capacity_estimate import CapacityEstimate
from trimtab.sidecar.measurement.observation import ObservedMember
from trimtab.sidecar.measurement.overload_forecast import (
    LEAST_DEVIATION,
    OverloadForecaster,
    compute_normal_tail,
)
from trimtab.sidecar.measurement.write_rate import BYTES_ALONE, RecordWeights

RECORD_LENGTH: Final = 120  # measurements: an hour at a window of 30 s
OVERLOAD_SLACK: Final = 1e-6  # relative; float sums are inexact


@dataclass(frozen=True, slots=True)
class OverloadChance:
    """The most likely overload, and the record of the last predictions."""

    consumer: str
    chance: Figure
    window: Figure  # seconds from the prediction
    expected: Figure = 0.0  # sum of the chances that were predicted
    came_true: Figure = 0.0  # sum of the chances that a capacity was below the load that came
    predictions: Count = 0

    def format_line(self) -> str:
        """Return the chance and its record as one sentence."""
        what = f"{self.consumer} exceeds its capacity within {self.window:g} s"
        line = f"Overload: {what} with a chance of {self.chance:.1%}"
        if not self.predictions:
            return line
        count = format_count(self.predictions, "prediction")
        came_true = f"{self.came_true:.1f}".removesuffix(".0")
        return f"{line}; of {count} {self.expected:.1f} were expected to come true, {came_true} did"


class MadePredictions(NamedTuple):
    """Predictions of the last measurement, of P partitions and M consumers."""

    owner: IntArray  # (P,)
    capacities: FloatArray  # (M,) means
    capacity_deviations: FloatArray  # (M,)
    chances: FloatArray  # (M,) NaN for a consumer that is left out


class OverloadTracker:
    """The forecaster of a group, whose partitions and consumers come and go."""

    def __init__(self, window: float) -> None:
        """Take the window of the write rates, in seconds."""
        self._window = window
        self._weights = BYTES_ALONE
        self._measured_at = -inf
        self._partitions: tuple[TopicPartition, ...] = ()
        self._forecaster = OverloadForecaster(RateChangeStats.empty(0))
        self._made: MadePredictions | None = None
        self._record: deque[tuple[float, float, int]] = deque(maxlen=RECORD_LENGTH)
        self._last: OverloadChance | None = None

    def track(
        self,
        now: float,
        loads: Mapping[TopicPartition, PartitionLoad],
        members: Sequence[ObservedMember],
        capacities: Sequence[CapacityEstimate],
        weights: RecordWeights = BYTES_ALONE,
    ) -> OverloadChance | None:
        """Return the last prediction, a new one once a window; `now` is monotonic.

        `capacities` are the members', `weights` those of the records in `loads`.
        """
        if weights != self._weights:
            self._weights = weights
            self._forget_loads()
        if now - self._measured_at < self._window or all(one.bytes_per_s is None for one in loads.values()):
            return self._last
        self._measured_at = now
        self._align(tuple(sorted(loads)))
        rates = np.array([_to_rate(loads[p]) for p in self._partitions])
        self._score(rates)
        number = {p: n for n, member in enumerate(members) for p in member.owned_partitions}
        owner = np.array([number.get(p, UNASSIGNED) for p in self._partitions], dtype=np.int32)
        mean, variance = np.array(capacities, dtype=np.float64).reshape(-1, 2).T
        chances, self._forecaster = self._forecaster.add_measurement(rates, owner, mean, variance)
        self._made = MadePredictions(owner, mean, np.sqrt(variance), chances)
        self._last = self._describe(members, chances)
        return self._last

    def _forget_loads(self) -> None:
        self._measured_at, self._partitions, self._made = -inf, (), None
        self._forecaster = OverloadForecaster(RateChangeStats.empty(0))

    def _align(self, names: tuple[TopicPartition, ...]) -> None:
        if names == self._partitions:
            return
        place = {p: n for n, p in enumerate(self._partitions)}
        source = np.array([place.get(p, UNASSIGNED) for p in names], dtype=np.int32)
        self._forecaster = self._forecaster.select_partitions(source)
        if self._made is not None:
            owner = np.append(self._made.owner, UNASSIGNED)[source].astype(np.int32)
            self._made = self._made._replace(owner=owner)
        self._partitions = names

    def _score(self, rates: FloatArray) -> None:
        if self._made is None:
            return
        made = self._made
        load = sum_loads(made.owner, np.nan_to_num(rates, nan=0.0), len(made.capacities))
        counted = ~np.isnan(made.chances)
        room = made.capacities * (1 + OVERLOAD_SLACK) - load
        deviations = np.maximum(made.capacity_deviations, LEAST_DEVIATION * made.capacities)
        came_true = compute_normal_tail((room / deviations)[counted])
        expected = made.chances[counted].sum()
        self._record.append((float(expected), float(came_true.sum()), int(counted.sum())))

    def _describe(self, members: Sequence[ObservedMember], chances: FloatArray) -> OverloadChance | None:
        if np.isnan(chances).all():
            return None
        first = int(np.nanargmax(chances))
        return OverloadChance(
            members[first].instance or members[first].id,
            float(chances[first]),
            self._window,
            expected=sum(expected for expected, _, _ in self._record),
            came_true=sum(true for _, true, _ in self._record),
            predictions=sum(count for _, _, count in self._record),
        )


def _to_rate(load: PartitionLoad) -> float:
    return np.nan if load.bytes_per_s is None else load.bytes_per_s
