"""What is said of `kmq`'s messages becomes markers, whatever else is said, and soon."""

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message

from trimtab.common.clock import SystemClock
from trimtab.consumer_sdk.errors import InvalidDelayError
from trimtab.consumer_sdk.queues import Retry, queue_worker
from trimtab.consumer_sdk.queues.durable_producer import (
    DeliveryCallback,
    DurableProducer,
    ProducerRecord,
)
from trimtab.consumer_sdk.queues.kmq.delivered_batch import DeliveredBatch
from trimtab.consumer_sdk.queues.kmq.marker_writer import MarkerWriter, build_markers
from trimtab.consumer_sdk.queues.kmq.markers import Marker, MarkerKind, OffsetRanges, decode_marker
from trimtab.consumer_sdk.queues.message import QueueMessage
from trimtab.consumer_sdk.queues.settlement import SettlementAction, SettlementRequest

Eventually = Callable[..., None]


class Kept(DurableProducer):
    """A writer that keeps markers in a list; those of partition 1 it cannot write."""

    def __init__(self) -> None:
        self.markers: list[Marker] = []
        self.refusing = ""

    def send_async(self, record: ProducerRecord, on_delivery: DeliveryCallback) -> None:
        on_delivery(record, self.refusing)
        if record.partition == 1:
            raise ValueError("not this one")
        self.markers.append(decode_marker(record.value or b""))

    def poll(self) -> None:
        """Do nothing: every receipt has been given."""

    def flush(self, timeout: float) -> bool:
        del timeout
        return True


class Interrupted(DeliveredBatch):
    """A batch one of whose messages is given back just before the settler looks at its board."""

    def pop_acknowledged(self) -> Mapping[int, OffsetRanges]:
        self[1].retry()
        return super().pop_acknowledged()


@pytest.fixture
def kept() -> Kept:
    """Return where markers land."""
    return Kept()


@pytest.fixture
def settler(kept: Kept) -> Iterator[MarkerWriter]:
    """Return a settler, and close it."""
    made = MarkerWriter("t.g.markers", kept, SystemClock())
    yield made
    made.close()


def batch(settler: MarkerWriter, partition: int = 0) -> DeliveredBatch:
    """Return three messages in work."""
    return DeliveredBatch(raws(partition), [1] * 3, settler.now() + 60, settler)


def raws(partition: int = 0) -> list[Message]:
    """Return three messages of a partition."""
    return [Message(topic="t", partition=partition, offset=at, value=b"x") for at in range(3)]


def test_flush_tells_once_of_a_marker_that_was_refused(settler: MarkerWriter, kept: Kept) -> None:
    """What the broker did not take is not kept, however long one waits."""
    kept.refusing = "not allowed"
    batch(settler)[0].reject("no")
    assert not settler.flush(1)
    assert settler.flush(1)


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -math.inf, -1, 1e306])
def test_what_is_no_time_is_refused_where_it_is_said(
    seconds: float, settler: MarkerWriter, kept: Kept
) -> None:
    """The caller hears of it, the message stays open, and nothing is written."""
    message = batch(settler)[0]
    with pytest.raises(InvalidDelayError, match="no time to wait"):
        message.retry(seconds)
    with pytest.raises(InvalidDelayError):
        message.extend(seconds)
    with pytest.raises(InvalidDelayError):
        Retry(seconds)
    with pytest.raises(InvalidDelayError):
        queue_worker(retry_delay=seconds)
    assert not message.settled
    settler.flush(1)
    assert kept.markers == []


@pytest.mark.parametrize(
    ("reason", "written"),
    [(ValueError("oops"), "oops"), (Path("a/b"), "a/b"), ("file \udcff", "file ?"), (7, "7")],
)
def test_any_reason_is_kept_as_text(
    reason: object, written: str, settler: MarkerWriter, kept: Kept
) -> None:
    """An exception is the reason that people have in hand; what cannot be encoded is replaced."""
    batch(settler)[0].reject(reason)
    settler.flush(1)
    assert [(m.kind, m.reason) for m in kept.markers] == [(MarkerKind.REJECT, written)]


def test_a_marker_that_cannot_be_written_stops_no_other(
    settler: MarkerWriter, kept: Kept, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told in the log; the thread goes on, with those of the same turn and of later ones."""
    batch(settler, partition=1)[0].retry()
    batch(settler)[0].ack()
    eventually(lambda: len(kept.markers) == 1)
    batch(settler)[1].ack()
    eventually(lambda: len(kept.markers) == 2)
    assert "a marker for partition 1 of t.g.markers is lost" in caplog.text


def test_what_is_said_while_the_settler_looks_is_written_too(
    settler: MarkerWriter, kept: Kept, eventually: Eventually
) -> None:
    """A batch that has woken the settler does not wake it twice; its queue is quiet afterwards."""
    Interrupted(raws(), [1] * 3, settler.now() + 60, settler)[0].ack()
    eventually(lambda: [m.kind for m in kept.markers] == [MarkerKind.RETRY, MarkerKind.END])


def test_batches_that_are_acknowledged_in_any_order_are_one_marker() -> None:
    """A later batch may wake the settler first, and one offset be in two of them."""
    later, sooner = {0: ((100, 150),)}, {0: ((5, 5), (7, 9), (100, 101))}
    ((_, told),) = build_markers([], [later, sooner, {0: ((6, 6),)}])
    assert decode_marker(told.encode()).ranges == ((5, 9), (100, 150))


def test_an_offset_that_is_told_twice_claims_no_other() -> None:
    """Extended twice, next to another one: what lies between them is nobody's."""
    heard: Any = None
    said = SettlementRequest(SettlementAction.EXTEND, 30.0)

    def message(offset: int) -> QueueMessage:
        return QueueMessage(Message(topic="t", partition=0, offset=offset), 1, None, heard)

    ((_, told),) = build_markers([(message(n), said, False) for n in (5, 5, 7)], [])
    assert told.ranges == ((5, 5), (7, 7))
