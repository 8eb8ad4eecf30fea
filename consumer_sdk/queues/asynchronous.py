"""The same queue for coroutines: what waits runs on a thread of its own.

Messages need no other form: `ack`, `retry`, `reject` and `extend` never wait.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Self, TypeVar

from trimtab.consumer_sdk.queues.port import Queue, Received

T = TypeVar("T")


class AsyncQueue:
    """A queue whose `receive` and `flush` are awaited; the queue itself stays its maker's."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="trimtab-queue")

    async def receive(self, max: int = 100, wait: float = 1.0) -> Sequence[Received]:  # noqa: A002
        """Return up to `max` messages as soon as there are any, none after `wait` seconds."""
        return await self.call(lambda queue: queue.receive(max, wait))

    async def flush(self, timeout: float = 30.0) -> bool:  # noqa: ASYNC109 - the queue's own
        """Wait until what was said of messages is kept by the broker; False if it is not yet."""
        return await self.call(lambda queue: queue.flush(timeout))

    async def call(self, what: Callable[[Queue], T]) -> T:
        """Do something with the queue on its thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, what, self._queue)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._thread.shutdown(wait=False)
