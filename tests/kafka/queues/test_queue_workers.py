"""`@queue_worker` on in-memory queues and a real broker: limits, failures, shutdown."""

import asyncio
import sys
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from threading import Barrier, Event, Lock, Thread
from typing import Any, Self

import pytest
from confluent_kafka import Message, Producer

from trimtab.consumer_sdk.errors import BrokerUnreachableError, UnsupportedQueueOperationError
from trimtab.consumer_sdk.queues import AsyncQueue, KmqQueue, QueueMessage, Reject, Retry, queue_worker
from trimtab.consumer_sdk.queues.settlement import SettlementAction, SettlementRequest

Eventually = Callable[..., None]


class InMemoryQueue:
    """In-memory queue of `count` messages that records settlements, without redelivery."""

    notify_on_ack = True

    def __init__(self, count: int, *, delays: bool = True) -> None:
        self.settlements: dict[int, SettlementRequest] = {}
        self.flushed = False
        self._delays = delays
        self._waiting = deque(
            QueueMessage(Message(topic="t", partition=0, offset=n, value=b"x"), 1, None, self)
            for n in range(count)
        )

    def receive(self, max: int = 100, wait: float = 1.0) -> list[QueueMessage]:  # noqa: A002
        if not self._waiting:
            Event().wait(min(wait, 0.01))
        return [self._waiting.popleft() for _ in range(min(max, len(self._waiting)))]

    def now(self) -> float:
        return 0.0

    def settle(self, message: QueueMessage, request: SettlementRequest, late: bool) -> None:  # noqa: FBT001
        del late
        if request.seconds and not self._delays:
            raise UnsupportedQueueOperationError("no delays")
        self.settlements[message.offset] = request

    def trace_processing(self, message: QueueMessage) -> AbstractContextManager[None]:
        del message
        return nullcontext()

    def flush(self, timeout: float = 30.0) -> bool:
        del timeout
        self.flushed = True
        return True

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def run(handler: Any, queue: Any, until: Callable[[], bool], eventually: Eventually) -> None:
    """Run a worker until a condition holds, then stop it."""
    stop = Event()
    thread = Thread(target=handler.run, args=(queue, stop))
    thread.start()
    try:
        eventually(until)
    finally:
        stop.set()
        thread.join(30)
    assert not thread.is_alive()


def test_exceptions_of_a_handler_settle_its_message(eventually: Eventually) -> None:
    """A return acknowledges, Retry and Reject settle, other exceptions retry with a delay."""
    outcomes = [None, Retry(7), Reject("no"), ValueError("oops")]

    @queue_worker(retry_delay=3)
    def handle(message: QueueMessage) -> None:
        outcome = outcomes[message.offset]
        if outcome is not None:
            raise outcome

    queue = InMemoryQueue(4)
    run(handle, queue, lambda: len(queue.settlements) == 4, eventually)
    assert queue.settlements == {
        0: SettlementRequest(SettlementAction.ACK),
        1: SettlementRequest(SettlementAction.RETRY, 7),
        2: SettlementRequest(SettlementAction.REJECT, reason="no"),
        3: SettlementRequest(SettlementAction.RETRY, 3),
    }
    assert queue.flushed


def test_failed_messages_retry_at_once_without_delay_support(eventually: Eventually) -> None:
    """A failed message is retried at once if the queue kind does not support delays."""

    @queue_worker()
    def handle(message: QueueMessage) -> None:
        raise ValueError(message)

    queue = InMemoryQueue(1, delays=False)
    run(handle, queue, lambda: bool(queue.settlements), eventually)
    assert queue.settlements == {0: SettlementRequest(SettlementAction.RETRY)}


def test_concurrency_limits_handlers(eventually: Eventually) -> None:
    """Four handlers run at the same time, never five."""
    barrier, lock, running, most = Barrier(4), Lock(), [0], [0]

    @queue_worker(concurrency=4)
    def handle(message: QueueMessage) -> None:
        del message
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        barrier.wait(20)
        with lock:
            running[0] -= 1

    queue = InMemoryQueue(40)
    run(handle, queue, lambda: len(queue.settlements) == 40, eventually)
    assert most == [4]


def test_stop_waits_for_running_handlers() -> None:
    """A running handler finishes after `stop`, and its message is acknowledged."""
    started, go, stop = Event(), Event(), Event()

    @queue_worker(concurrency=1, prefetch=0)
    def handle(message: QueueMessage) -> None:
        del message
        started.set()
        go.wait(20)

    queue = InMemoryQueue(1)
    thread = Thread(target=handle.run, args=(queue, stop))
    thread.start()
    assert started.wait(20)
    stop.set()
    go.set()
    thread.join(20)
    assert queue.settlements == {0: SettlementRequest(SettlementAction.ACK)}


def test_drain_continues_without_a_broker() -> None:
    """The drain waits for handlers and flushes, although `receive` fails meanwhile."""
    stop, go = Event(), Event()

    @queue_worker()
    def handle(message: QueueMessage) -> None:
        del message
        stop.set()
        go.wait(20)

    class Away(InMemoryQueue):
        def receive(self, max: int = 100, wait: float = 1.0) -> list[QueueMessage]:  # noqa: A002
            if stop.is_set():
                go.set()
                raise BrokerUnreachableError("nowhere:1")
            return super().receive(max, wait)

    queue = Away(1)
    handle.run(queue, stop)
    assert (queue.settlements, queue.flushed) == ({0: SettlementRequest(SettlementAction.ACK)}, True)


def test_stop_timeout_abandons_a_hanging_handler() -> None:
    """After `stop_timeout` the worker returns; the message stays unsettled."""
    started, go, stop = Event(), Event(), Event()

    @queue_worker()
    def handle(message: QueueMessage) -> None:
        del message
        started.set()
        go.wait(60)

    queue = InMemoryQueue(1)
    thread = Thread(target=lambda: handle.run(queue, stop, stop_timeout=0.1))
    thread.start()
    started.wait(20)
    stop.set()
    thread.join(20)
    assert not thread.is_alive()
    assert queue.settlements == {}
    go.set()


def test_coroutine_handlers_run_concurrently(eventually: Eventually) -> None:
    """Eight coroutine handlers run at the same time."""
    met = asyncio.Barrier(8)

    @queue_worker(concurrency=8)
    async def handle(message: QueueMessage) -> None:
        await asyncio.wait_for(met.wait(), 20)
        if message.offset == 3:
            raise Reject("three")

    queue = InMemoryQueue(8)
    run(handle, queue, lambda: len(queue.settlements) == 8, eventually)
    assert queue.settlements[3] == SettlementRequest(SettlementAction.REJECT, reason="three")
    assert {queue.settlements[n].action for n in range(8) if n != 3} == {SettlementAction.ACK}


def test_sys_exit_in_a_handler_is_a_failure(eventually: Eventually, caplog: pytest.LogCaptureFixture) -> None:
    """SystemExit retries the message and is logged; the worker continues."""

    def exits(message: QueueMessage) -> None:
        if not message.offset:
            sys.exit("broken")

    async def exits_too(message: QueueMessage) -> None:
        exits(message)

    for handler in (queue_worker(retry_delay=3)(exits), queue_worker(retry_delay=3)(exits_too)):
        caplog.clear()
        queue = InMemoryQueue(2)
        run(handler, queue, lambda queue=queue: len(queue.settlements) == 2, eventually)
        assert queue.settlements == {
            0: SettlementRequest(SettlementAction.RETRY, 3),
            1: SettlementRequest(SettlementAction.ACK),
        }
        assert "its handler failed: SystemExit('broken')" in caplog.text


def test_cancelled_errors_in_a_handler_are_failures(
    eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """CancelledError, of an awaited call or of the handler's own task, retries the message."""

    @queue_worker(retry_delay=3)
    async def handle(message: QueueMessage) -> None:
        if message.offset == 0:
            awaited = asyncio.get_running_loop().create_future()
            awaited.cancel()
            await awaited
        elif message.offset == 1:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)

    queue = InMemoryQueue(3)
    run(handle, queue, lambda: len(queue.settlements) == 3, eventually)
    assert queue.settlements == {
        0: SettlementRequest(SettlementAction.RETRY, 3),
        1: SettlementRequest(SettlementAction.RETRY, 3),
        2: SettlementRequest(SettlementAction.ACK),
    }
    assert caplog.text.count("its handler failed: CancelledError()") == 2


def test_stop_timeout_cancels_a_hanging_coroutine(caplog: pytest.LogCaptureFixture) -> None:
    """After `stop_timeout` the worker cancels the coroutine without settlement or logged failure."""
    stop, ended = Event(), list[str]()

    @queue_worker()
    async def handle(message: QueueMessage) -> None:
        del message
        stop.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    queue = InMemoryQueue(1)
    handle.run(queue, stop, stop_timeout=0.1)
    assert (queue.settlements, ended, queue.flushed) == ({}, ["cancelled"], True)
    assert not caplog.text


def test_cancelled_worker_retries_messages_in_flight() -> None:
    """On Ctrl-C `asyncio.run` cancels the worker, then the remaining tasks; their messages are retried."""
    started = asyncio.Event()

    @queue_worker()
    async def handle(message: QueueMessage) -> None:
        del message
        started.set()
        await asyncio.Event().wait()

    async def main(queue: InMemoryQueue) -> None:
        running = asyncio.create_task(handle.run_async(queue, Event()))
        await asyncio.wait_for(started.wait(), 20)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    queue = InMemoryQueue(1)
    asyncio.run(main(queue))
    assert queue.settlements == {0: SettlementRequest(SettlementAction.RETRY, 1)}


@pytest.mark.broker
def test_worker_empties_a_real_queue(
    topic: Any, config: dict[str, Any], bootstrap: str, eventually: Eventually
) -> None:
    """Sixteen coroutines at a time over two partitions acknowledge every message."""
    name, values = topic(partitions=2), list[bytes]()
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(300):
        producer.produce(name, str(number), partition=number % 2)
    producer.flush()

    @queue_worker(concurrency=16)
    async def handle(message: QueueMessage) -> None:
        await asyncio.sleep(0)
        values.append(message.value or b"")

    with KmqQueue(name, config) as queue:
        run(handle, queue, lambda: len(values) == 300, eventually)
    assert sorted(map(int, values)) == list(range(300))


@pytest.mark.broker
def test_queue_calls_are_awaitable(topic: Any, config: dict[str, Any], bootstrap: str) -> None:
    """A coroutine awaits `receive` and `flush`; settlements do not block."""
    name = topic(partitions=1)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(name, b"one")
    producer.flush()

    async def main(queue: KmqQueue) -> list[QueueMessage]:
        async with AsyncQueue(queue) as calls:
            messages = list[QueueMessage]()
            with suppress(TimeoutError):
                async with asyncio.timeout(40):
                    while not messages:
                        messages = await calls.receive(10, 0.5)
            for message in messages:
                message.ack()
            assert await calls.flush()
            return messages

    with KmqQueue(name, config) as queue:
        assert [m.value for m in asyncio.run(main(queue))] == [b"one"]


class Gated(InMemoryQueue):
    """A queue that returns messages once its gate opens."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.gate = Event()

    def receive(self, max: int = 100, wait: float = 1.0) -> list[QueueMessage]:  # noqa: A002
        assert self.gate.wait(30)
        return super().receive(max, wait)


def test_cancelled_receive_loses_no_message() -> None:
    """Later calls return the messages of a cancelled receive, at most their own `max`."""
    queue = Gated(4)

    async def main() -> list[list[int]]:
        async with AsyncQueue(queue) as calls:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(calls.receive(3), 0.01)
            queue.gate.set()
            return [[m.offset for m in await calls.receive(2, 0)] for _ in range(3)]

    assert asyncio.run(main()) == [[0, 1], [2], [3]]
