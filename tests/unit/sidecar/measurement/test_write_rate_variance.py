"""How much write speeds swing, as the sidecar learns it."""

import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.measurement.write_rate_variance import WriteRateVariance

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def speeds(**rates: float | None) -> dict[TopicPartition, PartitionLoad]:
    names = {"a": A, "b": B}
    return {names[n]: PartitionLoad(bytes_per_s=rate) for n, rate in rates.items()}


def deviation(swings: WriteRateVariance, **rates: float | None) -> list[float | None]:
    return [s.stddev_bytes_per_s for s in swings.add_deviations(speeds(**rates)).values()]


def test_what_was_never_seen_to_change_is_expected_to_stay() -> None:
    """One measurement tells nothing of the next."""
    assert deviation(WriteRateVariance(30.0), a=5.0, b=None) == [0.0, 0.0]
    assert deviation(WriteRateVariance(30.0).add_write_rates(0.0, speeds(a=5.0)), a=5.0) == [0.0]


def test_a_change_counts_by_its_size() -> None:
    """A swing of 10 bytes/s is a deviation of 10; half is pooled with the steady partition."""
    swings = (
        WriteRateVariance(30.0)
        .add_write_rates(0.0, speeds(a=50.0, b=20.0))
        .add_write_rates(30.0, speeds(a=60.0, b=20.0))
    )
    swinging, still = deviation(swings, a=60.0, b=20.0)
    assert swinging is not None
    assert still is not None
    assert 0 < still < swinging <= 10.0


def test_overlapping_windows_are_not_compared() -> None:
    """A measurement that comes too early is not taken in."""
    swings = WriteRateVariance(30.0).add_write_rates(0.0, speeds(a=50.0))
    assert swings.add_write_rates(29.0, speeds(a=90.0)) is swings
    assert deviation(swings.add_write_rates(31.0, speeds(a=90.0)), a=90.0) == [pytest.approx(40.0)]


def test_partitions_come_and_go() -> None:
    """A new partition gets the mean of the others; one that is away is forgotten."""
    swings = (
        WriteRateVariance(30.0).add_write_rates(0.0, speeds(a=50.0)).add_write_rates(30.0, speeds(a=60.0))
    )
    assert deviation(swings, b=5.0, a=60.0) == [pytest.approx(10.0)] * 2
    gone = swings.add_write_rates(60.0, speeds(b=5.0)).add_write_rates(90.0, speeds(a=500.0, b=5.0))
    assert deviation(gone, a=500.0) == [0.0]


def test_blindness_takes_nothing_in() -> None:
    """While no speed is known, what was learned stays."""
    swings = (
        WriteRateVariance(30.0).add_write_rates(0.0, speeds(a=50.0)).add_write_rates(30.0, speeds(a=60.0))
    )
    assert swings.add_write_rates(60.0, speeds(a=None)) is swings
