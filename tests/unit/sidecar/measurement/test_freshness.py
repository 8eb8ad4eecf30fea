"""Freshness from the backlog alone: how near it comes, and what is said of a goal."""

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
    """Partitions whose batches last so long and are committed so long after they are closed."""
    found: dict[TopicPartition, PartitionLoad] = {}
    for number, phase in enumerate(phases):
        rate, age = 10.0 * (number + 1), flush + (time + phase) % batch
        found[TopicPartition("t", number)] = PartitionLoad(rate, rate, None, int(rate * age))
    return found


@pytest.mark.parametrize("partitions", [4, 40])
@pytest.mark.parametrize(("batch", "flush"), [(10.0, 2.0), (30.0, 5.0), (60.0, 10.0), (7.0, 0.5)])
def test_ages_of_what_waits_tell_freshness(partitions: int, batch: float, flush: float) -> None:
    """Within a tenth of what the records themselves would say, or half a second."""
    rng = random.Random(partitions)  # noqa: S311 - a test repeats itself
    phases = [rng.uniform(0, batch) for _ in range(partitions)]
    times = [10 * turn + rng.uniform(-2, 2) for turn in range(24)]
    looks = [sample_ages(t, batched(phases, batch, flush, t)) for t in times]
    found = estimate_freshness(tuple(seen for seen in looks if seen is not None))
    assert found is not None
    assert found.p99 == pytest.approx(flush + 0.99 * batch, rel=0.1)
    assert found.flush_time == pytest.approx(flush, abs=max(0.5, 0.1 * batch))
    assert found.batch_age == pytest.approx(batch, rel=0.15)


def test_what_is_written_most_counts_most() -> None:
    """A partition that hardly writes does not make the group look old."""
    speeds = {
        TopicPartition("t", 0): PartitionLoad(1.0, 1000.0, None, 5000),
        TopicPartition("t", 1): PartitionLoad(1.0, 0.1, None, 60),
    }
    seen = sample_ages(0.0, speeds)
    assert seen is not None
    assert sorted(seen.ages)[98] < 7


@pytest.mark.parametrize("speed", [PartitionLoad(), PartitionLoad(0.0, 0.0, 0.0, 7), PartitionLoad(1.0, 1.0)])
def test_what_is_not_known_or_not_written_has_no_age(speed: PartitionLoad) -> None:
    """Neither an unknown backlog nor one that nobody adds to is a sample."""
    assert sample_ages(0.0, {TopicPartition("t", 0): speed}) is None
    assert estimate_freshness((AgeSample(0.0, (1.0,)),)) is None


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (FreshnessEstimate(29.0, 5.0, 24.0), None),
        (FreshnessEstimate(40.0, 5.0, 35.0), "batches take 35 s and may take 22 s (batch.max.age)"),
        (FreshnessEstimate(40.0, 25.0, 2.0), "p99 freshness is 40 s, the SLO 30 s"),
        (FreshnessEstimate(60.0, 28.0, 32.0), "a flush alone takes 28 s, check the sink"),
    ],
)
def test_a_goal_that_is_missed_is_told_with_what_to_do(found: FreshnessEstimate, said: str | None) -> None:
    """Shorter batches where they would do, the sink where not; nothing where it is kept."""
    told = found.describe_slo_miss(30.0)
    assert (told is None) if said is None else (told is not None and told.endswith(said))


@pytest.mark.parametrize(
    ("told", "found", "goal", "batch"),
    [
        (None, FreshnessEstimate(29.0, 5.0, 24.0), 30.0, None),  # the goal is kept
        (None, FreshnessEstimate(40.0, 5.0, 35.0), 30.0, 22.0),
        (None, FreshnessEstimate(40.0, 5.0, 20.0), 30.0, None),  # it is not the batches
        (None, FreshnessEstimate(60.0, 28.0, 32.0), 30.0, None),  # a flush alone takes too long
        (22.0, FreshnessEstimate(40.0, 5.0, 35.0), 30.0, 22.0),  # told, and not seen yet
        (22.0, FreshnessEstimate(29.0, 8.0, 21.0), 30.0, 22.0),  # noise
        (22.0, FreshnessEstimate(29.0, 11.0, 18.0), 30.0, 16.0),
        (22.0, FreshnessEstimate(60.0, 28.0, 32.0), 30.0, 22.0),
        (10.0, FreshnessEstimate(20.0, 5.0, 10.0), 30.0, 22.0),  # flushes are quick again
        (22.0, None, 30.0, 22.0),
        (22.0, FreshnessEstimate(20.0, 5.0, 15.0), None, None),  # nobody asks any more
    ],
)
def test_the_plan_says_how_long_batches_may_be(
    told: float | None, found: FreshnessEstimate | None, goal: float | None, batch: float | None
) -> None:
    """Shortened where it makes the goal, and changed for news only."""
    assert update_batch_max_age(told, found, goal) == batch
