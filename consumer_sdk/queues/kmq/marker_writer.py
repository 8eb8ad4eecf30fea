"""Writes settlements to the markers topic in the background, many messages per marker.

Any thread may call `on_acknowledged` and `on_settled`, which never wait. If a marker is not stored,
its messages are redelivered.
"""

import logging
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from threading import Event, Lock, Thread
from typing import Final, TypeAlias, TypeVar

from trimtab.common.clock import Clock
from trimtab.consumer_sdk.queues.durable_producer import DurableProducer, ProducerRecord, log_unwritten_marker
from trimtab.consumer_sdk.queues.kmq.delivered_batch import DeliveredBatch
from trimtab.consumer_sdk.queues.kmq.markers import (
    MAX_REASON_CHARS,
    Marker,
    MarkerKind,
    OffsetRanges,
    build_marker_record,
    merge_ranges,
    to_ranges,
)
from trimtab.consumer_sdk.queues.message import QueueMessage
from trimtab.consumer_sdk.queues.settings import QueueSettings
from trimtab.consumer_sdk.queues.settlement import ACK_REQUEST, SettlementAction, SettlementRequest

ItemT = TypeVar("ItemT")

log = logging.getLogger("trimtab.queues")

MARKER_LINGER_S: Final = 0.1  # settlements share a marker: each costs worker, broker and tracker CPU
RecordedSettlement: TypeAlias = tuple[QueueMessage, SettlementRequest, bool]  # the bool: after the deadline


class MarkerWriter:
    """Background thread that writes markers. Thread-safe."""

    def __init__(self, settings: QueueSettings, producer: DurableProducer, clock: Clock) -> None:
        self.now = clock.monotonic
        self._settings = settings
        self._producer = producer
        self._acknowledged_batches: deque[DeliveredBatch] = deque()
        self._settlements: deque[RecordedSettlement] = deque()
        self._wake_up = Event()
        self._closing = Event()
        self._write_lock = Lock()
        self._any_refused = False  # since the last flush
        self._thread = Thread(target=self._write_until_closed, name="trimtab-marker-writer", daemon=True)
        self._thread.start()

    def on_acknowledged(self, batch: DeliveredBatch) -> None:
        """Wake the thread for a batch with new settlements."""
        self._acknowledged_batches.append(batch)
        self._wake_up.set()

    def on_settled(self, message: QueueMessage, request: SettlementRequest, late: bool) -> None:  # noqa: FBT001
        """Record a settlement; `on_acknowledged` follows."""
        self._settlements.append((message, request, late))

    def flush(self, timeout: float) -> bool:
        """Write all settlements and wait; return False on timeout or if a marker was refused."""
        self._write_markers()
        stored = self._producer.flush(timeout)
        refused, self._any_refused = self._any_refused, False
        return stored and not refused

    def close(self) -> None:
        """Pass all settlements to the producer and end the thread."""
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
            # After `pop_acknowledged`, from which on a settlement wakes the thread again.
            settlements = _pop_all(self._settlements)
            _log_late_messages([message for message, _, late in settlements if late])
            for partition, marker in build_markers(settlements, ended):
                self._send_marker(partition, marker)
        self._producer.poll()

    def _on_written(self, record: ProducerRecord, failure: str) -> None:
        self._any_refused = self._any_refused or bool(failure)
        log_unwritten_marker(record, failure)

    def _send_marker(self, partition: int, marker: Marker) -> None:
        try:
            record = build_marker_record(self._settings, partition, marker)
            self._producer.send_async(record, self._on_written)
        except Exception:  # redelivers one marker's messages; a dead thread would redeliver all
            name = self._settings.markers_topic
            log.exception("a marker for partition %d of %s is lost", partition, name)


def _pop_all(items: deque[ItemT]) -> list[ItemT]:
    # Not until it is empty: other threads add items meanwhile.
    return [items.popleft() for _ in range(len(items))]


def build_markers(
    settlements: Iterable[RecordedSettlement], acknowledged: Iterable[Mapping[int, OffsetRanges]]
) -> list[tuple[int, Marker]]:
    """Return the fewest markers for these settlements, with their partitions; end markers last."""
    groups: defaultdict[tuple[int, SettlementRequest], list[int]] = defaultdict(list)
    for message, request, _ in settlements:
        if request is not ACK_REQUEST:
            groups[message.partition, request].append(message.offset)
    ended: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for batch in acknowledged:
        for partition, ranges in batch.items():
            ended[partition] += ranges
    return [
        *((partition, _build_marker(request, offsets)) for (partition, request), offsets in groups.items()),
        *((partition, Marker(MarkerKind.END, merge_ranges(ranges))) for partition, ranges in ended.items()),
    ]


def _build_marker(request: SettlementRequest, offsets: Sequence[int]) -> Marker:
    kind = MarkerKind(request.action.value)  # retry, reject and extend have the same names in both
    # An acknowledgement before an extended deadline reaches the topic that much later.
    linger = MARKER_LINGER_S if request.action is SettlementAction.EXTEND else 0.0
    delay_ms = round((request.seconds + linger) * 1000)
    reason = request.reason[:MAX_REASON_CHARS]
    return Marker(kind, to_ranges(set(offsets)), delay_ms, reason=reason)


def _log_late_messages(late: list[QueueMessage]) -> None:
    if late:
        text = "%d messages were settled after their deadline, the first at offset %d of partition %d; %s"
        advice = "they may be redelivered: raise trimtab.queue.timeout, or extend() them"
        log.warning(text, len(late), late[0].offset, late[0].partition, advice)
