"""Waiting that a signal ends at once."""

import os
import select
import signal
from collections.abc import Callable
from typing import Final

ENDING: Final = (signal.SIGTERM, signal.SIGINT)


def waiter() -> Callable[[float], bool]:
    """Return `wait(seconds)`: waits so long, and tells whether SIGTERM or SIGINT has come, ever.

    The handler only writes to a pipe: nothing that a signal interrupts can be held by it.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def note(*_: object) -> None:
        os.write(writing, b"!")

    for number in ENDING:
        signal.signal(number, note)

    def wait(seconds: float) -> bool:
        ready, _, _ = select.select([reading], [], [], seconds)
        return bool(ready)

    return wait
