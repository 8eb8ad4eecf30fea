"""AsyncConsumer behaves like aiokafka's AIOKafkaConsumer: each test runs on both.

Those of the group run on AsyncConsumer with the new group protocol (KIP-848), too.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import aiokafka
import pytest
from aiokafka import ConsumerRebalanceListener
from aiokafka.errors import (
    CommitFailedError,
    ConsumerStoppedError,
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    OffsetOutOfRangeError,
)
from aiokafka.structs import TopicPartition
from confluent_kafka import Producer

import trimtab.consumer_sdk

pytestmark = pytest.mark.broker

COUNT = 20
Make = Callable[..., Any]
Scenario = Callable[[Make], Coroutine[Any, Any, None]]
Run = Callable[[Scenario], None]

CLASSIC = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 100}
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "theirs": (aiokafka.AIOKafkaConsumer, CLASSIC),
    "ours": (trimtab.consumer_sdk.AsyncConsumer, CLASSIC),
    "ours, new protocol": (trimtab.consumer_sdk.AsyncConsumer, {"group_protocol": "consumer"}),
}
in_both_protocols = pytest.mark.parametrize("chosen", KINDS)


@pytest.fixture(params=["theirs", "ours"])
def chosen(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def kind(chosen: str) -> Any:
    return KINDS[chosen][0]


@pytest.fixture
def run(chosen: str, bootstrap: str, group: str) -> Run:
    """Run a scenario on a loop of its own; it makes consumers, which are stopped at the end."""
    kind, fast = KINDS[chosen]

    async def play(scenario: Scenario) -> None:
        made: list[Any] = []

        def make(*topics: str, **settings: Any) -> Any:
            shared = {"bootstrap_servers": bootstrap, "group_id": group, "auto_offset_reset": "earliest"}
            made.append(kind(*topics, **{**shared, **fast, "metadata_max_age_ms": 1000, **settings}))
            return made[-1]

        try:
            async with asyncio.timeout(90):  # a test that passes is not slower for it
                await scenario(make)
        finally:
            await asyncio.gather(*(consumer.stop() for consumer in made), return_exceptions=True)

    return lambda scenario: asyncio.run(play(scenario))


@pytest.fixture
def produce(bootstrap: str) -> Callable[..., None]:
    """Write numbered records to a partition."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})

    def write(topic: str, count: int, partition: int = 0, first: int = 0, at: int = 1000) -> None:
        for number in range(first, first + count):
            producer.produce(
                topic, str(number).encode(), key=b"k", partition=partition, headers={"n": b"1"}, timestamp=at
            )
        producer.flush()

    return write


@pytest.fixture
def topic(topic: Callable[..., str]) -> Callable[..., str]:
    return partial(topic, retention_ms="-1")  # the timestamps of the records are old


@pytest.fixture
def filled(topic: Callable[..., str], produce: Any) -> str:
    """A topic of one partition with 20 records."""
    name = topic(partitions=1)
    produce(name, COUNT)
    return name


class Listener(ConsumerRebalanceListener):  # type: ignore[misc] # aiokafka has no types
    """Records the partitions of its calls; `action` is awaited in each."""

    def __init__(self, action: Callable[[str, Any], Awaitable[Any]] | None = None) -> None:
        self.calls: list[tuple[str, set[TopicPartition]]] = []
        self._action = action

    async def on_partitions_assigned(self, assigned: Any) -> None:
        await self._record("assigned", assigned)

    async def on_partitions_revoked(self, revoked: Any) -> None:
        await self._record("revoked", revoked)

    async def _record(self, name: str, partitions: Any) -> None:
        if self._action is not None:
            await self._action(name, partitions)
        self.calls.append((name, set(partitions)))

    def all_of(self, name: str) -> set[TopicPartition]:
        return set().union(*(partitions for called, partitions in self.calls if called == name))


@asynccontextmanager
async def reading(consumer: Any) -> AsyncIterator[list[Any]]:
    """Read in the background, as an application does; yield the list of records."""
    records: list[Any] = []

    async def read() -> None:
        async for record in consumer:
            records.append(record)  # noqa: PERF401 - the list is read meanwhile

    task = asyncio.create_task(read())
    try:
        yield records
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds; the scenario's timeout ends it."""
    while not condition():  # noqa: ASYNC110 - the clients tell no event
        await asyncio.sleep(0.02)


def offsets(records: Any) -> list[int]:
    return [record.offset for record in records]


# -- reading ------------------------------------------------------------------------------------------


def test_methods_take_their_arguments() -> None:
    """Names, order and defaults of the parameters are aiokafka's, and sync methods are sync."""
    ours, theirs = trimtab.consumer_sdk.AsyncConsumer, aiokafka.AIOKafkaConsumer
    internal = {"last_stable_offset", "last_poll_timestamp"}
    for name, method in inspect.getmembers(theirs, inspect.isfunction):
        if name in internal or name.startswith("_"):
            continue
        own = getattr(ours, name)
        assert inspect.iscoroutinefunction(own) == inspect.iscoroutinefunction(method), name
        wanted = [(p.name, p.kind, p.default) for p in inspect.signature(method).parameters.values()]
        assert [(p.name, p.kind, p.default) for p in inspect.signature(own).parameters.values()] == wanted


def test_records_have_all_fields(run: Run, filled: str) -> None:
    """`async for` yields records in order, with key, value, headers, timestamp and sizes."""

    async def scenario(make: Make) -> None:
        async with make(filled) as consumer:
            records = []
            async for record in consumer:
                records.append(record)
                if len(records) == COUNT:
                    break
        assert offsets(records) == list(range(COUNT))
        one = records[12]
        assert (one.topic, one.partition, one.offset, one.key, one.value) == (filled, 0, 12, b"k", b"12")
        assert (one.timestamp, one.timestamp_type, tuple(one.headers)) == (1000, 0, (("n", b"1"),))
        assert (one.serialized_key_size, one.serialized_value_size) == (1, 2)

    run(scenario)


@in_both_protocols
def test_start_waits_for_the_assignment(run: Run, filled: str) -> None:
    """After start() the partitions are assigned, as a set of named tuples."""

    async def scenario(make: Make) -> None:
        consumer = make(filled)
        assert consumer.assignment() == set()
        await consumer.start()
        assert consumer.assignment() == {TopicPartition(filled, 0)}
        assert consumer.subscription() == {filled}
        assert consumer.partitions_for_topic(filled) == {0}
        assert filled in await consumer.topics()

    run(scenario)


def test_getmany_is_limited_by_records_and_time(run: Run, filled: str) -> None:
    """getmany() returns lists by partition, at most `max_records`, and {} after the timeout."""

    async def scenario(make: Make) -> None:
        at = TopicPartition(filled, 0)
        async with make(filled) as consumer:
            first = await consumer.getmany(timeout_ms=20_000, max_records=5)
            assert {p: offsets(records) for p, records in first.items()} == {at: [0, 1, 2, 3, 4]}
            assert (await consumer.getone()).offset == 5
            rest: list[int] = []
            while len(rest) < COUNT - 6:
                rest += offsets((await consumer.getmany(at, timeout_ms=1000)).get(at, []))
            assert rest == list(range(6, COUNT))
            assert await consumer.getmany(timeout_ms=200) == {}
            assert await consumer.getmany() == {}
            with pytest.raises(ValueError, match="max_records"):
                await consumer.getmany(max_records=0)

    run(scenario)


def test_max_poll_records_and_deserializers(run: Run, filled: str) -> None:
    """`max_poll_records` limits getmany(); keys and values are deserialized."""

    async def scenario(make: Make) -> None:
        decode = {"key_deserializer": bytes.decode, "value_deserializer": lambda raw: int(raw) * 2}
        async with make(filled, max_poll_records=3, **decode) as consumer:
            ((_, records),) = (await consumer.getmany(timeout_ms=20_000)).items()
            found = [(r.key, r.value, r.serialized_value_size) for r in records]
            assert found == [("k", 0, 1), ("k", 2, 1), ("k", 4, 1)]

    run(scenario)


def test_getone_of_one_partition_leaves_the_others(
    run: Run, topic: Callable[..., str], produce: Callable[..., None]
) -> None:
    """A partition that is not asked for is neither lost nor in the way, however full it is."""
    name = topic(partitions=2)
    produce(name, 5000, partition=0)
    produce(name, 3, partition=1)
    full, other = TopicPartition(name, 0), TopicPartition(name, 1)

    async def scenario(make: Make) -> None:
        async with make(name) as consumer:
            assert [(await consumer.getone(other)).offset for _ in range(3)] == [0, 1, 2]
            waiting = asyncio.create_task(consumer.getone(other))
            await asyncio.sleep(1)
            produce(name, 1, partition=1, first=3)
            assert (await waiting).offset == 3
            found: list[int] = []
            while len(found) < 5000:
                found += offsets((await consumer.getmany(full, timeout_ms=1000)).get(full, []))
            assert found == list(range(5000))

    run(scenario)


def test_a_cancelled_call_loses_no_record(run: Run, filled: str, produce: Callable[..., None]) -> None:
    """Timeouts around getone() and getmany() at any moment leave no gap and repeat nothing."""

    async def scenario(make: Make) -> None:
        found: list[int] = []
        async with make(filled) as consumer:
            produce(filled, 100, first=COUNT)
            for turn in range(100_000):
                call = consumer.getone() if turn % 2 else consumer.getmany(timeout_ms=50, max_records=3)
                task = asyncio.create_task(call)
                for _ in range(turn % 5):
                    await asyncio.sleep(0 if turn % 3 else 0.001)
                task.cancel()
                (outcome,) = await asyncio.gather(task, return_exceptions=True)
                if isinstance(outcome, dict):
                    found += [r.offset for records in outcome.values() for r in records]
                elif not isinstance(outcome, BaseException):
                    found.append(outcome.offset)
                if len(found) == COUNT + 100:
                    break
        assert found == list(range(COUNT + 100))

    run(scenario)


# -- positions ----------------------------------------------------------------------------------------


def test_position_follows_what_was_returned(run: Run, filled: str) -> None:
    """position() is the next offset to return, whatever has been fetched, also before the first record."""

    async def scenario(make: Make) -> None:
        at = TopicPartition(filled, 0)
        async with make(filled) as consumer:
            assert await consumer.position(at) == 0
            await consumer.getone()
            await consumer.getone()
            assert await consumer.position(at) == 2
            assert consumer.highwater(at) == COUNT
            with pytest.raises(IllegalStateError):
                await consumer.position(TopicPartition(filled, 7))

    run(scenario)


@in_both_protocols
def test_seek_moves_the_position_at_once(run: Run, filled: str) -> None:
    """After seek(), also to the ends, the next record is the one that was sought."""

    async def scenario(make: Make) -> None:
        at = TopicPartition(filled, 0)
        async with make(filled, enable_auto_commit=False) as consumer:  # none between ours and the look
            for offset in (15, 3, 0, 19, 7):
                consumer.seek(at, offset)
                assert await consumer.position(at) == offset
                assert (await consumer.getone()).offset == offset
            assert await consumer.seek_to_beginning(at)
            assert (await consumer.getone()).offset == 0
            assert await consumer.seek_to_end()
            assert await consumer.position(at) == COUNT
            assert await consumer.getmany(timeout_ms=300) == {}
            await consumer.commit({at: 4})
            assert await consumer.seek_to_committed() == {at: 4}
            assert (await consumer.getone()).offset == 4
            with pytest.raises(ValueError, match="positive"):
                consumer.seek(at, -1)
            with pytest.raises(IllegalStateError):
                consumer.seek(TopicPartition(filled, 7), 0)
            with pytest.raises(IllegalStateError):
                await consumer.seek_to_end(TopicPartition(filled, 7))

    run(scenario)


def test_offsets_of_a_log(run: Run, filled: str) -> None:
    """Beginning, end and times are looked up without an assignment."""

    async def scenario(make: Make) -> None:
        at = TopicPartition(filled, 0)
        async with make() as consumer:
            assert await consumer.beginning_offsets([at]) == {at: 0}
            assert await consumer.end_offsets([at]) == {at: COUNT}
            found = await consumer.offsets_for_times({at: 500})
            assert found[at].offset == 0  # librdkafka does not tell the record's time
            assert (await consumer.offsets_for_times({at: 5000}))[at] is None

    run(scenario)


@in_both_protocols
def test_paused_partitions_return_nothing(run: Run, filled: str) -> None:
    """A pause holds at once, also for records fetched before; resume() goes on without a gap."""

    async def scenario(make: Make) -> None:
        at = TopicPartition(filled, 0)
        async with make(filled) as consumer:
            assert (await consumer.getone()).offset == 0
            consumer.pause(at)
            assert consumer.paused() == {at}
            assert await consumer.getmany(timeout_ms=500) == {}
            consumer.resume(at)
            assert consumer.paused() == set()
            assert [(await consumer.getone()).offset for _ in range(COUNT - 1)] == list(range(1, COUNT))
            with pytest.raises(TypeError):
                consumer.pause("orders")

    run(scenario)


@pytest.mark.parametrize("leave", [False, True])
def test_a_pause_before_another_assign_is_over(run: Run, filled: str, *, leave: bool) -> None:
    """After unsubscribe(), or a resume(), the partition is read from its committed offset."""

    async def scenario(make: Make) -> None:
        at = TopicPartition(filled, 0)
        async with make(enable_auto_commit=False) as consumer:
            consumer.assign([at])
            assert (await consumer.getone()).offset == 0
            consumer.pause(at)
            if leave:
                consumer.unsubscribe()
            consumer.assign([at])
            if not leave:
                consumer.resume(at)
            assert consumer.paused() == set()
            await consumer.seek_to_beginning(at)
            assert [(await consumer.getone()).offset for _ in range(COUNT)] == list(range(COUNT))

    run(scenario)


# -- commits ------------------------------------------------------------------------------------------


@in_both_protocols
def test_commit_covers_what_was_returned(run: Run, filled: str) -> None:
    """commit() commits the positions, or the given offsets; committed() is None before."""

    async def scenario(make: Make) -> None:
        at = TopicPartition(filled, 0)
        async with make(filled, enable_auto_commit=False) as consumer:
            assert await consumer.committed(at) is None
            for _ in range(5):
                await consumer.getone()
            await consumer.commit()
            assert await consumer.committed(at) == 5
            await consumer.commit({at: 9})
            assert await consumer.committed(at) == 9
            await consumer.commit({at: (11, "why")})
            assert await consumer.committed(at) == 11
            for wrong in ({}, [at], {at: "9"}):
                with pytest.raises((ValueError, TypeError)):
                    await consumer.commit(wrong)
            with pytest.raises(IllegalStateError):
                await consumer.commit({TopicPartition(filled, 7): 1})
        async with make(filled, enable_auto_commit=False) as consumer:
            assert (await consumer.getone()).offset == 11

    run(scenario)


@pytest.mark.parametrize("auto", [True, False])
@in_both_protocols
def test_stop_commits_what_was_returned(run: Run, filled: str, *, auto: bool) -> None:
    """With automatic commits the next consumer goes on behind the last returned record, else before it."""

    async def scenario(make: Make) -> None:
        async with make(filled, enable_auto_commit=auto) as consumer:
            for _ in range(7):
                await consumer.getone()
        async with make(filled) as consumer:
            assert (await consumer.getone()).offset == (7 if auto else 0)

    run(scenario)


@in_both_protocols
def test_automatic_commits_need_no_call(run: Run, filled: str) -> None:
    """Returned records are committed in the background, while the application does something else."""

    async def scenario(make: Make) -> None:
        at = TopicPartition(filled, 0)
        async with make(filled, auto_commit_interval_ms=100) as consumer:
            for _ in range(6):
                await consumer.getone()
            while await consumer.committed(at) != 6:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.05)

    run(scenario)


# -- groups -------------------------------------------------------------------------------------------


@in_both_protocols
def test_partitions_move_between_consumers(run: Run, topic: Callable[..., str], produce: Any) -> None:
    """A second consumer takes its share, the listeners are told, and each record is returned once."""
    name = topic(partitions=4)

    async def scenario(make: Make) -> None:
        listeners = Listener(), Listener()
        first, second = make(), make()
        first.subscribe([name], listener=listeners[0])
        second.subscribe([name], listener=listeners[1])
        await first.start()
        async with reading(first) as ones:
            await until(lambda: len(first.assignment()) == 4)  # on the new protocol start() may end before
            for partition in range(4):
                produce(name, 10, partition)
            await until(lambda: len(ones) == 40)
            await second.start()
            async with reading(second) as twos:
                await until(lambda: len(first.assignment()) == len(second.assignment()) == 2)
                await asyncio.sleep(0.5)
                for partition in range(4):
                    produce(name, 10, partition, first=10)
                await until(lambda: len(ones) + len(twos) >= 80)
                moved = second.assignment()
                assert listeners[0].all_of("revoked") >= moved
                assert listeners[1].all_of("assigned") >= moved
                await second.stop()
            await until(lambda: len(first.assignment()) == 4)
        seen = [(r.partition, r.offset) for r in [*ones, *twos]]
        assert sorted(seen) == [(p, o) for p in range(4) for o in range(20)]

    run(scenario)


@in_both_protocols
def test_a_rebalance_needs_no_read(run: Run, topic: Callable[..., str]) -> None:
    """Partitions move, and the listener runs, while the application reads nothing."""
    name = topic(partitions=4)

    async def scenario(make: Make) -> None:
        listener = Listener()
        first, second = make(), make(name)
        first.subscribe([name], listener=listener)
        await first.start()
        await until(lambda: len(first.assignment()) == 4)
        await second.start()
        await until(lambda: len(first.assignment()) == len(second.assignment()) == 2)
        assert listener.all_of("revoked") >= second.assignment()

    run(scenario)


@in_both_protocols
def test_fetched_records_hold_up_no_rebalance(run: Run, topic: Callable[..., str], produce: Any) -> None:
    """Partitions move while thousands of records wait for an application that does not read."""
    name = topic(partitions=2)
    for partition in range(2):
        produce(name, 5000, partition, at=0)  # now: the broker would delete older ones meanwhile

    async def scenario(make: Make) -> None:
        first, second = make(name), make(name)
        await first.start()
        before = [await first.getone() for _ in range(10)]
        await second.start()
        await until(lambda: len(first.assignment()) == len(second.assignment()) == 1)
        async with reading(first) as ones, reading(second) as twos:
            await until(lambda: len({(r.partition, r.offset) for r in [*before, *ones, *twos]}) == 10_000)
            assert len(before) + len(ones) + len(twos) == 10_000

    run(scenario)


@in_both_protocols
def test_the_listener_may_commit_and_seek(run: Run, filled: str) -> None:
    """A commit in on_partitions_revoked counts for the next owner; a seek in on_partitions_assigned holds."""

    async def scenario(make: Make) -> None:
        at = TopicPartition(filled, 0)
        consumer = make(enable_auto_commit=False)

        async def act(called: str, partitions: Any) -> None:
            if called == "revoked" and partitions:
                await consumer.commit()
            if called == "assigned" and partitions:
                consumer.seek(at, 12)

        consumer.subscribe([filled], listener=Listener(act))
        await consumer.start()
        assert [(await consumer.getone()).offset for _ in range(3)] == [12, 13, 14]
        other = make(filled, enable_auto_commit=False, client_id="z")
        await other.start()
        await consumer.getmany(timeout_ms=500)
        await until(lambda: bool(consumer.assignment()) != bool(other.assignment()))
        assert await other.committed(at) in (None, 15)

    run(scenario)


@in_both_protocols
def test_a_failed_listener_stops_nothing(run: Run, filled: str) -> None:
    """An exception of the listener is logged; reading goes on."""

    async def fail(_called: str, _partitions: Any) -> None:
        raise ZeroDivisionError

    async def scenario(make: Make) -> None:
        consumer = make()
        consumer.subscribe([filled], listener=Listener(fail))
        await consumer.start()
        assert (await consumer.getone()).offset == 0

    run(scenario)


def test_subscriptions_by_pattern_and_by_partition(
    run: Run, topic: Callable[..., str], produce: Callable[..., None]
) -> None:
    """A pattern reads the topics that it matches; assign() reads partitions without a subscription."""
    names = [topic(partitions=1), topic(partitions=1)]
    for name in names:
        produce(name, 3)

    async def scenario(make: Make) -> None:
        consumer = make()
        consumer.subscribe(pattern=f"{names[0]}|{names[1]}")
        await consumer.start()
        async with reading(consumer) as records:
            await until(lambda: len(records) == 6)
        consumer.unsubscribe()
        assert consumer.assignment() == set()
        consumer.subscribe([names[1]])
        with pytest.raises(IllegalStateError):
            consumer.assign([TopicPartition(names[1], 0)])
        await consumer.stop()
        reader = make()
        reader.assign([TopicPartition(names[0], 0)])
        await reader.start()
        assert reader.assignment() == {TopicPartition(names[0], 0)}
        await reader.seek_to_beginning()
        assert [(await reader.getone()).offset for _ in range(3)] == [0, 1, 2]

    run(scenario)


@in_both_protocols
def test_an_idle_application_leaves_the_group(run: Run, filled: str) -> None:
    """After max.poll.interval.ms without a read the partitions go to another; a read joins again."""

    async def scenario(make: Make) -> None:
        idle = make(filled, max_poll_interval_ms=6000, session_timeout_ms=6000)
        await idle.start()
        await idle.getone()
        other = make(filled, client_id="z", enable_auto_commit=False)
        await other.start()
        async with reading(other):
            await until(lambda: len(other.assignment()) == 1)
        await other.stop()
        async with reading(idle) as records:
            await until(lambda: len(records) > 0)

    run(scenario)


# -- errors -------------------------------------------------------------------------------------------


def test_stop_ends_waiting_calls(run: Run, topic: Callable[..., str]) -> None:
    """Calls that wait, and later ones, raise ConsumerStoppedError; `async for` ends."""
    name = topic(partitions=1)

    async def scenario(make: Make) -> None:
        consumer = make(name)
        await consumer.start()
        waiting = asyncio.create_task(consumer.getone())
        ended: list[Any] = []

        async def loop() -> None:
            async for _ in consumer:
                pass
            ended.append(True)

        looping = asyncio.create_task(loop())
        await asyncio.sleep(0.2)
        await consumer.stop()
        await consumer.stop()
        with pytest.raises(ConsumerStoppedError):
            await waiting
        await looping
        assert ended
        for call in (consumer.getone(), consumer.getmany()):
            with pytest.raises(ConsumerStoppedError):
                await call

    run(scenario)


def test_errors_are_theirs(run: Run, filled: str) -> None:
    """No broker, a commit after the removal, a missing offset: aiokafka's errors."""

    async def scenario(make: Make) -> None:
        with pytest.raises(KafkaConnectionError):
            await make(filled, bootstrap_servers=["127.0.0.1:1"]).start()
        consumer = make()
        for wrong in ({}, {"topics": ["a"], "pattern": "b"}, {"topics": "orders"}):
            with pytest.raises(TypeError):
                consumer.subscribe(**wrong)
        with pytest.raises(TypeError):
            consumer.subscribe([filled], listener=object())
        with pytest.raises(ValueError, match="pattern"):
            consumer.subscribe(pattern="(")

    run(scenario)


def test_a_missing_offset_is_an_error_if_wanted(run: Run, filled: str) -> None:
    """`auto_offset_reset="none"` raises for an offset that the log does not have."""

    async def scenario(make: Make) -> None:
        at = TopicPartition(filled, 0)
        async with make(filled, enable_auto_commit=False) as consumer:
            await consumer.getone()
            await consumer.commit({at: 500})
        async with make(filled, auto_offset_reset="none", enable_auto_commit=False) as consumer:
            with pytest.raises(OffsetOutOfRangeError):
                await consumer.getone()

    run(scenario)


def test_a_commit_after_the_removal_fails(run: Run, filled: str) -> None:
    """A member that the group removed cannot commit."""

    async def scenario(make: Make) -> None:
        consumer = make(filled, enable_auto_commit=False, group_instance_id="same")
        await consumer.start()
        await consumer.getone()
        other = make(filled, enable_auto_commit=False, group_instance_id="same")
        await other.start()
        with pytest.raises((CommitFailedError, KafkaError)):
            await consumer.commit()

    run(scenario)
