"""Writes what workers say of their messages, in the background, many messages to a marker.

`on_acknowledged` and `on_settled` may be called by any thread and never wait. A thread writes what has been said
every few milliseconds. A marker that is not kept is no loss: its messages come back.
"""

import logging
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from threading import Event, Lock, Thread
from typing import Final, TypeAlias, TypeVar

from trimtab.common.clock import Clock
from trimtab.consumer_sdk.queues.durable_producer import (
    DurableProducer,
    ProducerRecord,
    log_unwritten_marker,
)
from trimtab.consumer_sdk.queues.kmq.delivered_batch import DeliveredBatch
from trimtab.consumer_sdk.queues.kmq.markers import (
    Marker,
    MarkerKind,
    OffsetRanges,
    merge_ranges,
    to_ranges,
)
from trimtab.consumer_sdk.queues.message import QueueMessage
from trimtab.consumer_sdk.queues.settlement import ACK_REQUEST, SettlementAction, SettlementRequest

ItemT = TypeVar("ItemT")

log = logging.getLogger("trimtab.queues")

MARKER_LINGER_S: Final = 0.1
"""Seconds that a marker waits for company; each takes the worker, the broker and a tracker time."""

MAX_REASON_CHARS: Final = 1000
"""Characters of a reason that are kept."""

MARKER_KINDS: Final = {
    SettlementAction.RETRY: MarkerKind.RETRY,
    SettlementAction.REJECT: MarkerKind.REJECT,
    SettlementAction.EXTEND: MarkerKind.EXTEND,
}


RecordedSettlement: TypeAlias = tuple[QueueMessage, SettlementRequest, bool]
"""A message, what was said of it, and whether it was late."""


class MarkerWriter:
    """The thread, and what it has to write."""

    def __init__(self, markers_topic: str, producer: DurableProducer, clock: Clock) -> None:
        self.now = clock.monotonic
        self._markers_topic = markers_topic
        self._producer = producer
        self._acknowledged_batches: deque[DeliveredBatch] = deque()
        self._settlements: deque[RecordedSettlement] = deque()
        self._wake_up = Event()
        self._closing = Event()
        self._write_lock = Lock()
        self._any_refused = False  # a marker, since the last flush
        self._thread = Thread(target=self._write_until_closed, name="trimtab-settler", daemon=True)
        self._thread.start()

    def on_acknowledged(self, batch: DeliveredBatch) -> None:
        """Hear that something of a batch was said."""
        self._acknowledged_batches.append(batch)
        self._wake_up.set()

    def on_settled(self, message: QueueMessage, request: SettlementRequest, late: bool) -> None:  # noqa: FBT001
        """Take note of what was said of a message; `on_acknowledged` follows."""
        self._settlements.append((message, request, late))

    def flush(self, timeout: float) -> bool:
        """Write everything noted and wait until it is kept; False too for what was refused."""
        self._write_markers()
        kept = self._producer.flush(timeout)
        refused, self._any_refused = self._any_refused, False
        return kept and not refused

    def close(self) -> None:
        """End the thread; everything noted is handed to the writer."""
        self._closing.set()
        self._wake_up.set()
        self._thread.join()

    def _write_until_closed(self) -> None:
        while not self._closing.is_set():
            self._wake_up.wait()
            self._wake_up.clear()
            self._closing.wait(MARKER_LINGER_S)
            self._write_markers()
        self._write_markers()

    def _write_markers(self) -> None:
        with self._write_lock:
            ended = [batch.pop_acknowledged() for batch in _pop_all(self._acknowledged_batches)]
            noted = _pop_all(
                self._settlements
            )  # the batches are attentive: what comes now wakes us
            _log_late_messages([message for message, _, late in noted if late])
            for partition, marker in build_markers(noted, ended):
                self._send_marker(partition, marker)
        self._producer.poll()

    def _on_written(self, record: ProducerRecord, failure: str) -> None:
        self._any_refused = self._any_refused or bool(failure)
        log_unwritten_marker(record, failure)

    def _send_marker(self, partition: int, marker: Marker) -> None:
        try:
            self._producer.send_async(
                ProducerRecord(self._markers_topic, partition, marker.encode()), self._on_written
            )
        except Exception:  # one marker's messages come back; without the thread all of them would
            log.exception("a marker for partition %d of %s is lost", partition, self._markers_topic)


def _pop_all(waiting: deque[ItemT]) -> list[ItemT]:
    """Return what there is now, and no more."""
    return [waiting.popleft() for _ in range(len(waiting))]


def build_markers(
    settlements: Iterable[RecordedSettlement], acknowledged: Iterable[Mapping[int, OffsetRanges]]
) -> list[tuple[int, Marker]]:
    """Return as few markers as say all of it, by partition; what ends a message comes last."""
    groups: defaultdict[tuple[int, SettlementRequest], list[int]] = defaultdict(list)
    for message, said, _ in settlements:
        if said is not ACK_REQUEST:
            groups[message.partition, said].append(message.offset)
    ended: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for batch in acknowledged:
        for partition, ranges in batch.items():
            ended[partition] += ranges
    return [
        *(
            (
                partition,
                Marker(
                    MARKER_KINDS[w.action],
                    to_ranges(set(of)),
                    _delay_ms(w),
                    reason=w.reason[:MAX_REASON_CHARS],
                ),
            )
            for (partition, w), of in groups.items()
        ),
        *(
            (partition, Marker(MarkerKind.END, merge_ranges(ranges)))
            for partition, ranges in ended.items()
        ),
    ]


def _delay_ms(request: SettlementRequest) -> int:
    slack = (
        MARKER_LINGER_S if request.action is SettlementAction.EXTEND else 0.0
    )  # an answer in time is written that late
    return round((request.seconds + slack) * 1000)


def _log_late_messages(late: list[QueueMessage]) -> None:
    if late:
        log.warning(
            "%d messages were settled after their deadline, one of them offset %d of partition %d; "
            "they may be delivered again: raise trimtab.queue.timeout, or extend() them",
            len(late),
            late[0].offset,
            late[0].partition,
        )
