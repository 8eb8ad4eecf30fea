"""Lock of the consumer's turns: one thread at a time serves events and fetches."""

from collections.abc import Callable
from threading import RLock, get_ident
from typing import Any, Final, Self

NO_THREAD: Final = 0


class FairLock:
    """Re-entrant lock that a waiting thread gets before its holder can take it again."""

    # Python's locks are not fair: a loop that releases one and takes it again keeps the others waiting.

    def __init__(self) -> None:
        self.on_wait: Callable[[], object] = lambda: None  # called before a wait for another thread's release
        self._entrance = RLock()  # held while waiting, so the previous holder queues behind
        self._lock = RLock()
        self._holder = NO_THREAD
        self._depth = 0

    @property
    def is_mine(self) -> bool:
        """Whether the calling thread holds the lock."""
        return self._depth > 0 and self._holder == get_ident()

    @property
    def is_interrupted_here(self) -> bool:
        """Whether the calling thread, in a signal handler, holds the lock or was waiting for it."""
        entrance: Any = self._entrance  # its type leaves out what threading.Condition asks
        return self.is_mine or bool(entrance._is_owned())  # noqa: SLF001

    def acquire(self, timeout: float = -1) -> bool:
        """Take the lock, waiting up to about `timeout` seconds (-1: forever); return whether it is held."""
        if self.is_mine:  # the entrance may be held by a thread that waits for this one
            taken = self._lock.acquire()
        elif self._entrance.acquire(timeout=timeout):
            try:
                taken = self._lock.acquire(blocking=False)
                if not taken:
                    self.on_wait()
                    taken = self._lock.acquire(timeout=timeout)
            finally:
                self._entrance.release()
        else:
            return False
        if taken:
            self._holder = get_ident()  # before the depth: an interrupt between them leaves no holder
            self._depth += 1
        return taken

    def release(self) -> None:
        """Release the lock, which the calling thread holds."""
        self._depth -= 1
        if not self._depth:
            self._holder = NO_THREAD
        self._lock.release()

    def wait_until_free(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until the lock could be taken; return whether it could."""
        is_free = self.acquire(timeout)
        if is_free:
            self.release()
        return is_free

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
