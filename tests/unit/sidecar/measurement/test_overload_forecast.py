"""The chance that a consumer is above its capacity a window from now comes true as often as it says."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from trimtab.assignor.forecast import RateChangeStats
from trimtab.assignor.model import UNASSIGNED, FloatArray, TopicPartition
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.measurement.capacity_estimate import (
    CapacityEstimate,
    CapacitySamples,
    estimate_capacities,
)
from trimtab.sidecar.measurement.observation import ObservedMember
from trimtab.sidecar.measurement.overload_forecast import OverloadForecaster, compute_normal_tail
from trimtab.sidecar.measurement.overload_tracker import OverloadChance, OverloadTracker
from trimtab.sidecar.measurement.write_rate import RecordWeights

CAPACITY = 100.0
PARTITIONS, CONSUMERS = 60, 20
OWNER = (np.arange(PARTITIONS) % CONSUMERS).astype(np.int32)


def heavy_tailed_rates(seed: int, ticks: int) -> Iterator[FloatArray]:
    """Yield rates around 30 with changes that all partitions share, and own ones with heavy tails."""
    chance = np.random.default_rng(seed)
    rates = np.full(PARTITIONS, 30.0)
    for _ in range(ticks):
        rates = rates + 0.02 * (30 - rates) + chance.normal(0, 0.6) + chance.laplace(0, 0.5, PARTITIONS)
        yield np.maximum(0.0, rates)


def predict_and_count(seed: int, spread: float, ticks: int = 700) -> FloatArray:
    """Return (chance, 1 if it came true) of each case; a capacity is drawn anew at each tick."""
    chance = np.random.default_rng(100 + seed)
    means = CAPACITY * (1 + spread * chance.normal(size=CONSUMERS))
    drawn = means * (1 + spread * chance.normal(size=(ticks, CONSUMERS)))
    samples, chances, made = [CapacitySamples()] * CONSUMERS, None, list[FloatArray]()
    forecaster = OverloadForecaster(RateChangeStats.empty(PARTITIONS))
    for tick, rates in enumerate(heavy_tailed_rates(seed, ticks)):
        load = np.bincount(OWNER, rates)
        if chances is not None and tick > 50:
            made.append(np.stack([chances, load > drawn[tick]], axis=1))
        shown = zip(samples, drawn[tick].tolist(), strict=True)
        samples = [one.add_sample(tick, rate, 1.0) for one, rate in shown]
        mean, variance = np.array([one.estimate_next() for one in samples]).T
        chances, forecaster = forecaster.add_measurement(rates, OWNER, mean, variance)
    return np.concatenate(made)


@pytest.mark.parametrize("spread", [0.0, 0.05], ids=["constant", "drawn"])
def test_chances_come_true_as_often_as_they_say(spread: float) -> None:
    """Of changes that are neither normal nor independent, over all cases and those of about 5 %.

    Capacities are constant, or their samples are all that is known of them: 23 % of the 5 % would come true
    if their means alone counted.
    """
    found = np.concatenate([predict_and_count(seed, spread) for seed in (1, 2, 3)])
    assert found[:, 0].mean() == pytest.approx(found[:, 1].mean(), rel=0.1)
    of_about_5 = found[(found[:, 0] > 0.03) & (found[:, 0] < 0.07)]
    assert len(of_about_5) > 1000
    assert 0.04 < of_about_5[:, 1].mean() < 0.06


def test_before_changes_were_seen_they_are_normal() -> None:
    """The first two measurements have but the partitions' deviations."""
    forecaster, capacities = OverloadForecaster(RateChangeStats.empty(2)), np.array([CAPACITY])
    owner = np.zeros(2, dtype=np.int32)
    first, forecaster = forecaster.add_measurement(np.array([40.0, 50.0]), owner, capacities)
    assert first.tolist() == [0.0]
    second, _ = forecaster.add_measurement(np.array([42.0, 52.0]), owner, capacities)
    assert 0 < second[0] < 0.1
    assert compute_normal_tail(np.array([0.0, 1.6448536]))[1] == pytest.approx(0.05)


def test_a_consumer_of_one_partition_has_no_chance() -> None:
    """No placement helps it; absent partitions count for nobody."""
    forecaster, capacities = OverloadForecaster(RateChangeStats.empty(3)), np.full(2, CAPACITY)
    owner = np.array([0, 0, 1], dtype=np.int32)
    chances, _ = forecaster.add_measurement(np.array([40.0, np.nan, 99.0]), owner, capacities)
    assert np.isnan(chances).all()


A, B, C = (TopicPartition("t", n) for n in range(3))


def members(**owned: frozenset[TopicPartition]) -> tuple[ObservedMember, ...]:
    return tuple(ObservedMember(f"id-{name}", name, held) for name, held in sorted(owned.items()))


FIXED = (CapacityEstimate(CAPACITY),) * 2


def loads(**rates: float) -> dict[TopicPartition, PartitionLoad]:
    return {{"a": A, "b": B, "c": C}[name]: PartitionLoad(rate) for name, rate in rates.items()}


def test_the_fullest_is_told_with_the_record_of_earlier_ones() -> None:
    """Once a window; a new partition and a consumer that left change nothing of the others' record."""
    tracker = OverloadTracker(30.0)
    both = members(one=frozenset({A, B}), two=frozenset({C}))
    assert tracker.track(0.0, loads(a=40, b=50, c=5), both, FIXED) == OverloadChance("one", 0.0, 30.0)
    assert tracker.track(10.0, loads(a=99, b=99, c=5), both, FIXED) == OverloadChance("one", 0.0, 30.0)
    found = tracker.track(30.0, loads(a=48, b=53, c=5), both, FIXED)
    assert found is not None
    assert (found.predictions, found.expected, found.came_true) == (1, 0.0, 1)
    assert found.chance > 0.4
    alone = members(two=frozenset({B, C}))
    later = tracker.track(60.0, loads(b=10, c=5), alone, FIXED[:1])
    assert later is not None
    assert (later.consumer, later.predictions, later.came_true) == ("two", 2, 1)
    assert "of 2 predictions" in later.format_line()


def test_a_capacity_that_varies_makes_an_overload_likelier() -> None:
    """A load below the mean counts with the chance that the capacity was below it, too."""
    tracker, both = OverloadTracker(30.0), members(one=frozenset({A, B}), two=frozenset({C}))
    varying = (CapacityEstimate(CAPACITY, 10.0**2), CapacityEstimate(CAPACITY))
    found = tracker.track(0.0, loads(a=40, b=50, c=5), both, varying)
    assert found is not None
    assert found.chance == pytest.approx(0.1587, abs=1e-3), "the load is a deviation below the mean"
    found = tracker.track(30.0, loads(a=40, b=50, c=5), both, varying)
    assert found is not None
    assert (found.expected, found.came_true) == pytest.approx((0.1587, 0.1587), abs=1e-3)
    assert found.format_line().endswith("of 1 prediction 0.2 were expected to come true, 0.2 did")


def test_a_capacity_is_known_by_its_samples() -> None:
    """They do not overlap; what a member states precedes their mean, what the plan published follows."""
    few = (
        CapacitySamples()
        .add_sample(0.0, 90.0, 60.0)
        .add_sample(30.0, 50.0, 60.0)
        .add_sample(60.0, 110.0, 60.0)
    )
    assert few == CapacitySamples((90.0, 110.0), 60.0)
    assert few.add_sample(-500.0, 70.0, 60.0).rates == (90.0, 110.0, 70.0), "the clock was set back"
    assert few.estimate_next() == CapacityEstimate(100.0)
    many = CapacitySamples((90.0, 110.0) * 15)
    mean, variance = many.estimate_next()
    assert (mean, variance) == pytest.approx((100.0, 103.4 * 31 / 30 * 29 / 27), rel=1e-3)
    one, two, three, four = (ObservedMember("", name) for name in ("one", "two", "three", "four"))
    stated = replace(two, capacity=50.0)
    found = estimate_capacities(
        (one, stated, three, four), {"one": many, "two": many}, {"one": 7.0, "three": 8.0}, CAPACITY
    )
    assert [estimate.mean for estimate in found] == [100.0, 50.0, 8.0, CAPACITY]
    assert [estimate.variance for estimate in found] == [variance, variance, 0.0, 0.0]
    samples = {"one": few, "two": many}
    found = estimate_capacities((one, two, stated), samples, {}, CAPACITY, spread=0.1)
    expected = [10.0**2, variance, variance]
    assert [estimate.variance for estimate in found] == expected, "as handler time, until samples tell"


def test_loads_that_weigh_otherwise_judge_no_earlier_prediction() -> None:
    """A learned cost of records quadruples all loads: that is no overload, and no change to learn from."""
    tracker = OverloadTracker(30.0)
    both = members(one=frozenset({A, B}), two=frozenset({C}))
    for window in range(4):
        found = tracker.track(30.0 * window, loads(a=15, b=15, c=5), both, FIXED)
    assert found is not None
    assert (found.predictions, found.came_true) == (3, 0)
    weights = RecordWeights(0.5, 200.0)
    changed = tracker.track(100.0, loads(a=60, b=60, c=20), both, FIXED, weights)
    assert changed == replace(found, chance=1.0), "a new one at once, with the record of those before"
    settled = tracker.track(130.0, loads(a=45, b=45, c=15), both, FIXED, weights)
    assert settled is not None
    assert (settled.predictions, settled.came_true) == (4, 0)


def test_nothing_known_predicts_nothing() -> None:
    """An outage, and a group without members or with a partition for each."""
    tracker = OverloadTracker(30.0)
    assert tracker.track(0.0, {A: PartitionLoad()}, (), ()) is None
    assert tracker.track(0.0, loads(a=5), (), ()) is None
    assert tracker.track(31.0, loads(a=5), members(one=frozenset({A})), FIXED[:1]) is None
    assert UNASSIGNED == -1
