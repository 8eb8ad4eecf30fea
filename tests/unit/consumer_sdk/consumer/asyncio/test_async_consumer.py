"""AsyncConsumer with a fake of its thread: lease, listener, cancelled calls, errors, closed loops."""

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, Self
from unittest.mock import AsyncMock, Mock

import pytest
from aiokafka.errors import ConsumerStoppedError, IllegalStateError, KafkaConnectionError

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk import AsyncConsumer, BrokerUnreachableError
from trimtab.consumer_sdk.consumer.asyncio import async_consumer, poll_thread
from trimtab.consumer_sdk.consumer.asyncio.poll_thread import FetchedBatch, PollThread
from trimtab.consumer_sdk.consumer.asyncio.record_buffer import RecordBuffer

T, U = TopicPartition("t", 0), TopicPartition("t", 1)
LISTENED = ("on_partitions_assigned", "on_partitions_revoked")


def message(offset: int, at: TopicPartition = T) -> Any:
    return SimpleNamespace(
        topic=lambda: at.topic,
        partition=lambda: at.partition,
        offset=lambda: offset,
        key=lambda: None,
        value=lambda: b"v",
        timestamp=lambda: (0, 0),
        headers=lambda: None,
        error=lambda: None,
    )


def batch(*offsets: int, at: TopicPartition = T) -> FetchedBatch:
    return FetchedBatch({at: [message(offset, at) for offset in offsets]}, {}, [])


class Opened:
    """A consumer that was started, without its thread."""

    def __init__(self) -> None:
        self.consumer: Any = AsyncConsumer(bootstrap_servers="127.0.0.1:1", group_id="g")
        self.lease = True
        self.thread = Mock(spec=PollThread, has_room=Mock(return_value=True))
        self.consumer.subscribe(["t"])
        self.consumer._thread = self.thread
        self.consumer.on_opened(SimpleNamespace(holds_lease=lambda: self.lease))


def play(scenario: Callable[[Opened], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario with a consumer that owns T."""

    async def run() -> None:
        opened = Opened()
        await opened.consumer.on_assigned(frozenset({T}))
        async with asyncio.timeout(20):
            await scenario(opened)

    asyncio.run(run())


def test_no_record_is_returned_without_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that were fetched before the lease ended wait until it is renewed."""
    monkeypatch.setattr(async_consumer, "LEASE_CHECK_INTERVAL_S", 0)

    async def scenario(opened: Opened) -> None:
        opened.consumer.on_fetched(batch(0, 1))
        assert (await opened.consumer.getone()).offset == 0
        opened.lease = False
        assert await opened.consumer.getmany(timeout_ms=150) == {}
        waiting = asyncio.create_task(opened.consumer.getone())
        await asyncio.sleep(0.15)
        assert not waiting.done()
        opened.lease = True
        assert (await waiting).offset == 1

    play(scenario)


def test_a_revocation_waits_for_the_listener() -> None:
    """Meanwhile the partition is assigned and can be committed, but returns nothing; then it is forgotten."""

    async def scenario(opened: Opened) -> None:
        consumer, seen, released = opened.consumer, [], asyncio.Event()

        async def revoked(partitions: Any) -> None:
            seen.append((partitions, consumer.assignment(), await consumer.getmany()))
            await released.wait()
            await consumer.commit()

        opened.thread.call = lambda call: call  # the argument of wrap_future
        consumer._call = commit = Mock(side_effect=lambda *_: asyncio.sleep(0))
        consumer.subscribe(["t"], listener=SimpleNamespace(**dict.fromkeys(LISTENED, revoked)))
        consumer.on_fetched(batch(0, 1))
        await consumer.getone()
        revoking = asyncio.create_task(consumer.on_revoked(frozenset({T}), lost=False))
        await asyncio.sleep(0.01)
        consumer.on_fetched(batch(2))
        assert (seen, revoking.done()) == ([({T}, {T}, {})], False)
        released.set()
        assert await revoking == {T: 1}
        assert [(p.partition, p.offset) for p in commit.call_args[0][2]] == [(0, 1)]
        assert (consumer.assignment(), await consumer.getmany()) == (set(), {})

    play(scenario)


def test_lost_partitions_have_a_method_of_their_own() -> None:
    """on_partitions_lost is called if the listener has it, else on_partitions_revoked."""

    async def scenario(opened: Opened) -> None:
        plain = Mock(spec=LISTENED)
        full = Mock(spec=(*LISTENED, "on_partitions_lost"))
        for listener, called in ((plain, "on_partitions_revoked"), (full, "on_partitions_lost")):
            opened.consumer.subscribe(["t"], listener=listener)
            await opened.consumer.on_revoked(frozenset({T}), lost=True)
            assert getattr(listener, called).mock_calls[0].args == ({T},)
        assert not full.on_partitions_revoked.called

    play(scenario)


def test_several_calls_share_the_records() -> None:
    """Each waiting call gets a record, no record goes to two."""

    async def scenario(opened: Opened) -> None:
        calls = [asyncio.create_task(opened.consumer.getone()) for _ in range(3)]
        await asyncio.sleep(0)
        calls[0].cancel()
        opened.consumer.on_fetched(batch(0))
        await asyncio.sleep(0.01)
        opened.consumer.on_fetched(batch(1))
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError)
        assert sorted(record.offset for record in found[1:]) == [0, 1]  # type: ignore[union-attr]

    play(scenario)


def test_an_error_is_raised_once_and_a_lasting_one_again() -> None:
    """A waiting call raises it; records that follow are returned."""

    async def scenario(opened: Opened) -> None:
        waiting = asyncio.create_task(opened.consumer.getone())
        await asyncio.sleep(0)
        opened.consumer.on_failed(ZeroDivisionError())
        opened.consumer.on_failed(ZeroDivisionError())
        with pytest.raises(ZeroDivisionError):
            await waiting
        opened.consumer.on_fetched(batch(0))
        assert (await opened.consumer.getone()).offset == 0

    play(scenario)


def test_full_partitions_make_room_for_those_that_are_asked_for() -> None:
    """They are parked, and continue at their first record when they are asked for."""

    async def scenario(opened: Opened) -> None:
        consumer = opened.consumer
        await consumer.on_assigned(frozenset({U}))
        consumer.on_fetched(batch(4, 5))
        opened.thread.has_room.return_value = False
        assert await consumer.getmany(U, timeout_ms=150) == {}
        assert len(consumer._records) == 0
        assert await consumer.getmany(T) == {}
        assert opened.thread.seek.call_args[0][:2] == (T, 4)
        assert await consumer.position(T) == 4

    play(scenario)


class Unreachable:
    """Fake of a thread whose consumer finds no broker."""

    def __init__(self, _config: Any, application: Any, *_: Any) -> None:
        self.application = application
        self.subscribe = self.reject_calls = Mock()

    def start(self) -> None:
        self.application.on_failed(BrokerUnreachableError("a:1"))

    def stop(self) -> None:
        self.application.on_closed()


def test_start_may_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Applications try again until a broker answers."""
    monkeypatch.setattr(async_consumer, "PollThread", Unreachable)

    async def scenario() -> None:
        consumer = AsyncConsumer("t", bootstrap_servers="a:1", group_id="g")
        for _ in range(2):
            with pytest.raises(KafkaConnectionError, match="no Kafka broker answers at a:1"):
                await consumer.start()
        await consumer.stop()
        with pytest.raises(ConsumerStoppedError):
            await consumer.start()

    asyncio.run(scenario())


class Slow(Unreachable):
    """Fake of a thread that waits for a broker, and ends when it is told to."""

    living: list["Slow"] = []  # noqa: RUF012 - threads that have not ended

    def start(self) -> None:
        self.living.append(self)

    def stop(self) -> None:
        """Be in the way until `end`."""

    def end(self) -> None:
        self.living.remove(self)
        self.application.on_opened(Mock())
        self.application.on_closed()


def test_a_cancelled_start_may_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one waits until the thread of the cancelled one has left the group."""
    monkeypatch.setattr(async_consumer, "PollThread", Slow)

    async def scenario() -> None:
        consumer = AsyncConsumer("t", bootstrap_servers="a:1", group_id="g")
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.start(), 0.05)
        assert len(Slow.living) == 1
        again = asyncio.create_task(consumer.start())
        await asyncio.sleep(0)
        Slow.living[0].end()
        with pytest.raises(IllegalStateError, match="start"):
            await consumer.getone()
        await asyncio.sleep(0.01)
        consumer.topics = AsyncMock()
        Slow.living[0].application.on_joined()
        await again

    asyncio.run(scenario())


def test_stop_ends_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start() that waits for its assignment raises."""
    monkeypatch.setattr(Unreachable, "start", Mock())
    monkeypatch.setattr(async_consumer, "PollThread", Unreachable)

    async def scenario() -> None:
        consumer = AsyncConsumer("t", bootstrap_servers="a:1", group_id="g")
        starting = asyncio.create_task(consumer.start())
        await asyncio.sleep(0.01)
        await consumer.stop()
        with pytest.raises(ConsumerStoppedError):
            await starting

    asyncio.run(scenario())


def test_a_pause_outlasts_a_call_for_others() -> None:
    """A partition that was parked to make room and is paused then returns nothing until it is resumed."""

    async def scenario(opened: Opened) -> None:
        consumer = opened.consumer
        await consumer.on_assigned(frozenset({U}))
        consumer.on_fetched(batch(4))
        opened.thread.has_room.return_value = False
        await consumer.getmany(U, timeout_ms=50)
        consumer.pause(T)
        await consumer.getmany()
        assert not opened.thread.seek.called
        consumer.resume(T)
        assert opened.thread.seek.call_args[0][:2] == (T, 4)

    play(scenario)


def test_a_pause_outlasts_another_assign() -> None:
    """Partitions that stay assigned stay paused; those that are gone are forgotten."""

    async def scenario(opened: Opened) -> None:
        consumer = opened.consumer
        await consumer.on_revoked(frozenset({T}), lost=False)
        consumer.unsubscribe()
        consumer.assign([T, U])
        consumer.pause(T, U)
        consumer.assign([T])
        consumer.on_fetched(batch(0))
        assert (consumer.paused(), await consumer.getmany()) == ({T}, {})
        assert sum(is_pause(call.args[0]) for call in opened.thread.submit.mock_calls) == 3
        consumer.resume(T)
        assert opened.thread.seek.call_args[0][:2] == (T, 0)

    play(scenario)


def is_pause(action: Callable[[Any], Any]) -> bool:
    consumer = Mock()
    action(consumer)
    return bool(consumer.pause.called)


def test_partitions_that_are_gone_are_not_resumed() -> None:
    """Those that were paused or parked before an unsubscribe() or another assign()."""

    async def scenario(opened: Opened) -> None:
        consumer = opened.consumer
        await consumer.on_revoked(frozenset({T}), lost=False)
        for leave in (lambda: consumer.assign([U]), consumer.unsubscribe):
            consumer.unsubscribe()
            consumer.assign([T, U])
            consumer.on_fetched(batch(4))
            opened.thread.has_room.return_value = False
            await consumer.getmany(U, timeout_ms=50)
            consumer.pause(U)
            leave()
            opened.thread.submit.reset_mock()
            await consumer.getmany()
            assert not opened.thread.submit.called
        assert consumer.paused() == set()

    play(scenario)


class Silent:
    """Fake of the consumer: no records; `close` is noted."""

    closed: list[bool] = []  # noqa: RUF012 - of the last one

    def __init__(self, _config: Any) -> None:
        type(self).closed = []
        self.has_joined = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed.append(True)

    def wake(self) -> None:
        """Do nothing: a wait ends by itself."""

    def consume(self, _number: int, timeout: float) -> list[Any]:
        poll_thread.SystemClock().sleep(timeout)
        return []


def test_a_closed_loop_ends_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """An application that forgets stop() leaves the group all the same."""
    monkeypatch.setattr(poll_thread, "BackgroundConsumer", Silent)
    loop = asyncio.new_event_loop()
    thread = PollThread({}, Mock(), RecordBuffer(Mock()), loop)
    thread.start()
    loop.close()
    thread._thread.join(20)
    assert (thread._thread.is_alive(), Silent.closed) == (False, [True])


def test_calls_that_the_thread_cannot_answer_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that comes with stop() waits for no answer."""
    monkeypatch.setattr(poll_thread, "BackgroundConsumer", Silent)

    async def scenario() -> None:
        closed = asyncio.Event()
        thread = PollThread({}, Mock(on_closed=closed.set), RecordBuffer(Mock()), asyncio.get_running_loop())
        thread.start()
        assert await asyncio.wrap_future(thread.call(type)) is Silent
        with pytest.raises(ZeroDivisionError):
            await asyncio.wrap_future(thread.call(lambda _: 1 // 0))
        thread.stop()
        await closed.wait()
        late = thread.call(lambda _: 1)
        thread.reject_calls()
        with pytest.raises(RuntimeError, match="stopped"):
            await asyncio.wrap_future(late)

    asyncio.run(scenario())


def test_a_failed_seek_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error is reported, and the partition's records are kept again."""
    monkeypatch.setattr(poll_thread, "BackgroundConsumer", Silent)

    async def scenario() -> None:
        application, records = Mock(), RecordBuffer(Mock())
        records.readable.add(T)
        thread = PollThread({}, application, records, asyncio.get_running_loop())
        failed, closed = asyncio.Event(), asyncio.Event()
        application.on_failed, application.on_closed = (lambda _: failed.set()), closed.set
        thread.start()
        thread.seek(T, 9, records.begin_seek(T, 9))  # `Silent` has no seek()
        await failed.wait()
        records.add(T, [message(0)])
        assert len(records) == 1
        thread.stop()
        await closed.wait()

    asyncio.run(scenario())
