"""Message lookup: a message counts as deleted only if the log proves it."""

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
    """A message or an error event of a consumer."""

    def __init__(self, offset: int, error: KafkaError | None = None) -> None:
        self._offset, self._error = offset, error

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError | None:
        return self._error


class Broker:
    """Consumer with these events, one list per start offset."""

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


def open_lookup(broker: Broker, monkeypatch: pytest.MonkeyPatch, **config: str) -> MessageLookup:
    monkeypatch.setattr(message_lookup, "DataConsumer", broker)
    monkeypatch.setattr(message_lookup, "LOOKUP_TIMEOUT_S", 0.2)
    return MessageLookup("orders", config, SystemClock())


def test_an_offset_beyond_the_known_end_is_not_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end only passed offsets are deleted; the others stay unknown."""
    broker = Broker((3, 10), {5: [Event(5), Event(8, EOF)]})
    result = open_lookup(broker, monkeypatch).read_messages(0, [1, 5, 6, 8, 9])
    assert (set(result.messages), result.deleted) == ({5}, {1, 6})


def test_a_passed_offset_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next message, or the end, shows what compaction deleted."""
    broker = Broker((0, 9), {1: [Event(4), Event(5)]})
    result = open_lookup(broker, monkeypatch).read_messages(0, [1, 2, 5])
    assert (set(result.messages), result.deleted) == ({5}, {1, 2})


def test_lookups_read_from_leaders_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower's end may lag: the tracker's rack is left out."""
    broker = Broker((0, 0), {})
    open_lookup(broker, monkeypatch, **{"client.rack": "a", "client.id": "me"})
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
    """The log includes its start offset and excludes its end offset."""
    assert split_by_log_range([2, 4, 9], low, high) == parts


def test_an_offset_beyond_the_end_blocks_no_other_and_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In a recreated topic present messages are read, missing ones wait and are logged."""
    broker = Broker((3, 7), {4: [Event(4)], 9000: [Event(9000, OUT_OF_RANGE)]})
    lookup = open_lookup(broker, monkeypatch)
    for _ in range(2):
        result = lookup.read_messages(0, [1, 4, 9000])
        assert (set(result.messages), result.deleted) == ({4}, {1})
    assert caplog.text.count("beyond the log's end (7)") == 1


def test_offsets_beyond_the_end_are_logged_once_a_minute_and_partition(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They are looked up in many parts, again and again; an empty log has an end, too."""
    clock = SystemClock()
    monkeypatch.setattr(message_lookup, "DataConsumer", Broker((0, 0), {}))
    lookup = MessageLookup("orders", {}, clock)
    for now, count in ((5.0, 2), (64.0, 2), (65.0, 4)):
        monkeypatch.setattr(clock, "monotonic", lambda now=now: now)
        for partition, first in ((0, 100), (0, 200), (1, 100)):
            lookup.read_messages(partition, range(first, first + 100))
        assert caplog.text.count("beyond the log's end (0)") == count


def test_a_run_out_of_range_blocks_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If retention is faster, only that run stays unknown, and the log names it."""
    broker = Broker((0, 9001), {4: [Event(4, OUT_OF_RANGE)], 9000: [Event(9000)]})
    result = open_lookup(broker, monkeypatch).read_messages(0, [4, 5, 9000])
    assert (set(result.messages), result.deleted) == ({9000}, set())
    assert "orders-0, offsets 4 to 5" in caplog.text
