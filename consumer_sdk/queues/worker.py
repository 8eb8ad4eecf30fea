"""`@queue_worker` runs a function for each message of a queue, several at a time.

    @queue_worker(concurrency=16)
    def bill(message: QueueMessage) -> None:
        ...

    bill.run(queue, stop)

The rules:

1. When the handler returns, the message is acknowledged unless the handler has settled it.
   `Retry` retries it, `Reject` rejects it, any other exception retries it after `retry_delay`.
   `sys.exit` in a handler and a CancelledError from an awaited call count as such exceptions: to
   end the worker set `stop`. Ctrl-C (KeyboardInterrupt) ends it without draining; the coroutines
   that it cancels retry their messages.
2. At most `concurrency` handlers run. `prefetch` more messages (default: `concurrency`) are taken
   in advance, and their deadlines run: the queue's timeout must cover the wait for a handler.
3. On `stop` the worker takes no more messages, waits `stop_timeout` seconds at most for those it
   has, and flushes. The queue redelivers messages unfinished by then. Coroutines are cancelled.
   Functions cannot be: `run` returns, but Python ends the process only when the pool's threads
   have ended. Give handlers timeouts, or end with `os._exit`.
4. Transient failures of the queue are logged and retried; any other ends the worker.
5. `receive` is called continuously, even while all handlers are busy: it keeps the membership.
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
from trimtab.consumer_sdk.queues.message_queue import MessageQueue
from trimtab.consumer_sdk.queues.settlement import check_delay

log = logging.getLogger("trimtab.queues")

MessageHandler: TypeAlias = Callable[[QueueMessage], Coroutine[Any, Any, None] | None]

IDLE_WAIT_S: Final = 0.2  # also the latency of `stop`
BUSY_WAIT_S: Final = 0.02  # also the delay of the next message when a handler is done


class Retry(Exception):  # noqa: N818 - control flow of a handler, no error
    """Raised by a handler to have the message redelivered after `delay` seconds."""

    def __init__(self, delay: float = 0.0) -> None:
        check_delay(delay)  # here: the traceback of an InvalidDelayError shows the handler
        super().__init__(f"in {delay:g} s")
        self.delay = delay


class Reject(Exception):  # noqa: N818 - as Retry
    """Raised by a handler to reject the message."""


class QueueWorker:
    """A handler with its limits, made by `@queue_worker`; still callable as a function."""

    def __init__(
        self, handler: MessageHandler, concurrency: int, prefetch: int, retry_delay: float, clock: Clock
    ) -> None:
        self._handler = handler
        self._max_in_flight = concurrency + prefetch
        self._concurrency = concurrency
        self._retry_delay = retry_delay
        self._clock = clock
        self._is_async = inspect.iscoroutinefunction(handler)

    def __call__(self, message: QueueMessage) -> Coroutine[Any, Any, None] | None:
        """Call the handler."""
        return self._handler(message)

    def run(self, queue: MessageQueue, stop: Event, *, stop_timeout: float = 30.0) -> None:
        """Handle messages until `stop` is set, then drain (rule 3). Raises what `receive` does."""
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
                _receive(queue, 0, 0)  # keeps the membership
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        queue.flush()

    async def run_async(self, queue: MessageQueue, stop: Event, *, stop_timeout: float = 30.0) -> None:
        """Do the same as `run` in a running event loop, with a coroutine function as handler."""
        slots = asyncio.Semaphore(self._concurrency)
        expired = Event()
        running: set[asyncio.Task[None]] = set()
        async with AsyncQueue(queue) as calls:
            while not stop.is_set():
                free = self._count_free_slots(len(running))
                if not free:
                    await asyncio.wait(running, timeout=BUSY_WAIT_S, return_when=FIRST_COMPLETED)
                receive = partial(_receive, limit=free, wait=_receive_wait_s(free, len(running)))
                for message in await calls.run_on_queue(receive):
                    running.add(asyncio.create_task(self._handle_async(queue, message, slots, expired)))
                running = {task for task in running if not task.done()}
            deadline = self._clock.monotonic() + stop_timeout
            while running and self._clock.monotonic() < deadline:
                _, running = await asyncio.wait(running, timeout=BUSY_WAIT_S)
                await calls.run_on_queue(partial(_receive, limit=0, wait=0))  # keeps the membership
            expired.set()
            for task in running:
                task.cancel()
            await calls.flush()

    def _run_iteration(
        self, queue: MessageQueue, pool: ThreadPoolExecutor, running: set[Future[None]]
    ) -> set[Future[None]]:
        free = self._count_free_slots(len(running))
        if not free:
            running = wait(running, BUSY_WAIT_S, FIRST_COMPLETED).not_done
        for message in _receive(queue, free, _receive_wait_s(free, len(running))):
            running.add(pool.submit(self._handle, queue, message))
        return {future for future in running if not future.done()}

    def _count_free_slots(self, running: int) -> int:
        free = self._max_in_flight - running
        # 0 until half of the slots are free: a `receive` costs the same for one message as for many.
        return free if free * 2 >= self._max_in_flight else 0

    def _handle(self, queue: MessageQueue, message: QueueMessage) -> None:
        try:
            with queue.trace_processing(message):
                self._handler(message)
        except BaseException as error:  # noqa: BLE001 - the message must be settled
            self._settle_failed(message, error)
        else:
            _ack_unsettled(message)

    async def _handle_async(
        self, queue: MessageQueue, message: QueueMessage, slots: asyncio.Semaphore, expired: Event
    ) -> None:
        async with slots:
            try:
                with queue.trace_processing(message):
                    returned: Awaitable[None] | None = self._handler(message)
                    assert returned is not None
                    await returned
            except asyncio.CancelledError as error:
                if expired.is_set():  # rule 3: the drain's timeout settles nothing
                    raise
                self._settle_failed(message, error)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - the message must be settled
                self._settle_failed(message, error)
            else:
                _ack_unsettled(message)

    def _settle_failed(self, message: QueueMessage, error: BaseException) -> None:
        if message.settled:
            log.warning("%r: its handler failed after settling it: %r", message, error)
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
    """Make a worker of a function, or coroutine function, that handles one message.

    `prefetch` defaults to `concurrency`; `retry_delay` is in seconds. Raises InvalidDelayError.
    """
    check_delay(retry_delay)
    ahead = concurrency if prefetch is None else prefetch

    def decorate(handler: MessageHandler) -> QueueWorker:
        return QueueWorker(handler, concurrency, ahead, retry_delay, SystemClock())

    return decorate


def _receive_wait_s(free: int, running: int) -> float:
    if not free:
        return 0.0
    return BUSY_WAIT_S if running else IDLE_WAIT_S


def _receive(queue: MessageQueue, limit: int, wait: float) -> Sequence[QueueMessage]:
    try:
        return queue.receive(limit, wait)
    except TrimtabError as error:
        if not error.retryable:  # else the next call tries again (rule 4)
            raise
        log.warning("%s", error)
        return []


def _ack_unsettled(message: QueueMessage) -> None:
    if not message.settled:
        message.ack()


def _retry_message(message: QueueMessage, delay: float) -> None:
    with suppress(UnsupportedQueueOperationError):  # `share` has no delays
        message.retry(delay)
    if not message.settled:
        message.retry()
