"""The variance of write rates, as the sidecar learns it."""

import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.measurement.write_rate_variance import WriteRateVariance

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def loads(**rates: float | None) -> dict[TopicPartition, PartitionLoad]:
    names = {"a": A, "b": B}
    return {names[n]: PartitionLoad(bytes_per_s=rate) for n, rate in rates.items()}


def deviation(variance: WriteRateVariance, **rates: float | None) -> list[float | None]:
    return [s.stddev_bytes_per_s for s in variance.add_deviations(loads(**rates)).values()]


def test_a_rate_without_history_has_no_variance() -> None:
    """One measurement says nothing about the next."""
    assert deviation(WriteRateVariance(30.0), a=5.0, b=None) == [0.0, 0.0]
    assert deviation(WriteRateVariance(30.0).add_write_rates(0.0, loads(a=5.0)), a=5.0) == [0.0]


def test_a_change_counts_by_its_size() -> None:
    """A change of 10 bytes/s is a deviation of 10; half is pooled with the steady partition."""
    variance = (
        WriteRateVariance(30.0)
        .add_write_rates(0.0, loads(a=50.0, b=20.0))
        .add_write_rates(30.0, loads(a=60.0, b=20.0))
    )
    swinging, still = deviation(variance, a=60.0, b=20.0)
    assert swinging is not None
    assert still is not None
    assert 0 < still < swinging <= 10.0


def test_overlapping_windows_are_not_compared() -> None:
    """A measurement within the same window is not sampled."""
    variance = WriteRateVariance(30.0).add_write_rates(0.0, loads(a=50.0))
    assert variance.add_write_rates(29.0, loads(a=90.0)) is variance
    assert deviation(variance.add_write_rates(31.0, loads(a=90.0)), a=90.0) == [pytest.approx(40.0)]


def test_partitions_come_and_go() -> None:
    """A new partition gets the mean of the others; a deleted one is dropped."""
    variance = (
        WriteRateVariance(30.0).add_write_rates(0.0, loads(a=50.0)).add_write_rates(30.0, loads(a=60.0))
    )
    assert deviation(variance, b=5.0, a=60.0) == [pytest.approx(10.0)] * 2
    gone = variance.add_write_rates(60.0, loads(b=5.0)).add_write_rates(90.0, loads(a=500.0, b=5.0))
    assert deviation(gone, a=500.0) == [0.0]


def test_unknown_rates_change_no_variance() -> None:
    """While no write rate is known, the variance stays."""
    variance = (
        WriteRateVariance(30.0).add_write_rates(0.0, loads(a=50.0)).add_write_rates(30.0, loads(a=60.0))
    )
    assert variance.add_write_rates(60.0, loads(a=None)) is variance
