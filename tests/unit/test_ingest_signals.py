"""Signals end an ingest without touching what they interrupt."""

import signal
import threading
from collections.abc import Iterator

import pytest

from trimtab.cli.ingest.run import stop_on_signals
from trimtab.cli.signals import STOP_SIGNALS


class Stop(threading.Event):
    """Remembers which thread has set it."""

    by: threading.Thread | None = None

    def set(self) -> None:
        self.by = threading.current_thread()
        super().set()


@pytest.fixture
def handlers() -> Iterator[None]:
    """Put this process's own handlers back afterwards."""
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
    """The handlers are put in place again after Spark's start; nothing is forgotten by that."""
    stop = Stop()
    stop_on_signals(stop)
    signal.raise_signal(signal.SIGTERM)
    stop_on_signals(stop)
    assert stop.wait(10)
