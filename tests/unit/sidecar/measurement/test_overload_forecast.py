"""The chance that a consumer is above its capacity a window from now comes true as often as it says."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from trimtab.assignor.forecast import RateChangeStats
from trimtab.assignor.model import UNASSIGNED, FloatArray, TopicPartition
from trimtab.common.control_topics.write_rates import PartitionLoad
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


def test_chances_come_true_as_often_as_they_say() -> None:
    """Of changes that are neither normal nor independent, over all cases and those of about 5 %."""
    forecaster, made = OverloadForecaster(RateChangeStats.empty(PARTITIONS)), list[FloatArray]()
    capacities, chances = np.full(CONSUMERS, CAPACITY), None
    for tick, rates in enumerate(heavy_tailed_rates(1, 1000)):
        load = np.bincount(OWNER, rates)
        if chances is not None and tick > 50:
            made.append(np.stack([chances, load > CAPACITY], axis=1))
        chances, forecaster = forecaster.add_measurement(rates, OWNER, capacities)
    found = np.concatenate(made)
    assert found[:, 0].mean() == pytest.approx(found[:, 1].mean(), rel=0.2)
    of_about_5 = found[(found[:, 0] > 0.03) & (found[:, 0] < 0.07)]
    assert len(of_about_5) > 500
    assert 0.035 < of_about_5[:, 1].mean() < 0.065


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


def loads(**rates: float) -> dict[TopicPartition, PartitionLoad]:
    return {{"a": A, "b": B, "c": C}[name]: PartitionLoad(rate) for name, rate in rates.items()}


def test_the_fullest_is_told_with_the_record_of_earlier_ones() -> None:
    """Once a window; a new partition and a consumer that left change nothing of the others' record."""
    tracker = OverloadTracker(30.0)
    both = members(one=frozenset({A, B}), two=frozenset({C}))
    assert tracker.track(0.0, loads(a=40, b=50, c=5), both, CAPACITY) == OverloadChance("one", 0.0, 30.0)
    assert tracker.track(10.0, loads(a=99, b=99, c=5), both, CAPACITY) == OverloadChance("one", 0.0, 30.0)
    found = tracker.track(30.0, loads(a=48, b=53, c=5), both, CAPACITY)
    assert found is not None
    assert (found.predictions, found.expected, found.came_true) == (1, 0.0, 1)
    assert found.chance > 0.4
    alone = members(two=frozenset({B, C}))
    later = tracker.track(60.0, loads(b=10, c=5), alone, CAPACITY)
    assert later is not None
    assert (later.consumer, later.predictions, later.came_true) == ("two", 2, 1)
    assert "of 2 predictions" in later.format_line()


def test_loads_that_weigh_otherwise_judge_no_earlier_prediction() -> None:
    """A learned cost of records quadruples all loads: that is no overload, and no change to learn from."""
    tracker = OverloadTracker(30.0)
    both = members(one=frozenset({A, B}), two=frozenset({C}))
    for window in range(4):
        found = tracker.track(30.0 * window, loads(a=15, b=15, c=5), both, CAPACITY)
    assert found is not None
    assert (found.predictions, found.came_true) == (3, 0)
    weights = RecordWeights(0.5, 200.0)
    changed = tracker.track(100.0, loads(a=60, b=60, c=20), both, CAPACITY, weights)
    assert changed == replace(found, chance=1.0), "a new one at once, with the record of those before"
    settled = tracker.track(130.0, loads(a=45, b=45, c=15), both, CAPACITY, weights)
    assert settled is not None
    assert (settled.predictions, settled.came_true) == (4, 0)


def test_nothing_known_predicts_nothing() -> None:
    """An outage, and a group without members or with a partition for each."""
    tracker = OverloadTracker(30.0)
    assert tracker.track(0.0, {A: PartitionLoad()}, (), CAPACITY) is None
    assert tracker.track(0.0, loads(a=5), (), CAPACITY) is None
    assert tracker.track(31.0, loads(a=5), members(one=frozenset({A})), CAPACITY) is None
    assert UNASSIGNED == -1
