"""`@worker`: a function that handles messages, many at a time, until it is told to stop.

    @worker(concurrency=16)
    def bill(message: Received) -> None:
        ...

    bill.run(queue, stop)

The rules:

1. A message whose handler returns is acknowledged, unless the handler has settled it. `Retry` gives
   it back, `Reject` gives it up, any other exception gives it back after `retry_delay`. So do a
   `sys.exit` in a handler, which ends nothing (set `stop`), and a CancelledError of what it awaits.
   Ctrl-C (KeyboardInterrupt) ends the worker without a drain; coroutines that are cancelled by it
   give their messages back.
2. At most `concurrency` handlers run. As many messages again are taken in advance (`prefetch`), and
   their time runs: the queue's timeout must cover the wait for a handler.
3. When it is told to stop it takes nothing more, lets what it has taken end, `drain` seconds at
   most, and flushes. What has not ended by then comes back as its kind of queue has it. A coroutine
   is cancelled then. A function cannot be: `run` returns, but Python does not let the process exit
   before its pool's threads have ended. Give handlers timeouts, or end with `os._exit`.
4. A failure of the queue that passes by itself is told and waited for; any other ends the worker.
5. `receive` is called all the time, also while every handler is busy, since it serves the group.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from threading import Event
from typing import Any, Final, TypeAlias

from trimtab.common.clock import Clock, SystemClock
from trimtab.common.errors import TrimtabError
from trimtab.consumer_sdk.errors import NotOffered
from trimtab.consumer_sdk.queues.async_queue import AsyncQueue
from trimtab.consumer_sdk.queues.message import Received
from trimtab.consumer_sdk.queues.queue import Queue
from trimtab.consumer_sdk.queues.settlement import checked

log = logging.getLogger("trimtab.queues")

Handler: TypeAlias = Callable[[Received], None] | Callable[[Received], Coroutine[Any, Any, None]]

IDLE: Final = 0.2
"""Seconds of one wait for messages: how late a worker notices that it shall stop."""

BUSY: Final = 0.02
"""The same while handlers run."""


class Retry(Exception):
    """Raised by a handler: deliver the message again, in `delay` seconds. Raises BadDelay."""

    def __init__(self, delay: float = 0.0) -> None:
        checked(delay)
        super().__init__(f"in {delay:g} s")
        self.delay = delay


class Reject(Exception):
    """Raised by a handler: give the message up."""


class Worker:
    """A handler with its limits; made by `@worker`, callable as the function that it was."""

    def __init__(
        self, handler: Handler, concurrency: int, prefetch: int, retry_delay: float, clock: Clock
    ) -> None:
        self._handler = handler
        self._limit = concurrency + prefetch
        self._concurrency = concurrency
        self._retry_delay = retry_delay
        self._clock = clock
        self._asynchronous = inspect.iscoroutinefunction(handler)

    def __call__(self, message: Received) -> Coroutine[Any, Any, None] | None:
        """Call the function itself."""
        return self._handler(message)

    def run(self, queue: Queue, stop: Event, *, drain: float = 30.0) -> None:
        """Handle messages until `stop` is set, then drain. Raises what `receive` raises."""
        if self._asynchronous:
            asyncio.run(self.run_async(queue, stop, drain=drain))
            return
        running: set[Future[None]] = set()
        pool = ThreadPoolExecutor(self._concurrency, thread_name_prefix="trimtab-worker")
        try:
            while not stop.is_set():
                running = self._turn(queue, pool, running)
            deadline = self._clock.monotonic() + drain
            while running and self._clock.monotonic() < deadline:
                running = wait(running, BUSY).not_done
                _receive(queue, 0, 0)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        queue.flush()

    async def run_async(self, queue: Queue, stop: Event, *, drain: float = 30.0) -> None:
        """Do the same in a running event loop; the handler is a coroutine function."""
        slots, over = asyncio.Semaphore(self._concurrency), Event()
        running: set[asyncio.Task[None]] = set()
        async with AsyncQueue(queue) as calls:
            while not stop.is_set():
                free = self._free(len(running))
                if not free:
                    await asyncio.wait(running, timeout=BUSY, return_when=FIRST_COMPLETED)
                receive = partial(_receive, most=free, wait=_pause(free, len(running)))
                for message in await calls.call(receive):
                    running.add(asyncio.create_task(self._one_async(message, slots, over)))
                running = {task for task in running if not task.done()}
            deadline = self._clock.monotonic() + drain
            while running and self._clock.monotonic() < deadline:
                _, running = await asyncio.wait(running, timeout=BUSY)
                await calls.call(partial(_receive, most=0, wait=0))
            over.set()
            for task in running:
                task.cancel()
            await calls.flush()

    def _turn(
        self, queue: Queue, pool: ThreadPoolExecutor, running: set[Future[None]]
    ) -> set[Future[None]]:
        free = self._free(len(running))
        if not free:
            running = wait(running, BUSY, FIRST_COMPLETED).not_done
        for message in _receive(queue, free, _pause(free, len(running))):
            running.add(pool.submit(self._one, message))
        return {future for future in running if not future.done()}

    def _free(self, taken: int) -> int:
        """Return how many to ask for: none until half can be taken at once, which is cheaper."""
        free = self._limit - taken
        return free if free * 2 >= self._limit else 0

    def _one(self, message: Received) -> None:
        try:
            self._handler(message)
        except BaseException as error:  # noqa: BLE001 - whatever it was, it must be settled
            self._failed(message, error)
        else:
            _settle(message)

    async def _one_async(self, message: Received, slots: asyncio.Semaphore, over: Event) -> None:
        """Handle one message; from when it is `over` on a cancel is ours, and settles nothing."""
        async with slots:
            try:
                returned: Awaitable[None] | None = self._handler(message)
                assert returned is not None
                await returned
            except asyncio.CancelledError as error:
                if over.is_set():
                    raise
                self._failed(message, error)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - the message must be settled
                self._failed(message, error)
            else:
                _settle(message)

    def _failed(self, message: Received, error: BaseException) -> None:
        if message.settled:
            log.warning("%r: its handler failed after it was settled: %r", message, error)
        elif isinstance(error, Reject):
            message.reject(str(error) or "rejected by its handler")
        elif isinstance(error, Retry):
            _retry(message, error.delay)
        else:
            log.warning("%r: its handler failed: %r", message, error)
            _retry(message, self._retry_delay)


def worker(
    *, concurrency: int = 1, prefetch: int | None = None, retry_delay: float = 1.0
) -> Callable[[Handler], Worker]:
    """Make a worker of a function, or of a coroutine function, that handles one message.

    `prefetch` is as large as `concurrency` unless it is given; `retry_delay` is seconds.
    Raises BadDelay.
    """
    checked(retry_delay)
    ahead = concurrency if prefetch is None else prefetch

    def decorate(handler: Handler) -> Worker:
        return Worker(handler, concurrency, ahead, retry_delay, SystemClock())

    return decorate


def _pause(free: int, running: int) -> float:
    """Return how long to wait for messages: not at all where none can be taken."""
    if not free:
        return 0.0
    return BUSY if running else IDLE


def _receive(queue: Queue, most: int, wait: float) -> Sequence[Received]:
    """Receive; a failure that passes by itself is told, and tried again."""
    try:
        return queue.receive(most, wait)
    except TrimtabError as error:
        if not error.retryable:
            raise
        log.warning("%s", error)
        return []


def _settle(message: Received) -> None:
    if not message.settled:
        message.ack()


def _retry(message: Received, delay: float) -> None:
    """Give a message back; at once where this kind of queue knows no delay."""
    with suppress(NotOffered):
        message.retry(delay)
    if not message.settled:
        message.retry()
