"""Waits and requests that a signal ends at once."""

import os
import select
import signal
from collections.abc import Callable
from threading import Event, Thread
from typing import Final, TypeVar

T = TypeVar("T")

SIGNAL_WAIT_S: Final = 3600.0
SIGNAL_POLL_INTERVAL_S: Final = 0.05
"""Seconds between two looks whether a question is answered."""

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def install_signal_waiter() -> Callable[[float], bool]:
    """Return `wait(seconds)`, which returns True once SIGTERM or SIGINT has arrived."""
    # the handler only writes to a pipe: it takes no lock that the interrupted code may hold
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def note(*_: object) -> None:
        os.write(writing, b"!")

    for number in STOP_SIGNALS:
        signal.signal(number, note)

    def wait(seconds: float) -> bool:
        ready, _, _ = select.select([reading], [], [], seconds)
        return bool(ready)

    return wait


def stop_on_signals(stop: Event) -> None:
    """Set the event on SIGTERM or SIGINT."""
    # on a thread: a handler could wait for ever for the event's lock, which the code that it
    # interrupts may hold
    wait = install_signal_waiter()
    Thread(target=_set_after_signal, args=(stop, wait), name="trimtab-signals", daemon=True).start()


def _set_after_signal(stop: Event, wait: Callable[[float], bool]) -> None:
    while not wait(SIGNAL_WAIT_S):
        pass
    stop.set()


def run_interruptible(request: Callable[[], T], wait: Callable[[float], bool]) -> T:
    """Return the result of `request`, which runs on its own thread; a signal ends the wait.

    Raises the errors of `request`, and SystemExit after a signal; the request may still be
    running then.
    """
    # a client library that waits for a broker cannot be interrupted
    answers: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            answers.append(request())
        except BaseException as error:  # noqa: BLE001 - it is raised where it was asked for
            errors.append(error)

    thread = Thread(target=work, name="trimtab-request", daemon=True)
    thread.start()
    while thread.is_alive():
        if wait(SIGNAL_POLL_INTERVAL_S):
            raise SystemExit(0)
    for error in errors:
        raise error
    return answers[0]
