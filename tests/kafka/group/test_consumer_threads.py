"""Several threads, signals and exceptions beside a consumer: nothing raises, waits or is lost."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from time import monotonic
from typing import Any, Self

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from trimtab.consumer_sdk import Consumer, ConsumerClosedError, GroupMembershipError
from trimtab.consumer_sdk.consumer import consumer as consumer_module
from trimtab.consumer_sdk.membership.classic import member as member_module

pytestmark = pytest.mark.broker


@pytest.fixture(params=["classic", pytest.param("consumer", marks=pytest.mark.slow)])
def config(config: dict[str, Any], use_protocol: Any, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Settings of both group protocols."""
    chosen: dict[str, Any] = use_protocol(config, request.param)
    return chosen


REFUSALS = {
    KafkaError._ASSIGNMENT_LOST,
    KafkaError._NO_OFFSET,
    KafkaError._STATE,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
}


class Hammer:
    """Threads that repeat calls until they are stopped; keeps what a call must not raise.

    A context manager: threads that outlived a failed test would slow down all later ones.
    """

    def __init__(self, *calls: Callable[[], Any]) -> None:
        self._stop = threading.Event()
        self.count = 0
        self.errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._repeat, args=(call,)) for call in calls]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _repeat(self, call: Callable[[], Any]) -> None:
        while not self._stop.wait(0.0005):  # else the consumer's own threads hardly get a turn
            self.count += 1
            try:
                call()
            except KafkaException as error:
                if error.args[0].code() not in REFUSALS:
                    self.errors.append(error)
            except Exception as error:  # noqa: BLE001 - the test reads it
                self.errors.append(error)
                return  # its like would follow, without end

    def stop(self) -> list[BaseException]:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)
        return self.errors


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Switch threads after each microsecond."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("frequent_switches")
def test_all_methods_run_beside_polls_and_rebalances(
    topic: Any, config: dict[str, Any], start: Any, feed: Any, eventually: Any
) -> None:
    """A worker's commits, pauses and queries fail with Kafka's refusals only, and no record is lost."""
    name = topic(partitions=40)
    consumer = Consumer({**config, "auto.commit.interval.ms": 10})
    consumer.subscribe([name])
    seen: set[tuple[Any, Any]] = set()
    first = [TopicPartition(name, 0)]
    try:
        eventually(lambda: consumer.consume(0, 0.1) == [] and len(consumer.assignment()) == 40)
        with Hammer(
            consumer.commit,
            lambda: consumer.commit(offsets=consumer.position(consumer.assignment()), asynchronous=False),
            lambda: (consumer.pause(first), consumer.resume(first)),
            consumer.consumer_group_metadata,
            lambda: seen.update((m.partition(), m.offset()) for m in consumer.consume(50, 0.01)),
            lambda: seen.update((m.partition(), m.offset()) for m in consumer.consume(50, 0.01)),
        ) as hammer:
            for _ in range(3):
                feed.write(name, 40, 400)
                other = start("other", [name])
                eventually(lambda w=other: len(w.owned) == 20, 90)  # seven threads share the interpreter
                other.stop()
                eventually(lambda: len(consumer.assignment()) == 40, 90)
            feed.write(name, 40, 400)
            eventually(lambda: {(p, 39) for p in range(40)} <= seen, 90)
            assert hammer.stop() == []
            assert hammer.count > 1000
    finally:
        consumer.close()


def test_offsets_are_stored_by_workers(topic: Any, config: dict[str, Any], feed: Any) -> None:
    """What threads store is committed at the end."""
    name = topic(partitions=4)
    feed.write(name, 4, 400)
    consumer = Consumer({**config, "enable.auto.offset.store": False})
    consumer.subscribe([name])
    messages = [m for _ in range(40) for m in consumer.consume(10, timeout=5)]

    def store(partition: int) -> None:
        for message in messages:
            if message.partition() == partition:
                consumer.store_offsets(message)

    workers = [threading.Thread(target=store, args=(n,)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    consumer.close()
    heir = Consumer(config)
    offsets = heir.committed([TopicPartition(name, n) for n in range(4)], timeout=10)
    heir.close()
    assert [p.offset for p in offsets] == [100] * 4


def test_close_ends_the_poll_of_another_thread(topic: Any, config: dict[str, Any]) -> None:
    """A poll without a timeout returns, then raises (confluent-kafka's close waits for it for ever)."""
    consumer = Consumer(config)
    consumer.subscribe([topic(partitions=1)])
    consumer.poll(1)
    ended = threading.Event()

    def wait() -> None:
        with suppress(ConsumerClosedError):
            while consumer.poll() is None:
                pass
        ended.set()

    thread = threading.Thread(target=wait)
    thread.start()
    consumer.close()
    assert ended.wait(30)
    thread.join()


def test_a_callback_may_wait_for_a_thread_that_commits(topic: Any, config: dict[str, Any], feed: Any) -> None:
    """on_revoke waits for a worker, which commits what it has finished."""
    name = topic(partitions=1)
    feed.write(name, 1, 10)
    consumer = Consumer({**config, "enable.auto.commit": False})
    offsets = [TopicPartition(name, 0, 7)]
    committed: list[Any] = []

    def revoke(*_: Any) -> None:
        commit = lambda: committed.append(consumer.commit(offsets=offsets, asynchronous=False))  # noqa: E731
        worker = threading.Thread(target=commit)
        worker.start()
        worker.join(20)

    consumer.subscribe([name], on_revoke=revoke)
    assert len(consumer.consume(8, timeout=20)) == 8
    consumer.close()
    assert [[p.offset for p in answer] for answer in committed] == [[7]]


@pytest.mark.parametrize("method", ["close", "unsubscribe"])
@pytest.mark.parametrize("callback", ["on_assign", "on_revoke"])
def test_a_callback_may_leave_the_group(
    topic: Any, config: dict[str, Any], feed: Any, start: Any, callback: str, method: str
) -> None:
    """It takes effect when the running call ends; the partitions go to the next member."""
    name = topic(partitions=2)
    feed.write(name, 2, 20)
    consumer = Consumer(config)
    done: list[bool] = []

    def leave(*_: Any) -> None:
        if not done:
            done.append(True)
            getattr(consumer, method)()

    consumer.subscribe([name], **{callback: leave})
    with suppress(RuntimeError):
        consumer.consume(5, timeout=10)
        if callback == "on_revoke":
            start("other", [name])
            for _ in range(200):
                consumer.consume(5, timeout=0.1)
                if done:
                    break
        assert consumer.assignment() == []
    assert done
    consumer.close()
    with pytest.raises(ConsumerClosedError):
        consumer.poll(0)


@pytest.fixture
def on_alarm() -> Iterator[Callable[[Callable[[], None], float], None]]:
    """Run a function in a signal handler after some seconds."""
    before = signal.getsignal(signal.SIGALRM)

    def install(handle: Callable[[], None], seconds: float) -> None:
        def run(*_: object) -> None:
            handle()

        signal.signal(signal.SIGALRM, run)
        signal.setitimer(signal.ITIMER_REAL, seconds)

    yield install
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_a_signal_handler_may_close(topic: Any, config: dict[str, Any], feed: Any, on_alarm: Any) -> None:
    """poll() returns nothing more, and the group is left."""
    name = topic(partitions=1)
    consumer = Consumer({**config, "session.timeout.ms": 30_000})  # longer than its heir waits
    consumer.subscribe([name])
    feed.write(name, 1, 1)
    assert consumer.poll(20) is not None
    on_alarm(consumer.close, 0.2)
    assert consumer.poll() is None
    with pytest.raises(ConsumerClosedError):
        consumer.poll()
    heir = Consumer(config)
    heir.subscribe([name])
    feed.write(name, 1, 1)
    assert [m.offset() for m in heir.consume(1, timeout=20)] == [1]
    heir.close()


def test_a_signal_handler_may_commit(topic: Any, config: dict[str, Any], feed: Any, on_alarm: Any) -> None:
    """It waits for the broker, and not for the call that it has interrupted."""
    name = topic(partitions=1)
    offsets = [TopicPartition(name, 0, 1)]
    answers: list[Any] = []
    with closing(Consumer(config)) as consumer:
        consumer.subscribe([name])
        feed.write(name, 1, 1)
        assert consumer.poll(20) is not None
        on_alarm(lambda: answers.append(consumer.commit(offsets=offsets, asynchronous=False)), 0.5)
        begun = monotonic()
        assert consumer.poll(1) is None
        assert monotonic() - begun < 5
        assert [[p.offset for p in answer] for answer in answers] == [[1]]


def test_calls_of_other_threads_come_in_beside_a_loop_of_consume(
    topic: Any, config: dict[str, Any], feed: Any
) -> None:
    """confluent-kafka's own do not: they sleep and try again, and the loop is always sooner."""
    name = topic(partitions=1)
    with closing(Consumer(config)) as consumer:
        consumer.subscribe([name])
        feed.write(name, 1, 1)
        assert consumer.poll(20) is not None
        with Hammer(lambda: consumer.position(consumer.assignment())) as hammer:
            begun = monotonic()
            while monotonic() - begun < 2:
                assert consumer.consume(1, 0.02) == []
            assert hammer.count > 20
            assert hammer.stop() == []


def test_a_signal_handler_and_a_worker_may_commit(
    topic: Any, config: dict[str, Any], feed: Any, on_alarm: Any
) -> None:
    """Neither waits for a lock that the other one's has."""
    name = topic(partitions=1)
    answers: list[Any] = []
    with closing(Consumer({**config, "auto.commit.interval.ms": 100_000})) as consumer:

        def commit() -> Any:
            return consumer.commit(offsets=consumer.position(consumer.assignment()), asynchronous=False)

        consumer.subscribe([name])
        feed.write(name, 1, 1)
        assert consumer.poll(20) is not None
        with Hammer(commit):
            for _ in range(20):
                on_alarm(lambda: answers.append(commit()), 0.03)
                assert consumer.consume(1, 0.1) == []
        assert [[p.offset for p in answer] for answer in answers] == [[1]] * 20


def test_ctrl_c_inside_consume_loses_no_record(
    topic: Any, config: dict[str, Any], feed: Any, on_alarm: Any
) -> None:
    """Records that were fetched and not returned are rewound before close() commits."""
    name = topic(partitions=2)
    consumer = Consumer(config)
    consumer.subscribe([name])
    feed.write(name, 2, 2)
    assert len(consumer.consume(2, timeout=20)) == 2
    feed.write(name, 2, 6)

    def interrupt() -> None:
        raise KeyboardInterrupt

    on_alarm(interrupt, 1)
    with pytest.raises(KeyboardInterrupt):
        consumer.consume(100, timeout=20)
    consumer.close()
    heir = Consumer(config)
    heir.subscribe([name])
    read = [(m.partition(), m.offset()) for m in heir.consume(6, timeout=20)]
    heir.close()
    assert sorted(read) == [(p, n) for p in range(2) for n in (1, 2, 3)]


@pytest.mark.parametrize("stage", ["handle_reset_events", "_recheck_lease"])
def test_an_exception_after_a_fetch_loses_no_record(
    topic: Any, config: dict[str, Any], feed: Any, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    """The next call returns the same records."""
    name = topic(partitions=1)
    feed.write(name, 1, 3)
    consumer = Consumer(config)
    try:
        consumer.subscribe([name])
        assert [m.offset() for m in consumer.consume(1, timeout=20)] == [0]
        resets: Any = vars(consumer)["_offset_resets"]
        where: Any = resets if stage == "handle_reset_events" else consumer
        kept = getattr(where, stage)

        def fail(*messages: Any) -> Any:
            if stage == "_recheck_lease" or messages[0]:
                raise RuntimeError("unexpected")
            return kept(*messages)

        monkeypatch.setattr(where, stage, fail)
        with pytest.raises(RuntimeError, match="unexpected"):
            consumer.consume(2, timeout=20)
        monkeypatch.setattr(where, stage, kept)
        assert [m.offset() for m in consumer.consume(2, timeout=20)] == [1, 2]
    finally:
        consumer.close()


def test_an_interrupt_before_a_revocation_is_served_keeps_it(
    topic: Any, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch, start: Any, eventually: Any
) -> None:
    """The partitions are released by the next call, with their callback."""
    name = topic(partitions=2)
    revoked: list[Any] = []
    consumer = Consumer(config)
    consumer.subscribe([name], on_revoke=lambda _, partitions: revoked.extend(partitions))
    eventually(lambda: consumer.consume(0, 0.1) == [] and len(consumer.assignment()) == 2)
    kept = consumer_module.stop_fetching
    calls: list[Any] = []

    def interrupt(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == 1:
            raise KeyboardInterrupt
        kept(*arguments)

    monkeypatch.setattr(consumer_module, "stop_fetching", interrupt)
    other = start("other", [name])
    with pytest.raises(KeyboardInterrupt):
        consumer.consume(1)
    eventually(lambda: consumer.consume(0, 0.1) == [] and len(other.owned) == 1)
    assert len(consumer.assignment()) == 1
    consumer.close()


@pytest.mark.parametrize("config", ["classic"], indirect=True)
def test_a_failing_membership_may_be_subscribed_again(
    topic: Any, config: dict[str, Any], feed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """subscribe() after the member's thread has ended joins again."""
    name = topic(partitions=1)
    feed.write(name, 1, 1)
    consumer = Consumer(config)
    try:
        consumer.subscribe([name])
        assert len(consumer.consume(1, timeout=20)) == 1

        def die(*_: Any) -> None:
            raise RuntimeError("struck by lightning")

        monkeypatch.setattr(member_module.GroupMember, "_run_iteration", die)
        with pytest.raises(GroupMembershipError, match="lightning"):
            consumer.consume(1, timeout=20)
        with pytest.raises(GroupMembershipError, match="lightning"):  # until then it stays an error
            consumer.consume(1, timeout=20)
        monkeypatch.undo()
        feed.write(name, 1, 1)
        consumer.subscribe([name])
        assert len(consumer.consume(1, timeout=20)) == 1
    finally:
        consumer.close()
