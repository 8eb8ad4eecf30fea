"""Settlements of `kmq` become markers, in the background, in any order and number."""

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message

from trimtab.common.clock import SystemClock
from trimtab.consumer_sdk.errors import InvalidDelayError
from trimtab.consumer_sdk.queues import Retry, queue_worker
from trimtab.consumer_sdk.queues.durable_producer import DeliveryCallback, DurableProducer, ProducerRecord
from trimtab.consumer_sdk.queues.kmq.delivered_batch import DeliveredBatch
from trimtab.consumer_sdk.queues.kmq.marker_writer import MarkerWriter, build_markers
from trimtab.consumer_sdk.queues.kmq.markers import Marker, MarkerKind, OffsetRanges, decode_marker
from trimtab.consumer_sdk.queues.message import QueueMessage
from trimtab.consumer_sdk.queues.settings import parse_queue_settings
from trimtab.consumer_sdk.queues.settlement import SettlementAction, SettlementRequest

Eventually = Callable[..., None]
QUEUE = parse_queue_settings("t", {"bootstrap.servers": "localhost:1", "group.id": "g"})


class MarkerCollector(DurableProducer):
    """Producer that collects markers in a list and fails for partition 1."""

    def __init__(self) -> None:
        self.markers: list[Marker] = []
        self.refusing = ""

    def send_async(self, record: ProducerRecord, on_delivery: DeliveryCallback) -> None:
        on_delivery(record, self.refusing)
        if record.partition == 1:
            raise ValueError("not this one")
        self.markers.append(decode_marker(record.value or b""))

    def poll(self) -> None:
        """Do nothing: `send_async` has called every callback."""

    def flush(self, timeout: float) -> bool:
        del timeout
        return True


class InterruptedBatch(DeliveredBatch):
    """Batch with a retry just before the writer collects its acknowledgements."""

    def pop_acknowledged(self) -> Mapping[int, OffsetRanges]:
        self[1].retry()
        return super().pop_acknowledged()


@pytest.fixture
def collector() -> MarkerCollector:
    """Return the producer of markers."""
    return MarkerCollector()


@pytest.fixture
def writer(collector: MarkerCollector) -> Iterator[MarkerWriter]:
    """Return a marker writer, and close it."""
    made = MarkerWriter(QUEUE, collector, SystemClock())
    yield made
    made.close()


def batch(writer: MarkerWriter, partition: int = 0) -> DeliveredBatch:
    """Return three messages in flight."""
    return DeliveredBatch(raws(partition), [1] * 3, writer.now() + 60, writer)


def raws(partition: int = 0) -> list[Message]:
    """Return three messages of a partition."""
    return [Message(topic="t", partition=partition, offset=at, value=b"x") for at in range(3)]


def test_flush_reports_a_refused_marker_once(writer: MarkerWriter, collector: MarkerCollector) -> None:
    """A refused marker makes one flush return False."""
    collector.refusing = "not allowed"
    batch(writer)[0].reject("no")
    assert not writer.flush(1)
    assert writer.flush(1)


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -math.inf, -1, 1e306])
def test_an_invalid_delay_is_refused_by_the_call(
    seconds: float, writer: MarkerWriter, collector: MarkerCollector
) -> None:
    """The caller gets an error, the message stays unsettled, and no marker is written."""
    message = batch(writer)[0]
    with pytest.raises(InvalidDelayError, match="no time to wait"):
        message.retry(seconds)
    with pytest.raises(InvalidDelayError):
        message.extend(seconds)
    with pytest.raises(InvalidDelayError):
        Retry(seconds)
    with pytest.raises(InvalidDelayError):
        queue_worker(retry_delay=seconds)
    assert not message.settled
    writer.flush(1)
    assert collector.markers == []


@pytest.mark.parametrize(
    ("reason", "written"),
    [(ValueError("oops"), "oops"), (Path("a/b"), "a/b"), ("file \udcff", "file ?"), (7, "7")],
)
def test_any_reason_is_stored_as_text(
    reason: object, written: str, writer: MarkerWriter, collector: MarkerCollector
) -> None:
    """Exceptions are stored as text; characters that cannot be encoded are replaced."""
    batch(writer)[0].reject(reason)
    writer.flush(1)
    assert [(m.kind, m.reason) for m in collector.markers] == [(MarkerKind.REJECT, written)]


def test_a_marker_that_cannot_be_written_stops_no_other(
    writer: MarkerWriter, collector: MarkerCollector, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and the thread writes the other markers, now and later."""
    batch(writer, partition=1)[0].retry()
    batch(writer)[0].ack()
    eventually(lambda: len(collector.markers) == 1)
    batch(writer)[1].ack()
    eventually(lambda: len(collector.markers) == 2)
    assert "a marker for partition 1 of t.g.markers is lost" in caplog.text


def test_a_settlement_while_acknowledgements_are_collected_is_written(
    writer: MarkerWriter, collector: MarkerCollector, eventually: Eventually
) -> None:
    """A batch wakes the writer once; a settlement meanwhile is not lost."""
    InterruptedBatch(raws(), [1] * 3, writer.now() + 60, writer)[0].ack()
    eventually(lambda: [m.kind for m in collector.markers] == [MarkerKind.RETRY, MarkerKind.END])


def test_batches_acknowledged_in_any_order_are_one_marker() -> None:
    """A later batch may wake the writer first, and two batches share an offset."""
    later, sooner = {0: ((100, 150),)}, {0: ((5, 5), (7, 9), (100, 101))}
    ((_, marker),) = build_markers([], [later, sooner, {0: ((6, 6),)}])
    assert decode_marker(marker.encode()).ranges == ((5, 9), (100, 150))


def test_an_offset_settled_twice_covers_no_other() -> None:
    """Two extensions of one message leave the offsets next to it alone."""
    unused_settler: Any = None
    request = SettlementRequest(SettlementAction.EXTEND, 30.0)

    def message(offset: int) -> QueueMessage:
        return QueueMessage(Message(topic="t", partition=0, offset=offset), 1, None, unused_settler)

    ((_, marker),) = build_markers([(message(n), request, False) for n in (5, 5, 7)], [])
    assert marker.ranges == ((5, 5), (7, 7))
