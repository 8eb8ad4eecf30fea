"""Write rates of topics whose records differ in size, on a real broker."""

from collections.abc import Callable, Iterator
from threading import Event
from time import monotonic
from typing import Any

import pytest
from dirty_topics import MEAN_SIZE, Sized

from trimtab.common.clock import SystemClock
from trimtab.sidecar.measurement.group_monitor import GroupMonitor
from trimtab.sidecar.settings.settings import load_settings

WINDOW_S = 4.0
BYTES_PER_S = 2_600_000.0  # as many records in 4 s as 260 kB/s have in 40 s


@pytest.fixture
def open_monitor(bootstrap: str, group: str) -> Iterator[Callable[..., GroupMonitor]]:
    """Open group monitors; they are closed after the test."""
    opened: list[GroupMonitor] = []

    def start(**extra: Any) -> GroupMonitor:
        times = {"window": f"{WINDOW_S:g} s", "interval": "500 ms", "timeout": "5 s"}
        values = {"bootstrap": bootstrap, "group": group, "capacity": "1 MB/s", **times, **extra}
        opened.append(GroupMonitor(load_settings(None, values), SystemClock()))
        return opened[-1]

    yield start
    for monitor in opened:
        monitor.close()


@pytest.mark.broker
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_sizes_with_a_heavy_tail(
    bootstrap: str, topic: Callable[..., str], open_monitor: Callable[..., GroupMonitor], compression: str
) -> None:
    """2 % of the records hold three quarters of the bytes: after two windows the rate is right."""
    name, pause, errors = topic(partitions=4), Event(), list[float]()
    monitor = open_monitor(topics=name)
    producer = Sized(bootstrap, name, 4, BYTES_PER_S / MEAN_SIZE, compression=compression)
    try:
        begun = monotonic()
        while (elapsed := monotonic() - begun) < 8 * WINDOW_S:
            pause.wait(0.5)
            measured, now = monitor.measure().write_rates.values(), monotonic()
            if elapsed > 2 * WINDOW_S:
                told = sum(load.bytes_per_s or 0.0 for load in measured)
                errors.append(abs(told / producer.get_written_rate(now - 2 * WINDOW_S, now) - 1))
    finally:
        producer.stop()
    errors.sort()
    assert errors[int(0.95 * len(errors))] < 0.15, errors
