"""Waits and requests that end at once on a signal."""

import os
import select
import signal
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Event, Thread
from typing import Final

from trimtab.common.type_vars import ResultT

SIGNAL_WAIT_S: Final = 3600.0
SIGNAL_POLL_INTERVAL_S: Final = 0.05  # between two checks whether a request has ended

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def install_signal_waiter() -> Callable[[float], bool]:
    """Return `wait(seconds)`, which returns True once SIGTERM or SIGINT has arrived."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)  # a full pipe has a signal in it already

    def handle(*_: object) -> None:
        os.write(writing, b"!")  # takes no lock, which the interrupted code may hold

    for number in STOP_SIGNALS:
        signal.signal(number, handle)

    def wait(seconds: float) -> bool:
        ready, _, _ = select.select([reading], [], [], seconds)
        return bool(ready)

    return wait


def stop_on_signals(stop: Event) -> None:
    """Set the event on SIGTERM or SIGINT."""
    wait = install_signal_waiter()

    def watch() -> None:
        while not wait(SIGNAL_WAIT_S):
            pass
        stop.set()

    # on a thread: set() takes the event's lock, which the code under a handler may hold
    Thread(target=watch, name="trimtab-signals", daemon=True).start()


@contextmanager
def exit_on_signals() -> Generator[None]:
    """Leave the block by SystemExit(0) on SIGTERM or SIGINT, wherever it is; a second one changes nothing."""
    received: list[int] = []

    def handle(number: int, _frame: object) -> None:
        if not received:  # else the cleaning up would be left incomplete
            received.append(number)
            raise SystemExit(0)

    for number in STOP_SIGNALS:
        signal.signal(number, handle)
    yield
    if received:  # a library has dropped the exception
        raise SystemExit(0)


def run_interruptible(request: Callable[[], ResultT], wait: Callable[[float], bool]) -> ResultT:
    """Return the result of `request`, which runs on its own thread; a signal raises SystemExit."""
    result: Future[ResultT] = Future()

    def run() -> None:
        try:
            result.set_result(request())
        except BaseException as error:  # noqa: BLE001 - the caller's thread raises it
            result.set_exception(error)

    # a client library that waits for a broker cannot be interrupted; a daemon does not keep the
    # process alive, unlike the threads of an executor
    Thread(target=run, name="trimtab-request", daemon=True).start()
    while not result.done():
        if wait(SIGNAL_POLL_INTERVAL_S):
            raise SystemExit(0)
    return result.result()
