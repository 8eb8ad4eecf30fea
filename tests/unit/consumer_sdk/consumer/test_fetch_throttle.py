"""Fetch throttle: an average rate, and fetches small enough to keep it smooth."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from trimtab.consumer_sdk.consumer.fetch_throttle import FetchThrottle


@dataclass
class HandClock:
    now: float = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@given(st.floats(1e3, 1e8), st.lists(st.integers(0, 10**6), min_size=1, max_size=50))
def test_waiting_keeps_the_rate(rate: float, sizes: list[int]) -> None:
    """The total time is bytes ÷ rate, whatever the sizes of the fetches."""
    clock = HandClock()
    throttle = FetchThrottle(clock, 1e6, rate)
    for size in sizes:
        throttle.record_fetch(size, 1)
        clock.sleep(throttle.remaining_wait_s())
    assert abs(clock.now - sum(sizes) / rate) < 1e-6 * max(1.0, clock.now)


def test_idle_time_does_not_accumulate() -> None:
    """After a pause the rate applies at once."""
    clock = HandClock(100.0)
    throttle = FetchThrottle(clock, 1e6, 1000.0)
    throttle.record_fetch(500, 5)
    assert throttle.remaining_wait_s() == 0.5


def test_a_fetch_takes_a_tenth_of_a_second_of_capacity() -> None:
    """The number of records to fetch follows their size."""
    throttle = FetchThrottle(HandClock(), 1e6, 100_000.0)
    for _ in range(60):
        throttle.record_fetch(100_000, 100)
    assert throttle.limit_records(5000) == 10


def test_without_a_rate_a_fetch_is_bounded_by_its_bytes() -> None:
    """Few large or many small records are fetched at once, without a wait."""
    throttle = FetchThrottle(HandClock(), 1e6)
    throttle.record_fetch(500_000, 1)
    assert throttle.limit_records(5000) == 2
    assert throttle.remaining_wait_s() == 0.0
    for _ in range(60):
        throttle.record_fetch(100_000, 1000)
    assert throttle.limit_records(5000) == 5000
