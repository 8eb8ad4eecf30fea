"""Awaitable `receive` and `flush` for a `MessageQueue`, which runs on one worker thread.

`ack`, `retry`, `reject` and `extend` never wait, so coroutines call them on the message directly.
`receive` may be wrapped in `asyncio.wait_for`: a cancelled call loses no messages.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

from trimtab.common.type_vars import ResultT
from trimtab.consumer_sdk.queues.message import QueueMessage
from trimtab.consumer_sdk.queues.message_queue import MessageQueue


class AsyncQueue:
    """Asynchronous view of a queue; closing it does not close the queue."""

    def __init__(self, queue: MessageQueue) -> None:
        self._queue = queue
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="trimtab-queue")
        # A thread cannot be interrupted: the messages of a cancelled `receive` go to the next one.
        self._cancelled_calls: deque[Future[Sequence[QueueMessage]]] = deque()

    async def receive(self, max: int = 100, wait: float = 1.0) -> Sequence[QueueMessage]:  # noqa: A002
        """Do the same as `MessageQueue.receive`."""
        if max and self._cancelled_calls:
            call = self._cancelled_calls.popleft()
        else:
            call = self._executor.submit(self._queue.receive, max, wait)
        try:
            # Shielded: cancelling the future would lose the messages of a running call.
            messages = await asyncio.shield(asyncio.wrap_future(call))
        except asyncio.CancelledError:
            self._cancelled_calls.append(call)
            raise
        if len(messages) > max:  # the cancelled call had a larger `max`
            rest: Future[Sequence[QueueMessage]] = Future()
            rest.set_result(messages[max:])
            self._cancelled_calls.appendleft(rest)
            return messages[:max]
        return messages

    async def flush(self, timeout: float = 30.0) -> bool:  # noqa: ASYNC109 - the queue's own
        """Do the same as `MessageQueue.flush`."""
        return await self.run_on_queue(lambda queue: queue.flush(timeout))

    async def run_on_queue(self, function: Callable[[MessageQueue], ResultT]) -> ResultT:
        """Run a function with the queue on the queue's thread and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, self._queue)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._executor.shutdown(wait=False)
