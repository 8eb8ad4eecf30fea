"""What a tracker reads once more: a message is given up only when the log shows that it is gone."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError

from trimtab.common.clock import SystemClock
from trimtab.consumer_sdk.queues.kmq import message_lookup
from trimtab.consumer_sdk.queues.kmq.message_lookup import MessageLookup, split_by_log_range

EOF = KafkaError(KafkaError._PARTITION_EOF)
OUT_OF_RANGE = KafkaError(KafkaError._AUTO_OFFSET_RESET)


class Event:
    """A message of a partition, or an error, as a consumer hands it out."""

    def __init__(self, offset: int, error: KafkaError | None = None) -> None:
        self._offset, self._error = offset, error

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError | None:
        return self._error


class Broker:
    """Answers with these events, one list for each place where reading begins."""

    def __init__(self, ends: tuple[int, int], events: Mapping[int, Sequence[Event]]) -> None:
        self._ends, self._events = ends, events
        self._next: deque[Event] = deque()
        self.config: Mapping[str, Any] = {}

    def __call__(self, config: Mapping[str, Any]) -> "Broker":
        self.config = config
        return self

    def get_watermark_offsets(self, *_: Any, **__: Any) -> tuple[int, int]:
        return self._ends

    def assign(self, partitions: Sequence[Any]) -> None:
        self._next = deque(self._events[partitions[0].offset])

    def unassign(self) -> None:
        self._next.clear()

    def consume(self, _: int, **__: Any) -> list[Event]:
        return [self._next.popleft()] if self._next else []


def reader(broker: Broker, monkeypatch: pytest.MonkeyPatch, **config: str) -> MessageLookup:
    monkeypatch.setattr(message_lookup, "DataConsumer", broker)
    monkeypatch.setattr(message_lookup, "LOOKUP_TIMEOUT_S", 0.2)
    return MessageLookup("orders", config, SystemClock())


def test_what_lies_behind_the_end_that_a_broker_knows_is_not_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the end only what was passed is gone; the rest is asked for again."""
    broker = Broker((3, 10), {5: [Event(5), Event(8, EOF)]})
    found = reader(broker, monkeypatch).read_messages(0, [1, 5, 6, 8, 9])
    assert (set(found.messages), found.deleted) == ({5}, {1, 6})


def test_a_message_that_a_later_one_shows_to_be_deleted_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What compaction took is passed by the next message, or by the end."""
    broker = Broker((0, 9), {1: [Event(4), Event(5)]})
    found = reader(broker, monkeypatch).read_messages(0, [1, 2, 5])
    assert (set(found.messages), found.deleted) == ({5}, {1, 2})


def test_followers_are_not_asked_for_what_is_delivered_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A follower's end may be behind: the rack of the tracker stays out."""
    broker = Broker((0, 0), {})
    reader(broker, monkeypatch, **{"client.rack": "a", "client.id": "me"})
    assert broker.config.get("client.id") == "me"
    assert "client.rack" not in broker.config


@pytest.mark.parametrize(
    ("low", "high", "parts"),
    [
        (0, 10, ([], [2, 4, 9], [])),
        (4, 9, ([2], [4], [9])),
        (10, 10, ([2, 4, 9], [], [])),
        (0, 0, ([], [], [2, 4, 9])),
    ],
)
def test_an_offset_is_below_the_log_in_it_or_beyond(
    low: int, high: int, parts: tuple[list[int], ...]
) -> None:
    """The log begins with its first offset and ends before the next one."""
    assert split_by_log_range([2, 4, 9], low, high) == parts


def test_an_offset_beyond_the_end_holds_up_no_other_and_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After a topic was made anew what is there is read, and what is not waits and is named."""
    broker = Broker((3, 7), {4: [Event(4)], 9000: [Event(9000, OUT_OF_RANGE)]})
    originals_ = reader(broker, monkeypatch)
    for _ in range(2):
        found = originals_.read_messages(0, [1, 4, 9000])
        assert (set(found.messages), found.deleted) == ({4}, {1})
    assert caplog.text.count("beyond the log's end (7)") == 1


def test_a_run_that_is_out_of_range_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where retention was faster only that run is asked for again, and the log says which."""
    broker = Broker((0, 9001), {4: [Event(4, OUT_OF_RANGE)], 9000: [Event(9000)]})
    found = reader(broker, monkeypatch).read_messages(0, [4, 5, 9000])
    assert (set(found.messages), found.deleted) == ({9000}, set())
    assert "orders-0, offsets 4 to 5" in caplog.text
