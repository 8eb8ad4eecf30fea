"""Messages that `receive` has fetched and does not return are read again, whatever ends it."""

from collections.abc import Sequence
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import Message
from confluent_kafka import TopicPartition as RawPartition

from trimtab.consumer_sdk.queues.durable_producer import ProducerRecord
from trimtab.consumer_sdk.queues.kmq import kmq_queue
from trimtab.consumer_sdk.queues.kmq.kmq_queue import KmqQueue
from trimtab.consumer_sdk.queues.message_fetch import fetch_messages
from trimtab.consumer_sdk.queues.ordered import ordered_queue
from trimtab.consumer_sdk.queues.ordered.key_ordering import KeyOrdering
from trimtab.consumer_sdk.queues.ordered.ordered_queue import OrderedQueue

CONFIG = {"bootstrap.servers": "nowhere:1", "group.id": "g"}


class Log:
    """Fake consumer of one partition with ten messages; its call number `interrupted` raises."""

    def __init__(self, interrupted: int = 0) -> None:
        self.at = 0
        self.calls = 0
        self.committed: list[int] = []
        self._interrupted = interrupted

    def __call__(self, *_: Any, **__: Any) -> "Log":
        """Stand in for the class."""
        return self

    def subscribe(self, topics: Sequence[str], assign: Any = None, *_: Any) -> None:
        if assign is not None:
            assign(self, [RawPartition(topics[0], 0)])

    def assignment(self) -> list[RawPartition]:
        return [RawPartition("t", 0)]

    def consume(self, most: int, wait: float) -> list[Message]:
        del wait
        self.calls += 1
        if self.calls == self._interrupted:
            raise KeyboardInterrupt
        found = range(self.at, min(self.at + most, 10))
        self.at = max([self.at, *(offset + 1 for offset in found)])
        return [Message(topic="t", partition=0, offset=offset, value=b"x") for offset in found]

    def seek(self, partition: RawPartition) -> None:
        self.at = partition.offset

    def commit(self, offsets: Sequence[RawPartition], asynchronous: bool) -> None:  # noqa: FBT001
        del asynchronous
        self.committed += [p.offset for p in offsets]


def test_an_interrupted_fetch_is_rewound() -> None:
    """Ctrl-C in the second of two fetches does not skip the messages of the first."""
    log: Any = Log(interrupted=2)
    with pytest.raises(KeyboardInterrupt):
        fetch_messages(log, 5, 0)
    assert [raw.offset() for raw in fetch_messages(log, 5, 0)] == [0, 1, 2, 3, 4]


def test_kmq_delivers_after_an_interruption_what_it_had_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the start markers are written commits nothing, and skips nothing."""
    log, written = Log(), Mock(side_effect=[KeyboardInterrupt, {}])
    monkeypatch.setattr(kmq_queue, "Consumer", log)
    monkeypatch.setattr(kmq_queue, "DurableProducer", Mock(return_value=Mock(write_and_wait=written)))
    monkeypatch.setattr(kmq_queue, "MarkerWriter", Mock())
    monkeypatch.setattr(kmq_queue, "topics", Mock(prepare_queue_topics=Mock(return_value=1)))
    queue = KmqQueue("t", CONFIG)
    with pytest.raises(KeyboardInterrupt):
        queue.receive(3)
    assert log.committed == []
    assert [message.offset for message in queue.receive(3)] == [0, 1, 2]
    assert log.committed == [3]
    ((record,), *_), _ = written.call_args
    assert isinstance(record, ProducerRecord)
    assert record.key == b"t/g"


def test_ordered_delivers_after_an_interruption_what_it_had_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C between a fetch and its bookkeeping leaves no gap below the committed offset."""
    monkeypatch.setattr(ordered_queue, "Consumer", Log())
    monkeypatch.setattr(ordered_queue, "DurableProducer", Mock())
    monkeypatch.setattr(ordered_queue, "topics", Mock(prepare_queue_topics=Mock(return_value=1)))
    queue = OrderedQueue("t", CONFIG)
    monkeypatch.setattr(KeyOrdering, "add_message", interrupt_once(KeyOrdering.add_message, at=2))
    with pytest.raises(KeyboardInterrupt):
        queue.receive(3)
    assert [message.offset for message in queue.receive(9)] == [0, 1]
    assert [message.offset for message in queue.receive(9)] == [2, 3, 4, 5, 6, 7, 8, 9]


def interrupt_once(function: Any, at: int) -> Any:
    """Return a method that is interrupted at its call for one offset, once."""
    interrupts = [KeyboardInterrupt]

    def call(self: Any, offset: int, *rest: Any) -> None:
        if offset == at and interrupts:
            raise interrupts.pop()
        function(self, offset, *rest)

    return call
