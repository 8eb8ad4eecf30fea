"""`ordered`: a classic group that processes messages in parallel, in order by key.

`key_ordering` decides which messages may be delivered and committed. The rules here:

1. At least once (the default): commit up to the first unfinished message every second, when a
   partition is revoked, and on close. At most once: commit before a message is delivered.
2. When a partition is revoked, wait `HANDOVER_TIMEOUT_S` seconds at most for its messages in
   flight; its next owner reads the others.
3. Retries and the delivery count live in this process. A message that is rejected, or has reached
   `max.deliveries`, is finished when its dead letter is stored. A dead letter that is not stored
   is written again; one that is too large for its topic is written without its value.
4. A partition is paused while `PARTITION_WINDOW` of its messages are held.
"""

import logging
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from heapq import heappop, heappush
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as RawPartition

from trimtab.common.clock import Clock, SystemClock
from trimtab.common.units import format_count
from trimtab.consumer_sdk.consumer.consumer import Consumer
from trimtab.consumer_sdk.queues import topics
from trimtab.consumer_sdk.queues.durable_producer import (
    TOO_LARGE_REASON,
    DurableProducer,
    ProducerRecord,
    write_or_shorten,
)
from trimtab.consumer_sdk.queues.kmq.kmq_queue import KMQ_WRITE_TIMEOUT_S
from trimtab.consumer_sdk.queues.kmq.redelivery_decision import strip_value
from trimtab.consumer_sdk.queues.message import QueueMessage
from trimtab.consumer_sdk.queues.message_fetch import (
    close_on_error,
    commit_if_member,
    convert_transient_errors,
    fetch_messages,
    rewind_messages,
    rewind_on_error,
)
from trimtab.consumer_sdk.queues.message_headers import (
    DELIVERY_HEADER,
    GROUP_HEADER,
    REASON_HEADER,
    build_forwarded_headers,
)
from trimtab.consumer_sdk.queues.message_queue import MessageQueue, QueuedSettlement
from trimtab.consumer_sdk.queues.ordered.key_ordering import KeyOrdering
from trimtab.consumer_sdk.queues.queue_spans import open_queue_spans
from trimtab.consumer_sdk.queues.settings import check_kind, parse_queue_settings
from trimtab.consumer_sdk.queues.settlement import ACK_REQUEST, SettlementAction, SettlementRequest

log = logging.getLogger("trimtab.queues")

PARTITION_WINDOW: Final = 5000  # bounds memory while the messages of a slow key wait
HANDOVER_TIMEOUT_S: Final = 5.0  # a revocation blocks the rebalance of the whole group
ORDERED_COMMIT_INTERVAL_S: Final = 1.0  # a crash repeats this much
IN_FLIGHT_POLL_SLICE_S: Final = 0.005  # settlements of other threads may make held messages deliverable
DEAD_LETTER_RETRY_S: Final = 1.0  # until a dead letter that is not stored is written again


class OrderedQueue(MessageQueue):
    """Worker of an `ordered` queue.

    Raises SettingError, QueueTopicMismatchError, MissingAclError, BrokerUnreachableError.
    """

    notify_on_ack = True  # an acknowledged message lets the next one of its key go

    def __init__(self, topic: str, config: Mapping[str, Any], *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._settings = parse_queue_settings(topic, config)
        check_kind("ordered", self._settings, config)
        self._spans = open_queue_spans(self._settings, self._clock)
        client = topics.create_admin_client(self._settings)
        self._partition_count = topics.prepare_queue_topics(
            client, self._settings, self._clock, with_markers=False
        )
        self._producer = DurableProducer(self._settings.client_config, self._clock)
        self._orderings: dict[int, KeyOrdering[Message]] = {}
        self._in_flight: dict[QueueMessage, KeyOrdering[Message]] = {}
        self._settlements: deque[QueuedSettlement] = deque()
        # Heap of retries and dead letters by due time; the number keeps ties from being compared.
        self._scheduled: list[tuple[float, int, QueuedSettlement]] = []
        self._due_retries: deque[QueueMessage] = deque()
        self._oversized: deque[tuple[QueueMessage, str, ProducerRecord]] = deque()  # dead letters
        self._paused_partitions: set[int] = set()
        self._heap_sequence = 0
        self._next_commit_at = 0.0
        self._committed_offsets: dict[int, int] = {}
        self._closed = False
        config = {**self._settings.consumer_config, "on_commit": self._on_commit}
        self._consumer = Consumer(config, clock=self._clock)
        with close_on_error(self):
            self._consumer.subscribe([topic], self._on_assign, self._on_revoke, self._on_lost)

    def receive(self, max: int = 100, wait: float = 1.0) -> list[QueueMessage]:  # noqa: A002
        """Return up to `max` messages once any is available, none after `wait` seconds.

        Raises BrokerUnreachableError for transient failures, and the errors of `Consumer`.
        """
        with convert_transient_errors(self._settings.bootstrap):
            return self._receive_until(max, self._clock.monotonic() + wait)

    def now(self) -> float:
        """Return the seconds of the monotonic clock."""
        return self._clock.monotonic()

    def settle(self, message: QueueMessage, request: SettlementRequest, late: bool) -> None:  # noqa: ARG002, FBT001
        """Record a settlement; an extension has no effect, since there is no deadline."""
        if request.action is not SettlementAction.EXTEND:
            self._settlements.append(QueuedSettlement(message, request))

    def trace_processing(self, message: QueueMessage) -> AbstractContextManager[None]:
        """Return a block whose span processes a message; it does nothing without `trimtab.telemetry`."""
        return self._spans.trace_delivery(message.raw, message.delivery)

    def flush(self, timeout: float = 30.0) -> bool:
        """Commit finished messages and wait; return False while dead letters are not stored.

        False too if this member is out of the group. Raises BrokerUnreachableError, KafkaException.
        """
        with convert_transient_errors(self._settings.bootstrap):
            self._process_settlements()
            stored = self._producer.flush(timeout)
            self._process_settlements()
            self._committed_offsets.clear()  # an asynchronous commit may have failed
            committed = self._commit_sync()
        scheduled = {settlement.request.action for *_, settlement in self._scheduled}
        return stored and committed and scheduled <= {SettlementAction.RETRY}  # else a dead letter is open

    def close(self) -> None:
        """Wait `HANDOVER_TIMEOUT_S` for messages in flight, commit, leave the group. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._consumer.close()

    # -- reading ----------------------------------------------------------------------------------

    def _receive_until(self, max_messages: int, deadline: float) -> list[QueueMessage]:
        while True:
            self._process_settlements()
            messages = self._deliver_ready(max_messages)
            left = deadline - self._clock.monotonic()
            if messages or left <= 0:
                break
            self._read_messages(max_messages, min(left, IN_FLIGHT_POLL_SLICE_S if self._in_flight else left))
        if not messages:
            return []
        return messages if self._commit_before_delivery(messages) else []

    def _read_messages(self, max_messages: int, wait: float) -> None:
        self._pause_full_partitions()
        unread = deque(fetch_messages(self._consumer, max_messages, wait))
        with rewind_on_error(self._consumer, unread):
            while unread:
                raw = unread[0]
                partition = int(raw.partition() or 0)
                self._orderings[partition].add_message(int(raw.offset() or 0), raw.key(), raw)
                unread.popleft()  # last: interrupted, it is delivered twice rather than never

    def _pause_full_partitions(self) -> None:
        topic = self._settings.topic
        full = {p for p, held in self._orderings.items() if len(held) >= PARTITION_WINDOW}
        # At half of the window, so that a partition is not paused and resumed for each message.
        low = {p for p, held in self._orderings.items() if len(held) < PARTITION_WINDOW // 2}
        drained = self._paused_partitions & low
        if full - self._paused_partitions:
            self._consumer.pause([RawPartition(topic, p) for p in full - self._paused_partitions])
        if drained:
            self._consumer.resume([RawPartition(topic, p) for p in drained])
        self._paused_partitions = (self._paused_partitions | full) - drained

    def _deliver_ready(self, max_messages: int) -> list[QueueMessage]:
        messages: list[QueueMessage] = []
        while self._due_retries and len(messages) < max_messages:
            previous = self._due_retries.popleft()
            messages.append(QueueMessage(previous.raw, previous.delivery + 1, None, self))
            self._in_flight[messages[-1]] = self._in_flight.pop(previous)
        for ordering in self._orderings.values():
            for raw in ordering.release_ready(max_messages - len(messages)):
                messages.append(QueueMessage(raw, 1, None, self))
                self._in_flight[messages[-1]] = ordering
        return messages

    def _commit_before_delivery(self, messages: Sequence[QueueMessage]) -> bool:
        if not self._settings.at_most_once:
            return True
        try:
            committed = self._commit_sync()
        except BaseException:  # Ctrl-C, too
            self._undo_delivery(messages)
            raise
        if not committed:  # out of the group
            self._undo_delivery(messages)
        return committed

    def _undo_delivery(self, undelivered: Sequence[QueueMessage]) -> None:
        new: defaultdict[int, list[QueueMessage]] = defaultdict(list)
        for message in reversed(undelivered):
            ordering = self._in_flight.pop(message)
            if message.delivery == 1:  # read again
                new[message.partition].insert(0, message)
            else:
                # The offset of a retry was committed before its first delivery: keep it here.
                previous = QueueMessage(message.raw, message.delivery - 1, None, self)
                self._in_flight[previous] = ordering
                self._due_retries.appendleft(previous)
        for partition, messages in new.items():
            self._orderings[partition].undo_release([message.offset for message in messages])
            rewind_messages(self._consumer, [message.raw for message in messages])

    # -- settling ---------------------------------------------------------------------------------

    def _process_settlements(self) -> None:
        self._producer.poll()
        while self._oversized:
            self._write_shortened(*self._oversized.popleft())
        while self._settlements:
            settlement = self._settlements.popleft()
            if settlement.message in self._in_flight:  # else its partition has another owner
                self._apply_settlement(settlement)
        now = self._clock.monotonic()
        while self._scheduled and self._scheduled[0][0] <= now:
            message, request = settlement = heappop(self._scheduled)[2]
            if message in self._in_flight and request.action is SettlementAction.RETRY:
                self._due_retries.append(message)
            elif message in self._in_flight:
                self._apply_settlement(settlement)
        if now >= self._next_commit_at and not self._settings.at_most_once:
            self._next_commit_at = now + ORDERED_COMMIT_INTERVAL_S
            self._commit_finished(self._orderings)

    def _apply_settlement(self, settlement: QueuedSettlement) -> None:
        message, request = settlement
        if request.action is SettlementAction.ACK:
            self._in_flight.pop(message).finish_message(message.offset)
        elif request.action is SettlementAction.REJECT:
            self._send_dead_letter(message, request.reason or request.action.value)
        elif message.delivery >= self._settings.max_deliveries:
            reason = f"delivered {format_count(message.delivery, 'time')}, the last delivery ended by retry"
            self._send_dead_letter(message, reason)
        else:
            self._schedule(settlement, request.seconds)

    def _schedule(self, settlement: QueuedSettlement, seconds: float) -> None:
        self._heap_sequence += 1
        heappush(self._scheduled, (self._clock.monotonic() + seconds, self._heap_sequence, settlement))

    def _send_dead_letter(self, message: QueueMessage, reason: str) -> None:
        topic = self._settings.dead_letter_topic
        group = self._settings.group
        delivery = str(message.delivery)
        more = {GROUP_HEADER: group, DELIVERY_HEADER: delivery, REASON_HEADER: reason}
        headers = build_forwarded_headers(message.raw, more)
        record = ProducerRecord(topic, message.partition, message.value, message.key, headers)
        self._producer.send_async(record, partial(self._on_dead_letter, message, reason))

    def _on_dead_letter(
        self, message: QueueMessage, reason: str, record: ProducerRecord, failure: str
    ) -> None:
        if not failure:
            self._settlements.append(QueuedSettlement(message, ACK_REQUEST))
        elif failure == TOO_LARGE_REASON:
            # A delivery report's callback must not write and wait: `_process_settlements` does.
            self._oversized.append((message, reason, record))
        else:
            log.warning("%r: dead letter not stored: %s; retrying", message, failure)
            request = SettlementRequest(SettlementAction.REJECT, reason=reason)
            self._schedule(QueuedSettlement(message, request), DEAD_LETTER_RETRY_S)

    def _write_shortened(self, message: QueueMessage, reason: str, record: ProducerRecord) -> None:
        # Its batch may have been too large instead. Retried as it is, it would block the partition's commit.
        write = partial(self._producer.write_and_wait, timeout=KMQ_WRITE_TIMEOUT_S)
        _, failed = write_or_shorten(write, [record], lambda _: strip_value(record, message.raw))
        self._on_dead_letter(message, reason, record, failed.get(0, ""))

    # -- the group --------------------------------------------------------------------------------

    def _on_assign(self, _: Consumer, partitions: Sequence[RawPartition]) -> None:
        if any(p.partition >= self._partition_count for p in partitions):  # for their dead letters
            count = topics.add_missing_partitions(self._settings, self._clock, with_markers=False)
            self._partition_count = max(self._partition_count, count)
        for partition in partitions:
            self._orderings[partition.partition] = KeyOrdering(strict=self._settings.at_most_once)

    def _on_revoke(self, _: Consumer, partitions: Sequence[RawPartition]) -> None:
        revoked = {p.partition: self._orderings[p.partition] for p in partitions}
        for ordering in revoked.values():
            ordering.discard_waiting()
        deadline = self._clock.monotonic() + HANDOVER_TIMEOUT_S
        while any(o.in_flight_count for o in revoked.values()) and self._clock.monotonic() < deadline:
            self._process_settlements()
            self._clock.sleep(IN_FLIGHT_POLL_SLICE_S)
        self._process_settlements()
        for partition in revoked:
            self._committed_offsets.pop(partition, None)  # an asynchronous commit may have failed
        try:
            self._commit_finished(revoked, wait=True)
        except KafkaException as error:
            topic = self._settings.topic
            reason = error.args[0].str()
            log.warning("%s: final commit failed: %s; the next owner reads the messages again", topic, reason)
        self._drop_partitions(partitions)

    def _on_lost(self, _: Consumer, partitions: Sequence[RawPartition]) -> None:
        self._drop_partitions(partitions)

    def _drop_partitions(self, partitions: Iterable[RawPartition]) -> None:
        dropped = [self._orderings.pop(p.partition, None) for p in partitions]
        for p in partitions:
            self._committed_offsets.pop(p.partition, None)
            self._paused_partitions.discard(p.partition)
        self._in_flight = {m: ordering for m, ordering in self._in_flight.items() if ordering not in dropped}
        self._due_retries = deque(m for m in self._due_retries if m in self._in_flight)

    def _on_commit(self, error: KafkaError | None, offsets: Sequence[RawPartition]) -> None:
        if error is not None:  # forget them, so that the next interval commits them again
            for p in offsets:
                self._committed_offsets.pop(p.partition, None)
        application_callback = self._settings.consumer_config.get("on_commit")
        if application_callback is not None:
            application_callback(error, offsets)

    def _commit_sync(self) -> bool:
        commit = partial(self._commit_finished, self._orderings, wait=True)
        return commit_if_member(self._settings.topic, commit)

    def _commit_finished(self, partitions: Iterable[int], *, wait: bool = False) -> None:
        committable = {p: self._orderings[p].committable_offset for p in partitions}
        committed = self._committed_offsets
        advanced = {p: offset for p, offset in committable.items() if offset > committed.get(p, 0)}
        if not advanced:
            return
        offsets = [RawPartition(self._settings.topic, p, offset) for p, offset in advanced.items()]
        self._consumer.commit(offsets=offsets, asynchronous=not wait)
        committed.update(advanced)
