"""Freshness estimated from the backlog: its accuracy, and the advice for an SLO."""

import random
from collections.abc import Mapping

import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.measurement.freshness import (
    AgeSample,
    FreshnessEstimate,
    estimate_freshness,
    sample_ages,
    update_batch_max_age,
)


def batched(
    phases: list[float], batch: float, flush: float, time: float
) -> Mapping[TopicPartition, PartitionLoad]:
    """Return partitions with batches of this age and flush time."""
    found: dict[TopicPartition, PartitionLoad] = {}
    for number, phase in enumerate(phases):
        rate, age = 10.0 * (number + 1), flush + (time + phase) % batch
        found[TopicPartition("t", number)] = PartitionLoad(rate, rate, None, int(rate * age))
    return found


@pytest.mark.parametrize("partitions", [4, 40])
@pytest.mark.parametrize(("batch", "flush"), [(10.0, 2.0), (30.0, 5.0), (60.0, 10.0), (7.0, 0.5)])
def test_ages_of_the_backlog_estimate_freshness(partitions: int, batch: float, flush: float) -> None:
    """The estimate is within a tenth, or half a second, of the records' own freshness."""
    rng = random.Random(partitions)  # noqa: S311 - a test repeats itself
    phases = [rng.uniform(0, batch) for _ in range(partitions)]
    times = [10 * turn + rng.uniform(-2, 2) for turn in range(24)]
    looks = [sample_ages(t, batched(phases, batch, flush, t)) for t in times]
    found = estimate_freshness(tuple(seen for seen in looks if seen is not None))
    assert found is not None
    assert found.p99 == pytest.approx(flush + 0.99 * batch, rel=0.1)
    assert found.flush_time == pytest.approx(flush, abs=max(0.5, 0.1 * batch))
    assert found.batch_age == pytest.approx(batch, rel=0.15)


def test_ages_are_weighted_by_write_rate() -> None:
    """A partition with hardly any writes does not make the group look late."""
    loads = {
        TopicPartition("t", 0): PartitionLoad(1.0, 1000.0, None, 5000),
        TopicPartition("t", 1): PartitionLoad(1.0, 0.1, None, 60),
    }
    seen = sample_ages(0.0, loads)
    assert seen is not None
    assert sorted(seen.ages)[98] < 7


@pytest.mark.parametrize("load", [PartitionLoad(), PartitionLoad(0.0, 0.0, 0.0, 7), PartitionLoad(1.0, 1.0)])
def test_partitions_without_writes_or_backlog_data_have_no_age(load: PartitionLoad) -> None:
    """An unknown backlog, or one without writes, is no sample."""
    assert sample_ages(0.0, {TopicPartition("t", 0): load}) is None
    assert estimate_freshness((AgeSample(0.0, (1.0,)),)) is None


@pytest.mark.parametrize(
    ("estimate", "advice"),
    [
        (FreshnessEstimate(29.0, 5.0, 24.0), None),
        (FreshnessEstimate(40.0, 5.0, 35.0), "batches take 35 s and may take 22 s (batch.max.age)"),
        (FreshnessEstimate(40.0, 25.0, 2.0), "p99 freshness is 40 s, the SLO 30 s"),
        (FreshnessEstimate(60.0, 28.0, 32.0), "a flush alone takes 28 s, check the sink"),
    ],
)
def test_a_missed_slo_is_reported_with_advice(estimate: FreshnessEstimate, advice: str | None) -> None:
    """The advice is shorter batches if they suffice, else the sink; nothing if the SLO is met."""
    text = estimate.describe_slo_miss(30.0)
    assert (text is None) if advice is None else (text is not None and text.endswith(advice))


@pytest.mark.parametrize(
    ("current", "estimate", "slo", "batch"),
    [
        (None, FreshnessEstimate(29.0, 5.0, 24.0), 30.0, None),  # the SLO is met
        (None, FreshnessEstimate(40.0, 5.0, 35.0), 30.0, 22.0),
        (None, FreshnessEstimate(40.0, 5.0, 20.0), 30.0, None),  # shorter batches would not help
        (None, FreshnessEstimate(60.0, 28.0, 32.0), 30.0, None),  # a flush alone takes too long
        (22.0, FreshnessEstimate(40.0, 5.0, 35.0), 30.0, 22.0),  # published, but not yet in effect
        (22.0, FreshnessEstimate(29.0, 8.0, 21.0), 30.0, 22.0),  # noise
        (22.0, FreshnessEstimate(29.0, 11.0, 18.0), 30.0, 16.0),
        (22.0, FreshnessEstimate(60.0, 28.0, 32.0), 30.0, 22.0),
        (10.0, FreshnessEstimate(20.0, 5.0, 10.0), 30.0, 22.0),  # flushes are quick again
        (22.0, None, 30.0, 22.0),
        (22.0, FreshnessEstimate(20.0, 5.0, 15.0), None, None),  # no SLO is set any more
    ],
)
def test_the_plan_limits_the_batch_age(
    current: float | None, estimate: FreshnessEstimate | None, slo: float | None, batch: float | None
) -> None:
    """The limit appears if it meets the SLO, and changes only in large steps."""
    assert update_batch_max_age(current, estimate, slo) == batch
