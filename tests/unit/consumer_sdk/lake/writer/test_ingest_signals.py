"""Signals stop an ingest without deadlocking the thread that they interrupt."""

import signal
import threading
from collections.abc import Iterator

import pytest

from trimtab.cli.signals import STOP_SIGNALS, stop_on_signals


class Stop(threading.Event):
    """Event that records the thread that sets it."""

    by: threading.Thread | None = None

    def set(self) -> None:
        self.by = threading.current_thread()
        super().set()


@pytest.fixture
def handlers() -> Iterator[None]:
    """Restore the signal handlers of this process."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_the_event_is_set_outside_the_handler(number: signal.Signals) -> None:
    """The interrupted thread may hold the event's lock, so another thread sets it."""
    stop = Stop()
    stop_on_signals(stop)
    signal.raise_signal(number)
    assert stop.wait(10)
    assert stop.by is not threading.main_thread()


@pytest.mark.usefixtures("handlers")
def test_a_signal_before_the_second_call_counts() -> None:
    """Installing the handlers again after Spark's start keeps an earlier signal."""
    stop = Stop()
    stop_on_signals(stop)
    signal.raise_signal(signal.SIGTERM)
    stop_on_signals(stop)
    assert stop.wait(10)
