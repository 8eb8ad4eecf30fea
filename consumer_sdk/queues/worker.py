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
3. When it is told to stop it takes nothing more, lets what it has taken end, `stop_timeout` seconds at
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
from trimtab.consumer_sdk.errors import UnsupportedQueueOperationError
from trimtab.consumer_sdk.queues.async_queue import AsyncQueue
from trimtab.consumer_sdk.queues.message import QueueMessage
from trimtab.consumer_sdk.queues.queue import MessageQueue
from trimtab.consumer_sdk.queues.settlement import check_delay

log = logging.getLogger("trimtab.queues")

MessageHandler: TypeAlias = (
    Callable[[QueueMessage], None] | Callable[[QueueMessage], Coroutine[Any, Any, None]]
)

IDLE_WAIT_S: Final = 0.2
"""Seconds of one wait for messages: how late a worker notices that it shall stop."""

BUSY_WAIT_S: Final = 0.02
"""The same while handlers run."""


class Retry(Exception):
    """Raised by a handler: deliver the message again, in `delay` seconds. Raises InvalidDelayError."""

    def __init__(self, delay: float = 0.0) -> None:
        check_delay(delay)
        super().__init__(f"in {delay:g} s")
        self.delay = delay


class Reject(Exception):
    """Raised by a handler: give the message up."""


class QueueWorker:
    """A handler with its limits; made by `@worker`, callable as the function that it was."""

    def __init__(
        self,
        handler: MessageHandler,
        concurrency: int,
        prefetch: int,
        retry_delay: float,
        clock: Clock,
    ) -> None:
        self._handler = handler
        self._max_in_work = concurrency + prefetch
        self._concurrency = concurrency
        self._retry_delay = retry_delay
        self._clock = clock
        self._is_async = inspect.iscoroutinefunction(handler)

    def __call__(self, message: QueueMessage) -> Coroutine[Any, Any, None] | None:
        """Call the function itself."""
        return self._handler(message)

    def run(self, queue: MessageQueue, stop: Event, *, stop_timeout: float = 30.0) -> None:
        """Handle messages until `stop` is set, then drain. Raises what `receive` raises."""
        if self._is_async:
            asyncio.run(self.run_async(queue, stop, stop_timeout=stop_timeout))
            return
        running: set[Future[None]] = set()
        pool = ThreadPoolExecutor(self._concurrency, thread_name_prefix="trimtab-worker")
        try:
            while not stop.is_set():
                running = self._run_iteration(queue, pool, running)
            deadline = self._clock.monotonic() + stop_timeout
            while running and self._clock.monotonic() < deadline:
                running = wait(running, BUSY_WAIT_S).not_done
                _receive_messages(queue, 0, 0)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        queue.flush()

    async def run_async(
        self, queue: MessageQueue, stop: Event, *, stop_timeout: float = 30.0
    ) -> None:
        """Do the same in a running event loop; the handler is a coroutine function."""
        slots, over = asyncio.Semaphore(self._concurrency), Event()
        running: set[asyncio.Task[None]] = set()
        async with AsyncQueue(queue) as calls:
            while not stop.is_set():
                free = self._count_free_slots(len(running))
                if not free:
                    await asyncio.wait(running, timeout=BUSY_WAIT_S, return_when=FIRST_COMPLETED)
                receive = partial(
                    _receive_messages, max_messages=free, wait=_receive_wait_s(free, len(running))
                )
                for message in await calls.run_on_queue(receive):
                    running.add(
                        asyncio.create_task(self._handle_message_async(message, slots, over))
                    )
                running = {task for task in running if not task.done()}
            deadline = self._clock.monotonic() + stop_timeout
            while running and self._clock.monotonic() < deadline:
                _, running = await asyncio.wait(running, timeout=BUSY_WAIT_S)
                await calls.run_on_queue(partial(_receive_messages, max_messages=0, wait=0))
            over.set()
            for task in running:
                task.cancel()
            await calls.flush()

    def _run_iteration(
        self, queue: MessageQueue, pool: ThreadPoolExecutor, running: set[Future[None]]
    ) -> set[Future[None]]:
        free = self._count_free_slots(len(running))
        if not free:
            running = wait(running, BUSY_WAIT_S, FIRST_COMPLETED).not_done
        for message in _receive_messages(queue, free, _receive_wait_s(free, len(running))):
            running.add(pool.submit(self._handle_message, message))
        return {future for future in running if not future.done()}

    def _count_free_slots(self, running: int) -> int:
        """Return how many to ask for: none until half can be taken at once, which is cheaper."""
        free = self._max_in_work - running
        return free if free * 2 >= self._max_in_work else 0

    def _handle_message(self, message: QueueMessage) -> None:
        try:
            self._handler(message)
        except BaseException as error:  # noqa: BLE001 - whatever it was, it must be settled
            self._settle_failed(message, error)
        else:
            _ack_unsettled(message)

    async def _handle_message_async(
        self, message: QueueMessage, slots: asyncio.Semaphore, stopped: Event
    ) -> None:
        """Handle one message; from when it is `stopped` on a cancel is ours, and settles nothing."""
        async with slots:
            try:
                returned: Awaitable[None] | None = self._handler(message)
                assert returned is not None
                await returned
            except asyncio.CancelledError as error:
                if stopped.is_set():
                    raise
                self._settle_failed(message, error)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - the message must be settled
                self._settle_failed(message, error)
            else:
                _ack_unsettled(message)

    def _settle_failed(self, message: QueueMessage, error: BaseException) -> None:
        if message.settled:
            log.warning("%r: its handler failed after it was settled: %r", message, error)
        elif isinstance(error, Reject):
            message.reject(str(error) or "rejected by its handler")
        elif isinstance(error, Retry):
            _retry_message(message, error.delay)
        else:
            log.warning("%r: its handler failed: %r", message, error)
            _retry_message(message, self._retry_delay)


def queue_worker(
    *, concurrency: int = 1, prefetch: int | None = None, retry_delay: float = 1.0
) -> Callable[[MessageHandler], QueueWorker]:
    """Make a worker of a function, or of a coroutine function, that handles one message.

    `prefetch` is as large as `concurrency` unless it is given; `retry_delay` is seconds.
    Raises InvalidDelayError.
    """
    check_delay(retry_delay)
    ahead = concurrency if prefetch is None else prefetch

    def decorate(handler: MessageHandler) -> QueueWorker:
        return QueueWorker(handler, concurrency, ahead, retry_delay, SystemClock())

    return decorate


def _receive_wait_s(free: int, running: int) -> float:
    """Return how long to wait for messages: not at all where none can be taken."""
    if not free:
        return 0.0
    return BUSY_WAIT_S if running else IDLE_WAIT_S


def _receive_messages(
    queue: MessageQueue, max_messages: int, wait: float
) -> Sequence[QueueMessage]:
    """Receive; a failure that passes by itself is told, and tried again."""
    try:
        return queue.receive(max_messages, wait)
    except TrimtabError as error:
        if not error.retryable:
            raise
        log.warning("%s", error)
        return []


def _ack_unsettled(message: QueueMessage) -> None:
    if not message.settled:
        message.ack()


def _retry_message(message: QueueMessage, delay: float) -> None:
    """Give a message back; at once where this kind of queue knows no delay."""
    with suppress(UnsupportedQueueOperationError):
        message.retry(delay)
    if not message.settled:
        message.retry()
