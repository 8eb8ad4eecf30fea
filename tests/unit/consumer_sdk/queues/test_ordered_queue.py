"""`ordered` with refusals of the broker: dead letters that are not stored, commits that fail."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as RawPartition
from kafka.errors import CoordinatorNotAvailableError, GroupAuthorizationFailedError

from trimtab.consumer_sdk.client.client_adapters import to_confluent_error
from trimtab.consumer_sdk.errors import BrokerUnreachableError
from trimtab.consumer_sdk.queues import OrderedQueue, QueueMessage
from trimtab.consumer_sdk.queues.durable_producer import DeliveryCallback, ProducerRecord
from trimtab.consumer_sdk.queues.ordered import ordered_queue

OpenQueue = Callable[[Mapping[str, Any]], OrderedQueue]
CONFIG = {"bootstrap.servers": "nowhere:1", "group.id": "g"}


class HandClock:
    """Clock that only `sleep` advances."""

    def __init__(self) -> None:
        self.at = 100.0

    def monotonic(self) -> float:
        return self.at

    def wall(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds


class Group:
    """Fake consumer of one partition with the log `log`; the first letter of a value is its key."""

    def __init__(self, clock: HandClock) -> None:
        self.clock = clock
        self.log: list[bytes] = []
        self.at = 0
        self.committed: list[int] = []
        self.callbacks: deque[Callable[..., None]] = deque()
        self.config: Mapping[str, Any] = {}
        self.failing: list[int] = []

    def __call__(self, config: Mapping[str, Any], clock: HandClock) -> "Group":
        """Stand in for the class."""
        assert clock is self.clock
        self.config = config
        return self

    def subscribe(self, topics: list[str], assign: Any, revoke: Any, lost: Any) -> None:
        self.callbacks.extend([assign, revoke, lost])
        assign(self, [RawPartition(topics[0], 0)])

    def assignment(self) -> list[RawPartition]:
        return [RawPartition("t", 0)]

    def consume(self, most: int, wait: float) -> list[Message]:
        self.clock.sleep(wait)
        found = [
            Message(topic="t", partition=0, offset=at, key=self.log[at][:1], value=self.log[at])
            for at in range(self.at, min(self.at + most, len(self.log)))
        ]
        self.at += len(found)
        return found

    def commit(self, offsets: Sequence[RawPartition], asynchronous: bool) -> None:  # noqa: FBT001
        del asynchronous
        if self.failing:
            raise KafkaException(KafkaError(self.failing.pop()))
        self.committed += [p.offset for p in offsets]

    def seek(self, partition: RawPartition) -> None:
        self.at = partition.offset

    def close(self) -> None:
        self.callbacks[1](self, self.assignment())


class Letters:
    """Producer of dead letters; the first `refusing` fail."""

    def __init__(self) -> None:
        self.refusing = 0
        self.stored: list[bytes | None] = []
        self.attempts = 0

    def __call__(self, client: Mapping[str, Any], clock: HandClock) -> "Letters":
        """Stand in for the class."""
        del client, clock
        return self

    def send_async(self, record: ProducerRecord, on_delivery: DeliveryCallback) -> None:
        self.attempts += 1
        assert self.attempts < 100, "endless retries"
        if self.attempts > self.refusing:
            self.stored.append(record.value)
        on_delivery(record, "" if self.attempts > self.refusing else "not allowed")

    def poll(self) -> None:
        """Do nothing: `send_async` has called the callback."""

    def flush(self, timeout: float) -> bool:
        del timeout
        return True


@pytest.fixture
def clock() -> HandClock:
    """Return the queue's clock."""
    return HandClock()


@pytest.fixture
def group(clock: HandClock) -> Group:
    """Return the queue's consumer."""
    return Group(clock)


@pytest.fixture
def letters() -> Letters:
    """Return the queue's producer."""
    return Letters()


@pytest.fixture
def open_queue(
    monkeypatch: pytest.MonkeyPatch, clock: HandClock, group: Group, letters: Letters
) -> OpenQueue:
    """Return a function that opens a queue on these fakes."""
    for name in ("create_admin_client", "prepare_queue_topics"):
        monkeypatch.setattr(ordered_queue.topics, name, Mock(return_value=1))
    monkeypatch.setattr(ordered_queue, "Consumer", group)
    monkeypatch.setattr(ordered_queue, "DurableProducer", letters)
    return lambda more: OrderedQueue("t", {**CONFIG, **more}, clock=clock)


def values_and_deliveries(messages: Sequence[QueueMessage]) -> list[tuple[bytes | None, int]]:
    """Return value and delivery of each."""
    return [(message.value, message.delivery) for message in messages]


def test_a_refused_dead_letter_is_retried_and_blocks_no_receive(
    open_queue: OpenQueue, group: Group, letters: Letters, clock: HandClock
) -> None:
    """The retry waits a second, during which other messages are delivered."""
    group.log, letters.refusing = [b"bad", b"good"], 2
    queue = open_queue({})
    queue.receive(1)[0].reject("no")
    assert values_and_deliveries(queue.receive(1)) == [(b"good", 1)]
    assert (letters.attempts, queue.flush()) == (1, False)
    clock.sleep(ordered_queue.DEAD_LETTER_RETRY_S)
    assert queue.receive(0, 0) == []
    assert (letters.attempts, queue.flush()) == (2, False)
    clock.sleep(ordered_queue.DEAD_LETTER_RETRY_S)
    assert queue.flush()
    assert letters.stored == [b"bad"]
    assert set(group.committed) == {1}


def test_flush_waits_for_the_commit_and_reports_a_refusal(open_queue: OpenQueue, group: Group) -> None:
    """A lost membership makes it return False; an unreachable coordinator is an error."""
    group.log = [b"done"]
    queue = open_queue({})
    queue.receive(1)[0].ack()
    group.failing = [KafkaError.ILLEGAL_GENERATION]
    assert not queue.flush()
    group.failing = [KafkaError.COORDINATOR_NOT_AVAILABLE]
    with pytest.raises(BrokerUnreachableError):
        queue.flush()
    assert queue.flush()
    assert group.committed == [1]


def test_a_failed_asynchronous_commit_is_repeated(
    open_queue: OpenQueue, group: Group, clock: HandClock
) -> None:
    """Even without newly finished messages; the application's `on_commit` is called too."""
    group.log, on_commit = [b"one"], Mock()
    queue = open_queue({"on_commit": on_commit})
    queue.receive(1)[0].ack()
    for _ in range(3):
        clock.sleep(ordered_queue.ORDERED_COMMIT_INTERVAL_S)
        queue.receive(0, 0)
    assert group.committed == [1]
    failed = (KafkaError(KafkaError.NOT_COORDINATOR), [RawPartition("t", 0, 1)])
    group.config["on_commit"](*failed)
    on_commit.assert_called_once_with(*failed)
    for _ in range(3):
        clock.sleep(ordered_queue.ORDERED_COMMIT_INTERVAL_S)
        queue.receive(0, 0)
    assert group.committed == [1, 1]


def test_a_failed_commit_of_at_most_once_rereads_new_messages_only(
    open_queue: OpenQueue, group: Group
) -> None:
    """A retried message keeps its delivery count; a finished one stays finished."""
    group.log = [b"retried", b"okay", b"of the same key", b"new"]
    queue = open_queue({"trimtab.queue.guarantee": "at-most-once"})
    first, done = queue.receive(4)
    first.retry()
    done.ack()
    group.failing = [KafkaError.REBALANCE_IN_PROGRESS]
    assert queue.receive(4) == []
    assert values_and_deliveries(queue.receive(4)) == [(b"retried", 2)]
    assert values_and_deliveries(queue.receive(4)) == [(b"of the same key", 1), (b"new", 1)]
    assert group.committed == [2, 4]


@pytest.mark.parametrize("code", [KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError._TIMED_OUT])
def test_an_unreachable_coordinator_is_a_retryable_error(
    code: int, open_queue: OpenQueue, group: Group
) -> None:
    """A worker retries it; a permanent failure stays a KafkaException and ends the worker."""
    group.log = [b"one"]
    queue = open_queue({"trimtab.queue.guarantee": "at-most-once"})
    group.failing = [KafkaError.GROUP_AUTHORIZATION_FAILED, code]
    with pytest.raises(BrokerUnreachableError, match="nowhere:1") as raised:
        queue.receive(1)
    assert raised.value.retryable
    with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
        queue.receive(1)
    assert values_and_deliveries(queue.receive(1)) == [(b"one", 1)]


def test_converted_errors_stay_retriable() -> None:
    """Errors of kafka-python keep their `retriable` when converted to confluent-kafka's."""
    assert to_confluent_error(CoordinatorNotAvailableError()).retriable()
    assert not to_confluent_error(GroupAuthorizationFailedError()).retriable()


def test_a_due_retry_is_dropped_with_its_partition(open_queue: OpenQueue, group: Group) -> None:
    """The next owner of the partition reads the message."""
    group.log = [b"a"]
    queue = open_queue({})
    (message,) = queue.receive(1)
    message.retry()
    assert queue.receive(0, 0) == []  # it is due now
    group.callbacks[2](group, group.assignment())
    group.log = []
    assert queue.receive(1) == []
