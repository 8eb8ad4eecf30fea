"""The same queue for coroutines: what waits runs on a thread of its own.

Messages need no other form: `ack`, `retry`, `reject` and `extend` never wait. A `receive` that is
cancelled goes on in its thread; what it gets is the next one's: `asyncio.wait_for` loses nothing.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self, TypeVar

from trimtab.consumer_sdk.queues.message import QueueMessage
from trimtab.consumer_sdk.queues.queue import MessageQueue

ResultT = TypeVar("ResultT")


class AsyncQueue:
    """A queue whose `receive` and `flush` are awaited; the queue itself stays its maker's."""

    def __init__(self, queue: MessageQueue) -> None:
        self._queue = queue
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="trimtab-queue")
        self._cancelled_calls: deque[Future[Sequence[QueueMessage]]] = (
            deque()
        )  # by those who were cancelled

    async def receive(self, max: int = 100, wait: float = 1.0) -> Sequence[QueueMessage]:  # noqa: A002
        """Return up to `max` messages as soon as there are any, none after `wait` seconds."""
        if max and self._cancelled_calls:
            call = self._cancelled_calls.popleft()
        else:
            call = self._executor.submit(self._queue.receive, max, wait)
        try:
            found = await asyncio.shield(asyncio.wrap_future(call))
        except asyncio.CancelledError:
            self._cancelled_calls.append(call)
            raise
        if len(found) > max:  # the one that was cancelled had asked for more
            rest: Future[Sequence[QueueMessage]] = Future()
            rest.set_result(found[max:])
            self._cancelled_calls.appendleft(rest)
            return found[:max]
        return found

    async def flush(self, timeout: float = 30.0) -> bool:  # noqa: ASYNC109 - the queue's own
        """Wait until what was said of messages is kept by the broker; False if it is not yet."""
        return await self.run_on_queue(lambda queue: queue.flush(timeout))

    async def run_on_queue(self, function: Callable[[MessageQueue], ResultT]) -> ResultT:
        """Do something with the queue on its thread."""
        return await asyncio.get_running_loop().run_in_executor(
            self._executor, function, self._queue
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._executor.shutdown(wait=False)
