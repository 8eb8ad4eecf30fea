"""The lock of turns: an interrupt while it is taken leaves nobody as its holder."""

import sys
import threading
from types import FrameType
from typing import Any

import pytest

from trimtab.consumer_sdk.client.fair_lock import FairLock


class Interrupt:
    """Raises KeyboardInterrupt after `lines` lines of FairLock.acquire."""

    def __init__(self, lines: int) -> None:
        self.lines = lines

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code is not FairLock.acquire.__code__:
            return None
        if event == "line":
            self.lines -= 1
            if self.lines < 0:
                raise KeyboardInterrupt
        return self


@pytest.mark.parametrize("lines", range(7))
def test_an_interrupted_acquire_leaves_no_holder(lines: int) -> None:
    """Else close() would wait for the end of a turn that has ended."""
    lock = FairLock()
    before = sys.gettrace()
    sys.settrace(Interrupt(lines))
    try:
        with pytest.raises(KeyboardInterrupt):
            lock.acquire()
    finally:
        sys.settrace(before)
    assert not lock.is_mine
    with lock:
        assert lock.is_mine
    assert not lock.is_mine


def test_the_holder_enters_again_while_others_wait() -> None:
    """Else both would wait for each other."""
    lock = FairLock()
    entered = threading.Event()

    def wait() -> None:
        entered.set()
        with lock:
            pass

    with lock:
        thread = threading.Thread(target=wait)
        thread.start()
        entered.wait(5)
        thread.join(0.1)
        assert thread.is_alive()
        assert lock.acquire(timeout=5)
        lock.release()
    thread.join(5)
    assert not thread.is_alive()


def test_a_thread_may_wait_for_the_lock_without_taking_it() -> None:
    """It learns within the timeout whether a call of another thread has ended."""
    lock, taken, done = FairLock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            taken.set()
            assert done.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    assert taken.wait(10)
    assert not lock.wait_until_free(0.01)
    done.set()
    assert lock.wait_until_free(10)
    assert not lock.is_mine
    holder.join(10)
