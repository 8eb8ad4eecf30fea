"""`ordered`: a classic group whose messages are finished in any order, in parallel by key.

`lanes` says what may be handed out and committed. The rules here:

1. At least once (the default): committed is what is finished without a gap, every second, when a
   partition goes, and at the end. At most once: committed before a message is handed out.
2. A partition that is taken away is waited for, `HANDOVER_TIMEOUT_S` seconds at most, until what is in work
   of it is over; the rest is read by its next owner.
3. A retry and the delivery count live in this process. What has failed too often, or is rejected,
   is finished when its dead letter is kept; one that is not kept is tried again, and one that its
   topic never takes goes there without its value.
4. A partition is paused while `PARTITION_WINDOW` of its messages are held.
"""

import logging
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple, Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Message as Raw
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
"""Messages of a partition that are held at most."""

HANDOVER_TIMEOUT_S: Final = 5.0
"""Seconds that a partition which goes waits for what is in work of it."""

ORDERED_COMMIT_INTERVAL_S: Final = 1.0
"""Seconds between two commits."""

IN_WORK_POLL_SLICE_S: Final = 0.005
"""Seconds of one wait while others may settle what holds the next message back."""

DEAD_LETTER_RETRY_S: Final = 1.0
"""Seconds until a dead letter that is not kept is tried again."""


class _PendingSettlement(NamedTuple):
    message: QueueMessage
    request: SettlementRequest


class OrderedQueue:
    """A worker's side. Raises SettingError, QueueTopicMismatchError, BrokerUnreachableError."""

    notify_on_ack = True

    def __init__(
        self, topic: str, config: Mapping[str, Any], *, clock: Clock | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        self._settings = parse_queue_settings(topic, config)
        topics.prepare_queue_topics(
            topics.create_admin_client(self._settings),
            self._settings,
            self._clock,
            with_markers=False,
        )
        self._producer = DurableProducer(self._settings.client_config, self._clock)
        self._orderings: dict[int, KeyOrdering[Raw]] = {}
        self._in_work: dict[QueueMessage, KeyOrdering[Raw]] = {}
        self._settlements: deque[_PendingSettlement] = deque()
        self._scheduled: list[
            tuple[float, int, _PendingSettlement]
        ] = []  # retries, dead letters: by when due
        self._due_retries: deque[QueueMessage] = deque()  # retries that are due
        self._oversized: deque[tuple[QueueMessage, str, ProducerRecord]] = deque()  # dead letters
        self._paused_partitions: set[int] = set()
        self._heap_sequence = 0
        self._next_commit_at = 0.0
        self._committed_offsets: dict[int, int] = {}
        self._closed = False
        ours = {"on_commit": self._on_commit}
        self._consumer = Consumer({**self._settings.consumer_config, **ours}, clock=self._clock)
        with close_on_error(self):
            self._consumer.subscribe([topic], self._on_assign, self._on_revoke, self._on_lost)

    def receive(self, max: int = 100, wait: float = 1.0) -> list[QueueMessage]:  # noqa: A002
        """Return up to `max` messages as soon as there are any, none after `wait` seconds.

        Raises BrokerUnreachableError for what passes by itself, and what `Consumer` raises.
        """
        with convert_transient_errors(self._settings.bootstrap):
            return self._receive_until(max, self._clock.monotonic() + wait)

    def now(self) -> float:
        """Return seconds of the monotonic clock."""
        return self._clock.monotonic()

    def settle(self, message: QueueMessage, request: SettlementRequest, late: bool) -> None:  # noqa: ARG002, FBT001
        """Note what was said of a message; an extension means nothing, there is no deadline."""
        if request.action is not SettlementAction.EXTEND:
            self._settlements.append(_PendingSettlement(message, request))

    def flush(self, timeout: float = 30.0) -> bool:
        """Commit what is finished, and wait for it; False while dead letters are on their way.

        False too where the group went on without us. Raises BrokerUnreachableError, KafkaException.
        """
        with convert_transient_errors(self._settings.bootstrap):
            self._process_settlements()
            kept = self._producer.flush(timeout)
            self._process_settlements()
            self._committed_offsets.clear()  # what was sent in the background may have failed
            ours = self._commit_sync()
        return (
            kept
            and ours
            and all(n.request.action is SettlementAction.RETRY for *_, n in self._scheduled)
        )

    def close(self) -> None:
        """Wait for what is in work (`HANDOVER_TIMEOUT_S`), commit, leave the group; may be called twice."""
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
            taken = self._deliver_ready(max_messages)
            left = deadline - self._clock.monotonic()
            if taken or left <= 0:
                break
            self._read_messages(
                max_messages, min(left, IN_WORK_POLL_SLICE_S if self._in_work else left)
            )
        if not taken:
            return []
        return taken if self._commit_before_delivery(taken) else []

    def _read_messages(self, max_messages: int, wait: float) -> None:
        self._pause_full_partitions()
        for raw in fetch_messages(self._consumer, max_messages, wait):
            where = int(raw.partition() or 0)
            self._orderings[where].add_message(int(raw.offset() or 0), raw.key(), raw)

    def _pause_full_partitions(self) -> None:
        topic = self._settings.topic
        full = {p for p, lanes in self._orderings.items() if len(lanes) >= PARTITION_WINDOW}
        empty = {
            p
            for p in self._paused_partitions
            if p in self._orderings and len(self._orderings[p]) < PARTITION_WINDOW // 2
        }
        if full - self._paused_partitions:
            self._consumer.pause([RawPartition(topic, p) for p in full - self._paused_partitions])
        if empty:
            self._consumer.resume([RawPartition(topic, p) for p in empty])
        self._paused_partitions = (self._paused_partitions | full) - empty

    def _deliver_ready(self, max_messages: int) -> list[QueueMessage]:
        taken: list[QueueMessage] = []
        while self._due_retries and len(taken) < max_messages:
            old = self._due_retries.popleft()
            again = QueueMessage(old.raw, old.delivery + 1, None, self)
            taken.append(again)
            self._in_work[taken[-1]] = self._in_work.pop(old)
        for lanes in self._orderings.values():
            for raw in lanes.release_ready(max_messages - len(taken)):
                taken.append(QueueMessage(raw, 1, None, self))
                self._in_work[taken[-1]] = lanes
        return taken

    def _commit_before_delivery(self, messages: Sequence[QueueMessage]) -> bool:
        """At most once: commit before anything is handed out; False where it is not ours any more.

        Raises KafkaException for what does not pass by itself; nothing is handed out then either.
        """
        if not self._settings.at_most_once:
            return True
        try:
            ours = self._commit_sync()
        except KafkaException:
            self._undo_delivery(messages)
            raise
        if not ours:
            self._undo_delivery(messages)
        return ours

    def _undo_delivery(self, undelivered: Sequence[QueueMessage]) -> None:
        """Let messages go that were not handed out after all: what is new is read again.

        Retried ones are committed long since: they wait here again.
        """
        new: defaultdict[int, list[QueueMessage]] = defaultdict(list)
        for message in reversed(undelivered):
            lanes = self._in_work.pop(message)
            if message.delivery == 1:
                new[message.partition].insert(0, message)
            else:
                before = QueueMessage(message.raw, message.delivery - 1, None, self)
                self._in_work[before] = lanes
                self._due_retries.appendleft(before)
        for partition, messages in new.items():
            self._orderings[partition].undo_release([message.offset for message in messages])
            rewind_messages(self._consumer, [message.raw for message in messages])

    # -- settling ---------------------------------------------------------------------------------

    def _process_settlements(self) -> None:
        """Take in what was said, wake what is due, commit by the clock."""
        self._producer.poll()
        while self._oversized:
            self._write_shortened(*self._oversized.popleft())
        while self._settlements:
            noted = self._settlements.popleft()
            if noted.message in self._in_work:  # else its partition is somebody else's by now
                self._apply_settlement(noted)
        now = self._clock.monotonic()
        while self._scheduled and self._scheduled[0][0] <= now:
            message, said = noted = heappop(self._scheduled)[2]
            if message in self._in_work and said.action is SettlementAction.RETRY:
                self._due_retries.append(message)
            elif message in self._in_work:
                self._apply_settlement(noted)
        if now >= self._next_commit_at and not self._settings.at_most_once:
            self._next_commit_at = now + ORDERED_COMMIT_INTERVAL_S
            self._commit_finished(self._orderings)

    def _apply_settlement(self, settlement: _PendingSettlement) -> None:
        message, said = settlement
        if said.action is SettlementAction.ACK:
            self._finish_message(message)
        elif said.action is SettlementAction.REJECT:
            self._send_dead_letter(message, said.reason or said.action.value)
        elif message.delivery >= self._settings.max_deliveries:
            self._send_dead_letter(
                message, f"delivered {message.delivery} times, the last one retried"
            )
        else:
            self._schedule_settlement(settlement, said.seconds)

    def _schedule_settlement(self, settlement: _PendingSettlement, seconds: float) -> None:
        self._heap_sequence += 1
        heappush(
            self._scheduled, (self._clock.monotonic() + seconds, self._heap_sequence, settlement)
        )

    def _finish_message(self, message: QueueMessage) -> None:
        self._in_work.pop(message).finish_message(message.offset)

    def _send_dead_letter(self, message: QueueMessage, reason: str) -> None:
        more: dict[str, str | int] = {
            message_headers.GROUP_HEADER: self._settings.group,
            message_headers.DELIVERY_HEADER: message.delivery,
            message_headers.REASON_HEADER: reason,
        }
        passed = message_headers.build_forwarded_headers(message.raw, more)
        where = message.partition
        record = ProducerRecord(
            self._settings.dead_letter_topic, where, message.value, message.key, passed
        )
        self._producer.send_async(record, partial(self._on_dead_letter, message, reason))

    def _on_dead_letter(
        self, message: QueueMessage, reason: str, record: ProducerRecord, failure: str
    ) -> None:
        if not failure:
            self._settlements.append(
                _PendingSettlement(message, SettlementRequest(SettlementAction.ACK))
            )
        elif failure == TOO_LARGE_REASON:
            self._oversized.append((message, reason, record))  # not from here: this is a receipt
        else:
            self._retry_dead_letter(message, reason, failure)

    def _retry_dead_letter(self, message: QueueMessage, reason: str, failure: str) -> None:
        log.warning("a dead letter is not kept: %s; trying again", failure)
        self._schedule_settlement(
            _PendingSettlement(message, SettlementRequest(SettlementAction.REJECT, reason=reason)),
            DEAD_LETTER_RETRY_S,
        )

    def _write_shortened(self, message: QueueMessage, reason: str, record: ProducerRecord) -> None:
        """Keep a dead letter that was refused for its size, or its batch's, at last without value.

        Else it would be tried for ever, and nothing behind it be committed.
        """
        _, failed = write_or_shorten(
            lambda some: self._producer.write_and_wait(some, KMQ_WRITE_TIMEOUT_S),
            [record],
            lambda _: strip_value(record),
        )
        self._on_dead_letter(message, reason, record, failed.get(0, ""))

    # -- the group --------------------------------------------------------------------------------

    def _on_assign(self, _: Consumer, partitions: Sequence[RawPartition]) -> None:
        for partition in partitions:
            self._orderings[partition.partition] = KeyOrdering(strict=self._settings.at_most_once)

    def _on_revoke(self, _: Consumer, partitions: Sequence[RawPartition]) -> None:
        going = {p.partition: self._orderings[p.partition] for p in partitions}
        for lanes in going.values():
            lanes.discard_waiting()
        deadline = self._clock.monotonic() + HANDOVER_TIMEOUT_S
        while any(x.in_work_count for x in going.values()) and self._clock.monotonic() < deadline:
            self._process_settlements()
            self._clock.sleep(IN_WORK_POLL_SLICE_S)
        self._process_settlements()
        for partition in going:
            self._committed_offsets.pop(
                partition, None
            )  # what was sent in the background may have failed
        try:
            self._commit_finished(going, wait=True)
        except KafkaException as error:
            log.warning("the last commit failed: %s; others read it again", error.args[0].str())
        self._drop_partitions(partitions)

    def _on_lost(self, _: Consumer, partitions: Sequence[RawPartition]) -> None:
        self._drop_partitions(partitions)

    def _drop_partitions(self, partitions: Iterable[RawPartition]) -> None:
        gone = [self._orderings.pop(p.partition, None) for p in partitions]
        for p in partitions:
            self._committed_offsets.pop(p.partition, None)
            self._paused_partitions.discard(p.partition)
        self._in_work = {m: lanes for m, lanes in self._in_work.items() if lanes not in gone}
        self._due_retries = deque(m for m in self._due_retries if m in self._in_work)

    def _on_commit(self, error: KafkaError | None, offsets: Sequence[RawPartition]) -> None:
        if error is not None:  # it may have been the last one: the next turn commits them again
            for p in offsets:
                self._committed_offsets.pop(p.partition, None)
        theirs = self._settings.consumer_config.get("on_commit")
        if theirs is not None:
            theirs(error, offsets)

    def _commit_sync(self) -> bool:
        """Commit and wait; False where the group went on without us. Raises KafkaException."""
        return commit_if_member(
            self._settings.topic, lambda: self._commit_finished(self._orderings, wait=True)
        )

    def _commit_finished(self, partitions: Iterable[int], *, wait: bool = False) -> None:
        reached = {p: self._orderings[p].committable_offset for p in partitions}
        moved = {p: at for p, at in reached.items() if at > self._committed_offsets.get(p, 0)}
        if not moved:
            return
        offsets = [RawPartition(self._settings.topic, p, at) for p, at in moved.items()]
        self._consumer.commit(offsets=offsets, asynchronous=not wait)
        self._committed_offsets.update(moved)
