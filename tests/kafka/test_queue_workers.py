"""`@queue_worker` on queues in memory and on a real broker: limits, failures, a graceful end."""

import asyncio
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Barrier, Event, Lock, Thread
from typing import Any, Self

import pytest
from confluent_kafka import Message, Producer

from trimtab.consumer_sdk.errors import BrokerUnreachableError, UnsupportedQueueOperationError
from trimtab.consumer_sdk.queues import AsyncQueue, KmqQueue, QueueMessage, Reject, Retry, queue_worker
from trimtab.consumer_sdk.queues.settlement import SettlementAction, SettlementRequest

Eventually = Callable[..., None]


class Memory:
    """In-memory queue of `count` messages that records settlements, without redelivery."""

    notify_on_ack = True

    def __init__(self, count: int, *, delays: bool = True) -> None:
        self.said: dict[int, SettlementRequest] = {}
        self.flushed = False
        self._delays = delays
        self._left = deque(
            QueueMessage(Message(topic="t", partition=0, offset=n, value=b"x"), 1, None, self)
            for n in range(count)
        )

    def receive(self, max: int = 100, wait: float = 1.0) -> list[QueueMessage]:  # noqa: A002
        if not self._left:
            Event().wait(min(wait, 0.01))
        return [self._left.popleft() for _ in range(min(max, len(self._left)))]

    def now(self) -> float:
        return 0.0

    def settle(self, message: QueueMessage, request: SettlementRequest, late: bool) -> None:  # noqa: FBT001
        del late
        if request.seconds and not self._delays:
            raise UnsupportedQueueOperationError("no delays")
        self.said[message.offset] = request

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


def test_what_a_handler_raises_decides(eventually: Eventually) -> None:
    """Returning acknowledges, Retry and Reject settle, other exceptions retry with a delay."""
    outcomes = [None, Retry(7), Reject("no"), ValueError("oops")]

    @queue_worker(retry_delay=3)
    def handle(message: QueueMessage) -> None:
        outcome = outcomes[message.offset]
        if outcome is not None:
            raise outcome

    queue = Memory(4)
    run(handle, queue, lambda: len(queue.said) == 4, eventually)
    assert queue.said == {
        0: SettlementRequest(SettlementAction.ACK),
        1: SettlementRequest(SettlementAction.RETRY, 7),
        2: SettlementRequest(SettlementAction.REJECT, reason="no"),
        3: SettlementRequest(SettlementAction.RETRY, 3),
    }
    assert queue.flushed


def test_a_queue_without_delays_is_given_the_message_back_at_once(eventually: Eventually) -> None:
    """If the kind does not support delays, a failed message is retried at once."""

    @queue_worker()
    def handle(message: QueueMessage) -> None:
        raise ValueError(message)

    queue = Memory(1, delays=False)
    run(handle, queue, lambda: bool(queue.said), eventually)
    assert queue.said == {0: SettlementRequest(SettlementAction.RETRY)}


def test_as_many_run_at_once_as_are_allowed(eventually: Eventually) -> None:
    """Four handlers meet at a barrier of four; never are there five."""
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

    queue = Memory(40)
    run(handle, queue, lambda: len(queue.said) == 40, eventually)
    assert most == [4]


def test_stopping_lets_what_was_taken_end() -> None:
    """A running handler finishes after `stop`, and its message is acknowledged."""
    begun, go, stop = Event(), Event(), Event()

    @queue_worker(concurrency=1, prefetch=0)
    def handle(message: QueueMessage) -> None:
        del message
        begun.set()
        go.wait(20)

    queue = Memory(1)
    thread = Thread(target=handle.run, args=(queue, stop))
    thread.start()
    assert begun.wait(20)
    stop.set()
    go.set()
    thread.join(20)
    assert queue.said == {0: SettlementRequest(SettlementAction.ACK)}


def test_a_broker_that_is_away_does_not_end_the_drain() -> None:
    """The drain waits for handlers and flushes, although `receive` fails meanwhile."""
    stop, go = Event(), Event()

    @queue_worker()
    def handle(message: QueueMessage) -> None:
        del message
        stop.set()
        go.wait(20)

    class Away(Memory):
        def receive(self, max: int = 100, wait: float = 1.0) -> list[QueueMessage]:  # noqa: A002
            if stop.is_set():
                go.set()
                raise BrokerUnreachableError("nowhere:1")
            return super().receive(max, wait)

    queue = Away(1)
    handle.run(queue, stop)
    assert (queue.said, queue.flushed) == ({0: SettlementRequest(SettlementAction.ACK)}, True)


def test_a_handler_that_never_ends_is_left_behind() -> None:
    """After `stop_timeout` the worker returns; the message stays unsettled."""
    begun, go, stop = Event(), Event(), Event()

    @queue_worker()
    def handle(message: QueueMessage) -> None:
        del message
        begun.set()
        go.wait(60)

    queue = Memory(1)
    thread = Thread(target=lambda: handle.run(queue, stop, stop_timeout=0.1))
    thread.start()
    begun.wait(20)
    stop.set()
    thread.join(20)
    assert not thread.is_alive()
    assert queue.said == {}
    go.set()


def test_coroutines_are_handled_side_by_side(eventually: Eventually) -> None:
    """A coroutine function is a handler too; eight wait for each other."""
    met = asyncio.Barrier(8)

    @queue_worker(concurrency=8)
    async def handle(message: QueueMessage) -> None:
        await asyncio.wait_for(met.wait(), 20)
        if message.offset == 3:
            raise Reject("three")

    queue = Memory(8)
    run(handle, queue, lambda: len(queue.said) == 8, eventually)
    assert queue.said[3] == SettlementRequest(SettlementAction.REJECT, reason="three")
    assert {queue.said[n].action for n in range(8) if n != 3} == {SettlementAction.ACK}


def test_sys_exit_in_a_handler_is_a_failure_as_any_other(
    eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """The message is retried and the failure logged; the worker continues."""

    def exits(message: QueueMessage) -> None:
        if not message.offset:
            sys.exit("broken")

    async def exits_too(message: QueueMessage) -> None:
        exits(message)

    for handler in (queue_worker(retry_delay=3)(exits), queue_worker(retry_delay=3)(exits_too)):
        caplog.clear()
        queue = Memory(2)
        run(handler, queue, lambda queue=queue: len(queue.said) == 2, eventually)
        assert queue.said == {
            0: SettlementRequest(SettlementAction.RETRY, 3),
            1: SettlementRequest(SettlementAction.ACK),
        }
        assert "its handler failed: SystemExit('broken')" in caplog.text


def test_awaiting_what_was_cancelled_gives_the_message_back(
    eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """A CancelledError of an awaited call, or of its own task, is a failure as any other."""

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

    queue = Memory(3)
    run(handle, queue, lambda: len(queue.said) == 3, eventually)
    assert queue.said == {
        0: SettlementRequest(SettlementAction.RETRY, 3),
        1: SettlementRequest(SettlementAction.RETRY, 3),
        2: SettlementRequest(SettlementAction.ACK),
    }
    assert caplog.text.count("its handler failed: CancelledError()") == 2


def test_a_coroutine_that_never_ends_is_cancelled_and_not_settled(caplog: pytest.LogCaptureFixture) -> None:
    """After `stop_timeout` the worker cancels it: no failure is logged, nothing settled."""
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

    queue = Memory(1)
    handle.run(queue, stop, stop_timeout=0.1)
    assert (queue.said, ended, queue.flushed) == ({}, ["cancelled"], True)
    assert not caplog.text


def test_a_worker_that_is_cancelled_gives_its_coroutines_messages_back() -> None:
    """As Ctrl-C does it: `asyncio.run` cancels the worker, and then whatever still runs."""
    begun = asyncio.Event()

    @queue_worker()
    async def handle(message: QueueMessage) -> None:
        del message
        begun.set()
        await asyncio.Event().wait()

    async def main(queue: Memory) -> None:
        running = asyncio.create_task(handle.run_async(queue, Event()))
        await asyncio.wait_for(begun.wait(), 20)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    queue = Memory(1)
    asyncio.run(main(queue))
    assert queue.said == {0: SettlementRequest(SettlementAction.RETRY, 1)}


@pytest.mark.broker
def test_a_worker_empties_a_real_queue(
    topic: Any, config: dict[str, Any], bootstrap: str, eventually: Eventually
) -> None:
    """Sixteen at a time over two partitions, by coroutines; in the end all is acknowledged."""
    name, seen = topic(partitions=2), list[bytes]()
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(300):
        producer.produce(name, str(number), partition=number % 2)
    producer.flush()

    @queue_worker(concurrency=16)
    async def handle(message: QueueMessage) -> None:
        await asyncio.sleep(0)
        seen.append(message.value or b"")

    with KmqQueue(name, config) as queue:
        run(handle, queue, lambda: len(seen) == 300, eventually)
    assert sorted(map(int, seen)) == list(range(300))


@pytest.mark.broker
def test_coroutines_receive_too(topic: Any, config: dict[str, Any], bootstrap: str) -> None:
    """`receive` and `flush` are awaitable; settlements do not wait."""
    name = topic(partitions=1)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(name, b"one")
    producer.flush()

    async def main(queue: KmqQueue) -> list[QueueMessage]:
        async with AsyncQueue(queue) as calls:
            found = list[QueueMessage]()
            with suppress(TimeoutError):
                async with asyncio.timeout(40):
                    while not found:
                        found = await calls.receive(10, 0.5)
            for message in found:
                message.ack()
            assert await calls.flush()
            return found

    with KmqQueue(name, config) as queue:
        assert [m.value for m in asyncio.run(main(queue))] == [b"one"]


class Gated(Memory):
    """Queue without messages until its gate opens."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.gate = Event()

    def receive(self, max: int = 100, wait: float = 1.0) -> list[QueueMessage]:  # noqa: A002
        assert self.gate.wait(30)
        return super().receive(max, wait)


def test_a_receive_that_is_cancelled_loses_nothing() -> None:
    """Later calls return its messages, never more than their `max`."""
    queue = Gated(4)

    async def main() -> list[list[int]]:
        async with AsyncQueue(queue) as calls:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(calls.receive(3), 0.01)
            queue.gate.set()
            return [[m.offset for m in await calls.receive(2, 0)] for _ in range(3)]

    assert asyncio.run(main()) == [[0, 1], [2], [3]]
