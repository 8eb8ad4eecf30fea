"""Learns what a record costs a consumer beyond its bytes, from the work of the SDK's consumers. No I/O.

1. A consumer's handler time is taken to be bytes x a + records x b, with a and b of at least 0: least squares
   of the last `MEMORY_S` seconds, in which outliers count little (Huber). A record then costs b / a bytes.
2. All work is predicted before it is learned from, beside the prediction of bytes alone. A record of these
   errors covers the same time, and counts from `MIN_PREDICTIONS` on.
3. The cost is used once its squared errors are below `GATE` of those of bytes alone, and until they are above
   `CLOSING_RATIO`. Each change moves partitions, so the cost in use follows only changes of a fifth.
4. `capacity` is what a consumer sustains of the group's usual records. So bytes and records weigh such that
   the work learned from weighs as much as its bytes: what small records gain, large ones lose.
5. By how much work differs from its prediction, a consumer's capacity varies, too.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import numpy as np

from trimtab.assignor.model import FloatArray
from trimtab.common.control_topics.number_ranges import LEAST_DIVISOR, Count, Figure
from trimtab.common.units import format_bytes, format_count, format_rate
from trimtab.sidecar.measurement.handler_work import HandlerWork
from trimtab.sidecar.model.record_weights import BYTES_ALONE, RecordWeights

MEMORY_S: Final = 7200.0
MAX_WORK: Final = 1000  # a large group reports as much in minutes
MIN_FITTED: Final = 10
MIN_PREDICTIONS: Final = 30
GATE: Final = 0.7  # of squared errors
CLOSING_RATIO: Final = 0.9  # of squared errors; between it and the gate nothing changes
COST_TOLERANCE: Final = 0.2  # relative change of the cost that is worth moves
HUBER_DEVIATIONS: Final = 1.345  # as usual: 95 % as efficient as least squares without outliers
DEVIATION_OF_MEDIAN: Final = 1.4826  # a normal distribution's standard deviation by its median deviation
FIT_STEPS: Final = 8
ValueT = TypeVar("ValueT")


class HandlerCost(NamedTuple):
    """Seconds of handler time."""

    per_byte: float
    per_record: float


@dataclass(frozen=True, slots=True)
class RecordCostStatus:
    """The cost in force, and its record of predictions."""

    predictions: Count
    cost: Figure | None = None  # bytes that a record costs by the last fit; None: a byte costs nothing
    capacity: Figure | None = None  # bytes/s of the usual records in nothing but handler time
    error_ratio: Figure | None = None  # squared errors ÷ those of bytes alone; None without a record
    is_used: bool = False

    def format_line(self) -> str:
        """Return the cost, and why it is used or not, as one sentence."""
        count = format_count(self.predictions, "prediction")
        if self.error_ratio is None:
            least = f"{MIN_PREDICTIONS} of consumers that report their handler time"
            return f"Record cost: not known after {count}, it takes {least}"
        ratio = f"{self.error_ratio:.2f} of the bytes-only model's"
        proof = f"over {count} its squared errors are {ratio}"
        if not self.is_used:
            return f"Record cost: not used; {proof}, it is used below {GATE:g}"
        what = "all of the cost" if self.cost is None else f"{format_bytes(self.cost)} a record"
        full = f"a consumer that only works handles {format_rate(self.capacity)}"
        return f"Record cost: {what}; {proof}; {full}"


class FittedCosts(NamedTuple):
    """The costs that explain the work best, of bytes and records, and of bytes alone."""

    of_both: HandlerCost
    of_bytes: HandlerCost


class PredictionScore(NamedTuple):
    """Squares of shares of the time that passed."""

    error_by_both: float
    error_by_bytes: float


class RecordCostLearner:
    """Work of the last hours, errors of its predictions, and the weights in use."""

    def __init__(self) -> None:
        self._work: deque[tuple[float, HandlerWork]] = deque(maxlen=MAX_WORK)
        self._scores: deque[tuple[float, PredictionScore]] = deque(maxlen=MAX_WORK)
        self._fitted: FittedCosts | None = None
        self._status = RecordCostStatus(0)
        self._weights = BYTES_ALONE

    @property
    def weights(self) -> RecordWeights:
        """What a byte and a record weigh now."""
        return self._weights

    def learn(self, now: float, work: Iterable[HandlerWork]) -> RecordCostStatus:
        """Predict the work, learn from it, and return how the cost stands; `now` is monotonic."""
        new = tuple(work)
        if new:
            self._score(now, new)
            self._work.extend((now, one) for one in new)
            _drop_before(self._work, now - MEMORY_S)
            _drop_before(self._scores, now - MEMORY_S)
            known = [one for _, one in self._work]
            self._fitted = fit_costs(known) if len(known) >= MIN_FITTED else None
            self._status = self._build_status(known)
            self._follow(known)
        return self._status

    def _score(self, now: float, new: Sequence[HandlerWork]) -> None:
        if self._fitted is not None:
            for one in new:
                by_both, by_bytes = (_compute_error(cost, one) ** 2 for cost in self._fitted)
                self._scores.append((now, PredictionScore(by_both, by_bytes)))

    def _build_status(self, known: Sequence[HandlerWork]) -> RecordCostStatus:
        count = len(self._scores)
        by_both, by_bytes = (sum(score[which] for _, score in self._scores) for which in range(2))
        if self._fitted is None or count < MIN_PREDICTIONS or by_bytes <= 0:
            return RecordCostStatus(count)
        cost, ratio = self._fitted.of_both, by_both / by_bytes
        is_used = ratio < (CLOSING_RATIO if self._status.is_used else GATE)
        return RecordCostStatus(
            predictions=count,
            cost=cost.per_record / cost.per_byte if cost.per_byte > 0 else None,
            capacity=_compute_capacity(known, cost),
            error_ratio=ratio,
            is_used=is_used,
        )

    def _follow(self, known: Sequence[HandlerWork]) -> None:
        if self._fitted is None or not self._status.is_used:
            self._weights = BYTES_ALONE
            return
        new = weigh_records(known, self._fitted.of_both)
        if abs(new.record - self._weights.record) >= COST_TOLERANCE * self._weights.record:
            self._weights = new


def fit_costs(work: Sequence[HandlerWork]) -> FittedCosts:
    """Return the costs that explain the work best."""
    rates = np.array([(one.bytes / one.span, one.records / one.span) for one in work])
    shares = np.array([one.handling / one.span for one in work])
    per_byte, per_record = _fit_robustly(rates, shares).tolist()
    (alone,) = _fit_robustly(rates[:, :1], shares).tolist()
    return FittedCosts(HandlerCost(per_byte, per_record), HandlerCost(alone, 0.0))


def weigh_records(work: Sequence[HandlerWork], cost: HandlerCost) -> RecordWeights:
    """Return weights in proportion to the cost, by which the work weighs as much as its bytes (rule 4)."""
    capacity = _compute_capacity(work, cost)
    if capacity is None:
        return BYTES_ALONE
    return RecordWeights(cost.per_byte * capacity, cost.per_record * capacity)


def _drop_before(history: deque[tuple[float, ValueT]], begin: float) -> None:
    while history and history[0][0] < begin:
        history.popleft()


def _compute_capacity(work: Sequence[HandlerWork], cost: HandlerCost) -> float | None:
    """Return the bytes ÷ the handler time that they cost, in bytes/s; None if they cost nothing."""
    seconds = sum(_predict_handling(cost, one) for one in work)
    return sum(one.bytes for one in work) / seconds if seconds > 0 else None


def _predict_handling(cost: HandlerCost, work: HandlerWork) -> float:
    return cost.per_byte * work.bytes + cost.per_record * work.records


def _compute_error(cost: HandlerCost, work: HandlerWork) -> float:
    return (_predict_handling(cost, work) - work.handling) / work.span


def _fit_robustly(rates: FloatArray, shares: FloatArray) -> FloatArray:
    """Return coefficients (K,) of at least 0 with little error for most of the N rows of `rates` (N, K)."""
    scale = np.maximum(rates.max(axis=0), LEAST_DIVISOR)  # bytes and records differ by orders of magnitude
    rates = rates / scale
    weight: FloatArray = np.ones(len(shares))
    found: FloatArray = np.zeros(rates.shape[1])
    for _ in range(FIT_STEPS):  # iteratively reweighted least squares
        found = _solve_non_negative(rates, shares, weight)
        error = np.abs(rates @ found - shares)
        limit = HUBER_DEVIATIONS * DEVIATION_OF_MEDIAN * float(np.median(error))
        if limit <= 0:
            break
        weight = np.minimum(1.0, limit / np.maximum(error, limit))
    scaled: FloatArray = found / scale
    return scaled


def _solve_non_negative(rates: FloatArray, shares: FloatArray, weight: FloatArray) -> FloatArray:
    weighted = rates.T * weight
    gram, moment = weighted @ rates, weighted @ shares
    best: FloatArray = np.zeros(len(moment))
    least = 0.0  # of the squared errors, without their constant part
    for used in ([0], [1], [0, 1])[: 2 * len(moment) - 1]:  # the optimum is that of one of these subsets
        solved = np.linalg.lstsq(gram[np.ix_(used, used)], moment[used], rcond=None)[0]
        error = -float(solved @ moment[used])
        if (solved >= 0).all() and error < least:
            best, least = np.zeros(len(moment)), error
            best[used] = solved
    return best
