"""`ordered` where brokers refuse: dead letters that are not kept, commits that fail."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as RawPartition
from kafka.errors import CoordinatorNotAvailableError, GroupAuthorizationFailedError

from trimtab.consumer_sdk.consumer.client_adapters import to_confluent_error
from trimtab.consumer_sdk.errors import BrokerUnreachableError
from trimtab.consumer_sdk.queues import OrderedQueue, QueueMessage
from trimtab.consumer_sdk.queues.durable_producer import DeliveryCallback, ProducerRecord
from trimtab.consumer_sdk.queues.ordered import ordered_queue

Opened = Callable[[Mapping[str, Any]], OrderedQueue]
CONFIG = {"bootstrap.servers": "nowhere:1", "group.id": "g"}


class HandClock:
    """A clock that moves when it is told to, or slept by."""

    def __init__(self) -> None:
        self.at = 100.0

    def monotonic(self) -> float:
        return self.at

    def wall(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds


class Group:
    """A consumer of one partition, whose log is `log`; the first letter of a value is its key."""

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
    """A writer of dead letters that refuses the first `refusing`."""

    def __init__(self) -> None:
        self.refusing = 0
        self.kept: list[bytes | None] = []
        self.tried = 0

    def __call__(self, client: Mapping[str, Any], clock: HandClock) -> "Letters":
        """Stand in for the class."""
        del client, clock
        return self

    def send_async(self, record: ProducerRecord, on_delivery: DeliveryCallback) -> None:
        self.tried += 1
        assert self.tried < 100, "tried without end"
        if self.tried > self.refusing:
            self.kept.append(record.value)
        on_delivery(record, "" if self.tried > self.refusing else "not allowed")

    def poll(self) -> None:
        """Do nothing: `send_async` has answered."""

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
    """Return the queue's writer."""
    return Letters()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, clock: HandClock, group: Group, letters: Letters) -> Opened:
    """Return what opens a queue on them."""
    for name in ("create_admin_client", "prepare_queue_topics"):
        monkeypatch.setattr(ordered_queue.topics, name, Mock())
    monkeypatch.setattr(ordered_queue, "Consumer", group)
    monkeypatch.setattr(ordered_queue, "DurableProducer", letters)
    return lambda more: OrderedQueue("t", {**CONFIG, **more}, clock=clock)


def texts(messages: Sequence[QueueMessage]) -> list[tuple[bytes | None, int]]:
    """Return value and delivery of each."""
    return [(message.value, message.delivery) for message in messages]


def test_a_dead_letter_that_is_refused_is_tried_again_and_holds_no_receive_up(
    opened: Opened, group: Group, letters: Letters, clock: HandClock
) -> None:
    """Refused at once it waits a second; the messages behind it go on meanwhile."""
    group.log, letters.refusing = [b"bad", b"good"], 2
    queue = opened({})
    queue.receive(1)[0].reject("no")
    assert texts(queue.receive(1)) == [(b"good", 1)]
    assert (letters.tried, queue.flush()) == (1, False)
    clock.sleep(ordered_queue.DEAD_LETTER_RETRY_S)
    assert queue.receive(0, 0) == []
    assert (letters.tried, queue.flush()) == (2, False)
    clock.sleep(ordered_queue.DEAD_LETTER_RETRY_S)
    assert queue.flush()
    assert letters.kept == [b"bad"]
    assert set(group.committed) == {1}


def test_flush_waits_for_the_commit_and_tells_where_it_was_refused(opened: Opened, group: Group) -> None:
    """A group that went on without us is no success, nor is a coordinator that is away."""
    group.log = [b"done"]
    queue = opened({})
    queue.receive(1)[0].ack()
    group.failing = [KafkaError.ILLEGAL_GENERATION]
    assert not queue.flush()
    group.failing = [KafkaError.COORDINATOR_NOT_AVAILABLE]
    with pytest.raises(BrokerUnreachableError):
        queue.flush()
    assert queue.flush()
    assert group.committed == [1]


def test_a_commit_that_fails_in_the_background_is_made_again(
    opened: Opened, group: Group, clock: HandClock
) -> None:
    """Also where nothing more is finished; the application's own `on_commit` is called as well."""
    group.log, told = [b"one"], Mock()
    queue = opened({"on_commit": told})
    queue.receive(1)[0].ack()
    for _ in range(3):
        clock.sleep(ordered_queue.ORDERED_COMMIT_INTERVAL_S)
        queue.receive(0, 0)
    assert group.committed == [1]
    failed = (KafkaError(KafkaError.NOT_COORDINATOR), [RawPartition("t", 0, 1)])
    group.config["on_commit"](*failed)
    told.assert_called_once_with(*failed)
    for _ in range(3):
        clock.sleep(ordered_queue.ORDERED_COMMIT_INTERVAL_S)
        queue.receive(0, 0)
    assert group.committed == [1, 1]


def test_at_most_once_reads_only_what_is_new_again_when_its_commit_fails(
    opened: Opened, group: Group
) -> None:
    """A retried message waits with its count; what was over before stays over."""
    group.log = [b"retried", b"over", b"of the same key", b"new"]
    queue = opened({"trimtab.queue.guarantee": "at-most-once"})
    first, over = queue.receive(4)
    first.retry()
    over.ack()
    group.failing = [KafkaError.REBALANCE_IN_PROGRESS]
    assert queue.receive(4) == []
    assert texts(queue.receive(4)) == [(b"retried", 2)]
    assert texts(queue.receive(4)) == [(b"of the same key", 1), (b"new", 1)]
    assert group.committed == [2, 4]


@pytest.mark.parametrize("code", [KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError._TIMED_OUT])
def test_a_coordinator_that_is_away_is_a_named_error_that_passes(
    code: int, opened: Opened, group: Group
) -> None:
    """A worker waits for it; what does not pass stays KafkaException and ends the worker."""
    group.log = [b"one"]
    queue = opened({"trimtab.queue.guarantee": "at-most-once"})
    group.failing = [KafkaError.GROUP_AUTHORIZATION_FAILED, code]
    with pytest.raises(BrokerUnreachableError, match="nowhere:1") as away:
        queue.receive(1)
    assert away.value.retryable
    with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
        queue.receive(1)
    assert texts(queue.receive(1)) == [(b"one", 1)]


def test_kafka_pythons_word_on_what_passes_is_kept() -> None:
    """The group is kept by kafka-python, whose errors are translated."""
    assert to_confluent_error(CoordinatorNotAvailableError()).retriable()
    assert not to_confluent_error(GroupAuthorizationFailedError()).retriable()


def test_what_waits_to_be_tried_again_goes_with_its_partition(opened: Opened, group: Group) -> None:
    """A retry that is due when its partition is taken away is its next owner's."""
    group.log = [b"a"]
    queue = opened({})
    (message,) = queue.receive(1)
    message.retry()
    assert queue.receive(0, 0) == []  # it is due now
    group.callbacks[2](group, group.assignment())
    group.log = []
    assert queue.receive(1) == []
