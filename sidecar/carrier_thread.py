"""The thread of a plan carrier."""

from collections.abc import Callable
from threading import Event, Thread
from typing import Final

CLOSE_TIMEOUT_S: Final = 5.0


class CarrierThread:
    """Calls `step`, which returns the seconds until the next call, until `end`; then calls `close`."""

    def __init__(self, name: str, step: Callable[[], float], close: Callable[[], None]) -> None:
        self.ending = Event()
        self._step = step
        self._close = close
        self._wake_up = Event()
        self._thread = Thread(target=self._run, name=name, daemon=True)

    @property
    def is_alive(self) -> bool:
        """Whether the thread has been started and has not ended."""
        return self._thread.is_alive()

    def wake(self) -> None:
        """Call `step` soon; the first time this starts the thread."""
        if self._thread.ident is None and not self.ending.is_set():
            self._thread.start()
        self._wake_up.set()

    def end(self) -> None:
        """End the thread, and wait for it up to `CLOSE_TIMEOUT_S`."""
        self.ending.set()
        self._wake_up.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        while not self.ending.is_set():
            self._wake_up.wait(self._step())
            self._wake_up.clear()
        self._close()
