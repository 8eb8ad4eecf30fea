"""Our consumer behaves like confluent-kafka's: each test runs on both."""

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

import trimtab.consumer_sdk

pytestmark = pytest.mark.broker

COUNT = 20
NAMES = {
    "enable_auto_commit": "enable.auto.commit",
    "enable_auto_offset_store": "enable.auto.offset.store",
    "enable_partition_eof": "enable.partition.eof",
}


NEW_PROTOCOL = {"group.protocol": "consumer"}
KINDS = {
    "theirs": (confluent_kafka.Consumer, {}),
    "ours": (trimtab.consumer_sdk.Consumer, {}),
    "ours, new protocol": (trimtab.consumer_sdk.Consumer, NEW_PROTOCOL),
}


@pytest.fixture(params=KINDS.values(), ids=KINDS)
def make(request: pytest.FixtureRequest, bootstrap: str, group: str) -> Iterator[Callable[..., Any]]:
    """Create consumers of one kind; close all at the end."""
    made: list[Any] = []
    create, protocol = request.param

    def make(**settings: Any) -> Any:
        extra = {NAMES.get(key, key): value for key, value in settings.items()}
        config = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
            **(protocol or {"heartbeat.interval.ms": 100}),
            **extra,
        }
        made.append(create(config))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close()


@pytest.fixture
def filled(topic: Callable[..., str], bootstrap: str) -> str:
    """A topic of one partition with 20 numbered records."""
    name = topic(partitions=1)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(COUNT):
        producer.produce(name, str(number).encode(), key=b"k", partition=0, headers={"n": b"1"})
    producer.flush()
    return name


def read(consumer: Any, count: int) -> list[Message]:
    """Read until there are `count` records, for at most 30 rounds of a second."""
    messages: list[Message] = []
    for _ in range(30):
        messages += consumer.consume(count - len(messages), timeout=1)
        if len(messages) >= count:
            break
    assert all(m.error() is None for m in messages)
    return messages


def values(messages: list[Message]) -> list[int]:
    return [int(m.value()) for m in messages]


def test_records_are_complete_and_in_order(make: Any, filled: str) -> None:
    """Records have key, value, headers, offset, timestamp; poll and consume share a position."""
    consumer = make()
    consumer.subscribe([filled])
    first = read(consumer, 5)
    polled = consumer.poll(10)
    rest = read(consumer, COUNT - 6)
    assert values([*first, polled, *rest]) == list(range(COUNT))
    assert (polled.key(), polled.offset(), polled.headers()) == (b"k", 5, [("n", b"1")])
    assert polled.timestamp()[1] > 0
    assert consumer.poll(0.1) is None


def test_callbacks_get_the_partitions(make: Any, filled: str) -> None:
    """on_assign and on_revoke get the consumer and the partitions, on the application's thread."""
    seen: list[Any] = []
    consumer = make()
    consumer.subscribe(
        [filled],
        on_assign=lambda c, ps: seen.append((c is consumer, "assign", [p.partition for p in ps])),
        on_revoke=lambda c, ps: seen.append((c is consumer, "revoke", [p.partition for p in ps])),
    )
    read(consumer, 1)
    consumer.close()
    assert seen == [(True, "assign", [0]), (True, "revoke", [0])]


def test_assign_in_the_callback_sets_the_start(make: Any, filled: str) -> None:
    """An application with offsets of its own starts at them."""

    def begin(consumer: Any, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            partition.offset = 15
        consumer.assign(partitions)

    consumer = make()
    consumer.subscribe([filled], on_assign=begin)
    assert values(read(consumer, 5)) == [15, 16, 17, 18, 19]


def test_the_next_consumer_starts_at_any_kind_of_commit(make: Any, filled: str) -> None:
    """By message, by offsets or by position: the committed offset is the next record's."""
    consumer = make(enable_auto_commit=False)
    consumer.subscribe([filled])
    messages = read(consumer, 10)
    where = [TopicPartition(filled, 0)]
    assert consumer.commit(message=messages[3], asynchronous=False)[0].offset == 4
    assert consumer.committed(where, timeout=10)[0].offset == 4
    consumer.commit(offsets=[TopicPartition(filled, 0, 7)], asynchronous=False)
    assert consumer.committed(where, timeout=10)[0].offset == 7
    consumer.commit(asynchronous=False)
    assert consumer.committed(where, timeout=10)[0].offset == 10
    assert consumer.position(where)[0].offset == 10
    consumer.close()
    successor = make(enable_auto_commit=False)
    successor.subscribe([filled])
    assert values(read(successor, 1)) == [10]


def test_auto_commit_commits_the_position_at_close(make: Any, filled: str) -> None:
    """Records returned before close() are not read again."""
    consumer = make()
    consumer.subscribe([filled])
    assert len(read(consumer, 8)) == 8
    consumer.close()
    successor = make()
    successor.subscribe([filled])
    assert values(read(successor, 1)) == [8]


def test_an_asynchronous_commit_calls_on_commit(make: Any, filled: str) -> None:
    """on_commit gets None and the offsets once the broker has them."""
    completed: list[Any] = []

    def on_commit(error: Any, partitions: list[TopicPartition]) -> None:
        completed.append((error, [p.offset for p in partitions]))

    consumer = make(**{"enable.auto.commit": False, "on_commit": on_commit})
    consumer.subscribe([filled])
    read(consumer, 2)
    assert consumer.commit(offsets=[TopicPartition(filled, 0, 2)], asynchronous=True) is None
    for _ in range(100):
        consumer.poll(0.05)
        if completed:
            break
    assert completed == [(None, [2])]


def test_an_automatic_commit_repeats_no_offset(make: Any, filled: str) -> None:
    """An idle consumer commits nothing: on_commit is called once for what it has read."""
    completed: list[list[int]] = []

    def on_commit(_: Any, partitions: list[TopicPartition]) -> None:
        completed.append([p.offset for p in partitions if p.offset >= 0])

    consumer = make(**{"on_commit": on_commit, "auto.commit.interval.ms": 200})
    consumer.subscribe([filled])
    read(consumer, COUNT)
    for _ in range(20):
        consumer.poll(0.1)
    assert completed.count([COUNT]) == 1
    assert completed[-1] == [COUNT]


def test_only_stored_offsets_are_committed(make: Any, filled: str) -> None:
    """With enable.auto.offset.store=false only stored offsets are committed."""
    consumer = make(enable_auto_offset_store=False)
    consumer.subscribe([filled])
    messages = read(consumer, 10)
    consumer.store_offsets(message=messages[2])
    consumer.close()
    successor = make()
    successor.subscribe([filled])
    assert values(read(successor, 1)) == [3]


def test_a_commit_of_nothing_is_an_error(make: Any, filled: str) -> None:
    """Before the first record there is no offset to commit."""
    consumer = make(enable_auto_commit=False)
    consumer.subscribe([filled])
    with pytest.raises(KafkaException) as nothing:
        consumer.commit(asynchronous=False)
    assert nothing.value.args[0].code() == KafkaError._NO_OFFSET


def test_a_commit_returns_the_leader_epoch(make: Any, filled: str) -> None:
    """Of the last record before the offset, where the offset is not given."""
    consumer = make(enable_auto_commit=False)
    consumer.subscribe([filled])
    messages = read(consumer, 4)
    answers = [
        consumer.commit(message=messages[0], asynchronous=False),
        consumer.commit(offsets=[TopicPartition(filled, 0, 2)], asynchronous=False),
        consumer.commit(asynchronous=False),
    ]
    assert [(p.offset, p.leader_epoch) for (p,) in answers] == [(1, 0), (2, None), (4, 0)]


def test_a_second_commit_of_the_same_offsets_is_one_of_nothing(make: Any, filled: str) -> None:
    """A commit without offsets takes those that have changed, so that a deleted topic's fail no later one."""
    consumer = make(enable_auto_commit=False)
    consumer.subscribe([filled])
    read(consumer, 4)
    assert [p.offset for p in consumer.commit(asynchronous=False)] == [4]
    with pytest.raises(KafkaException) as nothing:
        consumer.commit(asynchronous=False)
    assert nothing.value.args[0].code() == KafkaError._NO_OFFSET


@pytest.mark.parametrize(("create", "protocol"), KINDS.values(), ids=KINDS)
def test_a_consumer_that_is_dropped_without_close_leaves_the_group(
    create: Any, protocol: dict[str, str], bootstrap: str, group: str, filled: str, eventually: Any
) -> None:
    """Its threads and descriptors end; another consumer gets the partitions long before a timeout."""
    protocol = protocol or {"session.timeout.ms": 6000}
    shared = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}

    def count_open() -> tuple[int, int]:
        return len([*Path("/proc/self/task").iterdir()]), len([*Path("/proc/self/fd").iterdir()])

    def drop(settings: dict[str, Any]) -> None:
        consumer = create(settings)
        consumer.subscribe([filled])
        read(consumer, 1)

    before = count_open()
    drop({**shared, **protocol})
    gc.collect()
    eventually(lambda: count_open() <= before, timeout=5)
    successor = create({**shared, **protocol})
    successor.subscribe([filled])
    eventually(lambda: successor.poll(0.5) is not None, timeout=5)
    successor.close()


def test_seek_moves_backward_and_forward(make: Any, filled: str) -> None:
    """After seek() the next record is the one at the requested offset."""
    consumer = make()
    consumer.subscribe([filled])
    read(consumer, 10)
    for offset in (2, 17):
        consumer.seek(TopicPartition(filled, 0, offset))
        assert values(read(consumer, 1)) == [offset]


def test_a_paused_partition_returns_no_records(make: Any, filled: str) -> None:
    """A paused partition returns no records, and resumes at its position."""
    consumer = make()
    consumer.subscribe([filled])
    read(consumer, 5)
    where = consumer.assignment()
    assert [(p.topic, p.partition) for p in where] == [(filled, 0)]
    consumer.pause(where)
    assert consumer.consume(5, timeout=0.5) == []
    consumer.resume(where)
    assert values(read(consumer, 3)) == [5, 6, 7]


def test_end_of_partition_events(make: Any, filled: str) -> None:
    """With enable.partition.eof the end is an event with that error."""
    consumer = make(enable_partition_eof=True)
    consumer.subscribe([filled])
    events: list[Message] = []
    for _ in range(30):
        events += consumer.consume(COUNT + 1, timeout=1)
        if len(events) > COUNT:
            break
    assert events[-1].error().code() == KafkaError._PARTITION_EOF


def test_watermarks_times_and_metadata(make: Any, filled: str) -> None:
    """Queries to the cluster give the same results."""
    consumer = make()
    assert consumer.get_watermark_offsets(TopicPartition(filled, 0), timeout=10) == (0, COUNT)
    found = consumer.offsets_for_times([TopicPartition(filled, 0, 1)], timeout=10)
    assert found[0].offset == 0
    assert filled in consumer.list_topics(timeout=10).topics


def test_a_closed_consumer_raises(make: Any) -> None:
    """Using a closed consumer is an error, closing it twice is not."""
    consumer = make()
    consumer.close()
    consumer.close()
    with pytest.raises((RuntimeError, trimtab.consumer_sdk.ConsumerClosedError)):
        consumer.poll(0)


def test_manual_assignment_without_a_group(make: Any, filled: str) -> None:
    """assign() alone reads without joining."""
    consumer = make()
    consumer.assign([TopicPartition(filled, 0, 12)])
    assert values(read(consumer, 2)) == [12, 13]
