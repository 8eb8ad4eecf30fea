"""What a record costs is learned from handler time, and used only while it predicts better than bytes."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from trimtab.sidecar.measurement.handler_work import HandlerWork
from trimtab.sidecar.measurement.record_cost import (
    MIN_FITTED,
    MIN_PREDICTIONS,
    RecordCostLearner,
    RecordCostStatus,
    fit_costs,
    weigh_records,
)
from trimtab.sidecar.model.record_weights import RecordWeights

PER_BYTE, PER_RECORD = 1e-7, 2e-5  # 10 MB/s, and a record costs 200 B
SPAN_S = 30.0


def work(
    seed: int, *, sizes: tuple[float, float] = (50, 5_000), noise: float = 0.05
) -> Iterator[HandlerWork]:
    """Yield the work of consumers whose records have sizes of this range."""
    chance = np.random.default_rng(seed)
    while True:
        size = float(np.exp(chance.uniform(*np.log(sizes))))
        records = SPAN_S * float(chance.uniform(0.05, 0.9)) / (PER_BYTE * size + PER_RECORD)
        spent = records * (PER_BYTE * size + PER_RECORD) * float(chance.normal(1.0, noise))
        yield HandlerWork(SPAN_S, spent, records * size, records)


def learn(learner: RecordCostLearner, source: Iterator[HandlerWork], count: int) -> RecordCostStatus:
    for number in range(count):
        status = learner.learn(10.0 * number, [next(source)])
    return status


ENOUGH = MIN_FITTED + MIN_PREDICTIONS


def test_the_cost_of_a_record_is_learned() -> None:
    """From consumers of small and of large records, with noise and a tenth of outliers."""
    source = work(1)
    known = [next(source) for _ in range(200)]
    known[::10] = [replace(one, handling=3 * one.handling) for one in known[::10]]
    cost = fit_costs(known).of_both
    assert cost.per_record / cost.per_byte == pytest.approx(200, rel=0.1)
    assert 1 / cost.per_byte == pytest.approx(10e6, rel=0.1)


def test_a_cost_is_never_negative() -> None:
    """Where records cost nothing, noise makes them no gain; where bytes cost nothing, likewise."""
    for seed in range(20):
        chance = np.random.default_rng(seed)
        source = islice(work(seed), 50)
        free = [replace(one, handling=one.bytes * PER_BYTE * chance.normal(1, 0.2)) for one in source]
        assert min(fit_costs(free).of_both) >= 0
        assert fit_costs(free).of_both.per_record < 0.2 * PER_RECORD


def test_it_is_used_once_its_predictions_are_better() -> None:
    """Not before enough were made; then bytes and records weigh as the work costs."""
    learner, source = RecordCostLearner(), work(2)
    early = learn(learner, source, ENOUGH - 1)
    assert (early.is_used, learner.weights) == (False, RecordWeights())
    status = learn(learner, source, 1)
    assert status.is_used
    assert status.error_ratio is not None
    assert status.error_ratio < 0.1
    byte, record = learner.weights
    assert record / byte == pytest.approx(200, rel=0.1)
    assert byte < 1
    assert "B a record; over 30 predictions its squared errors are 0.0" in status.format_line()


def test_equal_record_sizes_prove_nothing() -> None:
    """Where all records are alike, the cost of one is that of its bytes: weights stay."""
    learner = RecordCostLearner()
    status = learn(learner, work(3, sizes=(500, 501)), 200)
    assert not status.is_used
    assert learner.weights == RecordWeights()
    assert "not used" in status.format_line()


def test_it_is_given_up_when_bytes_alone_predict_as_well() -> None:
    """After a release whose handlers spend no time on records, once the work before is forgotten."""
    learner, chance = RecordCostLearner(), np.random.default_rng(4)
    assert learn(learner, work(4), ENOUGH).is_used
    free = (replace(one, handling=one.bytes * PER_BYTE * chance.normal(1, 0.2)) for one in work(5))
    statuses = [learner.learn(500.0 + 10 * n, [next(free)]) for n in range(1000)]
    assert statuses[0].is_used
    assert not statuses[-1].is_used
    assert learner.weights == RecordWeights()


def test_the_usual_work_weighs_its_bytes() -> None:
    """The capacity is that of the usual records: the sum of all loads stays what it was."""
    known = [*islice(work(6), 100)]
    byte, record = weigh_records(known, fit_costs(known).of_both)
    total = sum(one.bytes for one in known)
    assert sum(byte * one.bytes + record * one.records for one in known) == pytest.approx(total)
    assert weigh_records(known, fit_costs(known).of_bytes) == pytest.approx(RecordWeights())


def test_weights_follow_only_changes_that_are_worth_moves() -> None:
    """Noise does not change them; a handler that becomes slower does, once the old work is forgotten."""
    learner, source = RecordCostLearner(), work(7)
    learn(learner, source, ENOUGH)
    before = learner.weights
    for n in range(100):
        learner.learn(500.0 + 10 * n, [next(source)])
    assert learner.weights == before
    slower = (replace(one, handling=one.handling + 3 * PER_RECORD * one.records) for one in source)
    for n in range(1500):
        learner.learn(2000.0 + 10 * n, [next(slower)])
    byte, record = learner.weights
    assert record / byte == pytest.approx(800, rel=0.25)
