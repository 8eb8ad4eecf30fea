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
from functools import partial
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple, Self

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as RawPartition

from trimtab.common.clock import Clock, SystemClock
from trimtab.consumer_sdk.consumer.consumer import Consumer
from trimtab.consumer_sdk.queues import message_headers, topics
from trimtab.consumer_sdk.queues.durable_producer import (
    TOO_LARGE_REASON,
    DurableProducer,
    ProducerRecord,
    write_or_shorten,
)
from trimtab.consumer_sdk.queues.kmq.kmq_queue import KMQ_WRITE_TIMEOUT_S
from trimtab.consumer_sdk.queues.message import QueueMessage
from trimtab.consumer_sdk.queues.message_fetch import (
    close_on_error,
    commit_if_member,
    convert_transient_errors,
    fetch_messages,
    rewind_messages,
)
from trimtab.consumer_sdk.queues.ordered.key_ordering import KeyOrdering
from trimtab.consumer_sdk.queues.redelivery_decision import strip_value
from trimtab.consumer_sdk.queues.settings import parse_queue_settings
from trimtab.consumer_sdk.queues.settlement import SettlementAction, SettlementRequest

log = logging.getLogger("trimtab.queues")

PARTITION_WINDOW: Final = 5000
"""Maximum of messages held of one partition."""

HANDOVER_TIMEOUT_S: Final = 5.0
"""Maximum seconds that a revocation waits for messages in flight."""

ORDERED_COMMIT_INTERVAL_S: Final = 1.0
"""Seconds between two commits."""

IN_FLIGHT_POLL_SLICE_S: Final = 0.005
"""Seconds of one wait while messages in flight hold back others: other threads settle them."""

DEAD_LETTER_RETRY_S: Final = 1.0
"""Seconds until a dead letter that is not stored is written again."""


class _PendingSettlement(NamedTuple):
    message: QueueMessage
    request: SettlementRequest


class OrderedQueue:
    """Worker of an `ordered` queue.

    Raises SettingError, QueueTopicMismatchError, MissingAclError, BrokerUnreachableError.
    """

    notify_on_ack = True

    def __init__(self, topic: str, config: Mapping[str, Any], *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._settings = parse_queue_settings(topic, config)
        topics.prepare_queue_topics(
            topics.create_admin_client(self._settings), self._settings, self._clock, with_markers=False
        )
        self._producer = DurableProducer(self._settings.client_config, self._clock)
        self._orderings: dict[int, KeyOrdering[Message]] = {}
        self._in_flight: dict[QueueMessage, KeyOrdering[Message]] = {}
        self._settlements: deque[_PendingSettlement] = deque()
        # Heap of retries and dead letters by due time; the number keeps ties from being compared.
        self._scheduled: list[tuple[float, int, _PendingSettlement]] = []
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
            self._settlements.append(_PendingSettlement(message, request))

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
        return (
            stored
            and committed
            and all(settlement.request.action is SettlementAction.RETRY for *_, settlement in self._scheduled)
        )

    def close(self) -> None:
        """Wait `HANDOVER_TIMEOUT_S` for messages in flight, commit, leave the group. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
        for raw in fetch_messages(self._consumer, max_messages, wait):
            partition = int(raw.partition() or 0)
            self._orderings[partition].add_message(int(raw.offset() or 0), raw.key(), raw)

    def _pause_full_partitions(self) -> None:
        topic = self._settings.topic
        full = {p for p, held in self._orderings.items() if len(held) >= PARTITION_WINDOW}
        drained = {
            p
            for p in self._paused_partitions
            if p in self._orderings and len(self._orderings[p]) < PARTITION_WINDOW // 2
        }
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
        """Commit before delivery if at most once; return False if out of the group.

        Raises KafkaException for other failures. In both cases the delivery is undone.
        """
        if not self._settings.at_most_once:
            return True
        try:
            committed = self._commit_sync()
        except KafkaException:
            self._undo_delivery(messages)
            raise
        if not committed:
            self._undo_delivery(messages)
        return committed

    def _undo_delivery(self, undelivered: Sequence[QueueMessage]) -> None:
        """Undo a delivery before the application sees it: read new messages again."""
        new: defaultdict[int, list[QueueMessage]] = defaultdict(list)
        for message in reversed(undelivered):
            ordering = self._in_flight.pop(message)
            if message.delivery == 1:
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
        """Apply settlements, collect due retries, commit once per interval."""
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

    def _apply_settlement(self, settlement: _PendingSettlement) -> None:
        message, request = settlement
        if request.action is SettlementAction.ACK:
            self._finish_message(message)
        elif request.action is SettlementAction.REJECT:
            self._send_dead_letter(message, request.reason or request.action.value)
        elif message.delivery >= self._settings.max_deliveries:
            self._send_dead_letter(
                message, f"delivered {message.delivery} times, the last delivery ended by retry"
            )
        else:
            self._schedule_settlement(settlement, request.seconds)

    def _schedule_settlement(self, settlement: _PendingSettlement, seconds: float) -> None:
        self._heap_sequence += 1
        heappush(self._scheduled, (self._clock.monotonic() + seconds, self._heap_sequence, settlement))

    def _finish_message(self, message: QueueMessage) -> None:
        self._in_flight.pop(message).finish_message(message.offset)

    def _send_dead_letter(self, message: QueueMessage, reason: str) -> None:
        more: dict[str, str | int] = {
            message_headers.GROUP_HEADER: self._settings.group,
            message_headers.DELIVERY_HEADER: message.delivery,
            message_headers.REASON_HEADER: reason,
        }
        record = ProducerRecord(
            self._settings.dead_letter_topic,
            message.partition,
            message.value,
            message.key,
            message_headers.build_forwarded_headers(message.raw, more),
        )
        self._producer.send_async(record, partial(self._on_dead_letter, message, reason))

    def _on_dead_letter(
        self, message: QueueMessage, reason: str, record: ProducerRecord, failure: str
    ) -> None:
        if not failure:
            self._settlements.append(_PendingSettlement(message, SettlementRequest(SettlementAction.ACK)))
        elif failure == TOO_LARGE_REASON:
            # A delivery report's callback must not write and wait: `_process_settlements` does.
            self._oversized.append((message, reason, record))
        else:
            self._retry_dead_letter(message, reason, failure)

    def _retry_dead_letter(self, message: QueueMessage, reason: str, failure: str) -> None:
        log.warning("%r: dead letter not stored: %s; retrying", message, failure)
        self._schedule_settlement(
            _PendingSettlement(message, SettlementRequest(SettlementAction.REJECT, reason=reason)),
            DEAD_LETTER_RETRY_S,
        )

    def _write_shortened(self, message: QueueMessage, reason: str, record: ProducerRecord) -> None:
        """Write a dead letter that was refused for its or its batch's size, if need be shortened.

        Otherwise it would be retried for ever, and block the commit of its partition.
        """
        _, failed = write_or_shorten(
            lambda records: self._producer.write_and_wait(records, KMQ_WRITE_TIMEOUT_S),
            [record],
            lambda _: strip_value(record),
        )
        self._on_dead_letter(message, reason, record, failed.get(0, ""))

    # -- the group --------------------------------------------------------------------------------

    def _on_assign(self, _: Consumer, partitions: Sequence[RawPartition]) -> None:
        for partition in partitions:
            self._orderings[partition.partition] = KeyOrdering(strict=self._settings.at_most_once)

    def _on_revoke(self, _: Consumer, partitions: Sequence[RawPartition]) -> None:
        revoked = {p.partition: self._orderings[p.partition] for p in partitions}
        for ordering in revoked.values():
            ordering.discard_waiting()
        deadline = self._clock.monotonic() + HANDOVER_TIMEOUT_S
        while (
            any(ordering.in_flight_count for ordering in revoked.values())
            and self._clock.monotonic() < deadline
        ):
            self._process_settlements()
            self._clock.sleep(IN_FLIGHT_POLL_SLICE_S)
        self._process_settlements()
        for partition in revoked:
            self._committed_offsets.pop(partition, None)  # an asynchronous commit may have failed
        try:
            self._commit_finished(revoked, wait=True)
        except KafkaException as error:
            log.warning(
                "%s: final commit failed: %s; the next owner reads the messages again",
                self._settings.topic,
                error.args[0].str(),
            )
        self._drop_partitions(partitions)

    def _on_lost(self, _: Consumer, partitions: Sequence[RawPartition]) -> None:
        self._drop_partitions(partitions)

    def _drop_partitions(self, partitions: Iterable[RawPartition]) -> None:
        dropped = [self._orderings.pop(p.partition, None) for p in partitions]
        for p in partitions:
            self._committed_offsets.pop(p.partition, None)
            self._paused_partitions.discard(p.partition)
        self._in_flight = {
            message: ordering for message, ordering in self._in_flight.items() if ordering not in dropped
        }
        self._due_retries = deque(m for m in self._due_retries if m in self._in_flight)

    def _on_commit(self, error: KafkaError | None, offsets: Sequence[RawPartition]) -> None:
        if error is not None:  # forget them, so that the next interval commits them again
            for p in offsets:
                self._committed_offsets.pop(p.partition, None)
        application_callback = self._settings.consumer_config.get("on_commit")
        if application_callback is not None:
            application_callback(error, offsets)

    def _commit_sync(self) -> bool:
        """Commit and wait; return False if out of the group. Raises KafkaException."""
        return commit_if_member(
            self._settings.topic, lambda: self._commit_finished(self._orderings, wait=True)
        )

    def _commit_finished(self, partitions: Iterable[int], *, wait: bool = False) -> None:
        committable = {p: self._orderings[p].committable_offset for p in partitions}
        advanced = {
            p: offset for p, offset in committable.items() if offset > self._committed_offsets.get(p, 0)
        }
        if not advanced:
            return
        offsets = [RawPartition(self._settings.topic, p, offset) for p, offset in advanced.items()]
        self._consumer.commit(offsets=offsets, asynchronous=not wait)
        self._committed_offsets.update(advanced)
