"""The redelivery tracker of a `kmq` queue: redelivers messages not settled before their deadline.

Several trackers form a group and share the markers topic's partitions. The rules:

1. `RedeliveryState` computes the due messages. A tracker redelivers them only after it has read
   its own tick in the partition, and with it every marker written before its assignment.
2. A partition's time is that of its newest marker. If a deadline should have come and no marker
   has been written since, the tracker writes a tick.
3. A due message is written to its topic or to the dead letters, and its end marker only when that
   is stored. A crash in between causes a duplicate, never a loss. A message too large for its
   topic becomes a dead letter without its value.
4. The tracker commits `safe_offset`, and deletes the markers below it. So the age of the oldest
   open message bounds the log, and no message is lost while no tracker runs. The commit's metadata
   has the numbers of open messages, which the sidecar reads to scale the workers.
"""

import logging
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from threading import Event
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as RawPartition

from trimtab.common.clock import Clock, SystemClock
from trimtab.common.errors import InvalidPayloadError
from trimtab.common.kmq_offset_metadata import OpenMessages
from trimtab.consumer_sdk.consumer.consumer import Consumer
from trimtab.consumer_sdk.queues import topics
from trimtab.consumer_sdk.queues.durable_producer import (
    DurableProducer,
    ProducerRecord,
    log_unwritten_marker,
    write_or_shorten,
)
from trimtab.consumer_sdk.queues.kmq.marker_retention import MarkerRetention
from trimtab.consumer_sdk.queues.kmq.markers import (
    Marker,
    MarkerKind,
    build_marker_record,
    decode_marker,
    to_ranges,
)
from trimtab.consumer_sdk.queues.kmq.message_lookup import MessageLookup
from trimtab.consumer_sdk.queues.kmq.redelivery_decision import (
    EXPIRED_REASON,
    build_lost_letter,
    build_redelivery,
    too_large_reason,
)
from trimtab.consumer_sdk.queues.kmq.redelivery_state import DueMessage, RedeliveryState
from trimtab.consumer_sdk.queues.message_fetch import LOST_MEMBERSHIP_ERRORS, record_log, repair_headers
from trimtab.consumer_sdk.queues.settings import MARKERS_SETTING, QueueSettings, check_kind

log = logging.getLogger("trimtab.queues")

MARKER_POLL_TIMEOUT_S: Final = 0.05
MAX_MARKERS_PER_POLL: Final = 2000  # bounds the delay of the ticks and redeliveries that follow
# Larger batches: a fetch response costs the broker as much as hundreds of markers.
MARKER_FETCH_CONFIG: Final = {"fetch.wait.max.ms": 100, "fetch.min.bytes": 20_000}
MAX_REDELIVERIES_PER_WRITE: Final = 1000  # bounds the memory of a backlog of due messages
TICK_INTERVAL_S: Final = 0.1  # also the delay of a redelivery in an idle partition
REDELIVERY_RETRY_MS: Final = 1000  # after a failed lookup or write
OPEN_MESSAGES_PER_RETRY: Final = 10_000  # of more, look-ups of missing ones are rarer: each takes CPU time
TRACKER_COMMIT_INTERVAL_S: Final = 1.0  # after a crash the next tracker reads these markers again
TRACKER_WRITE_TIMEOUT_S: Final = 10.0  # for the broker to store redeliveries


@dataclass(slots=True)
class RedeliveryCounts:
    """Messages that a tracker has redelivered, dead-lettered or failed to write."""

    redelivered: int = 0
    dead_lettered: int = 0
    failed: int = 0


@dataclass(slots=True)
class _TrackedPartition:
    """An assigned partition; times are of the monotonic clock."""

    tick_token: str  # marks its own ticks
    redelivery: RedeliveryState = field(default_factory=RedeliveryState)
    caught_up: bool = False  # its own tick has been read (rule 1)
    read_at: float = 0.0
    ticked_at: float = 0.0
    committed_offset: int = -1
    committed_metadata: str = ""

    @property
    def commit_metadata(self) -> str:
        """Numbers of open messages, encoded."""
        if not self.caught_up:  # not all of them are known
            return ""
        returned = self.redelivery.returned_count
        return OpenMessages(self.redelivery.next_offset, len(self.redelivery) - returned, returned).encode()


class RedeliveryTracker:
    """A redelivery tracker; applications call `run`. Not thread-safe.

    Raises UnsupportedQueueOperationError, QueueTopicMismatchError, MissingAclError,
    BrokerUnreachableError.
    """

    def __init__(self, settings: QueueSettings, *, clock: Clock | None = None) -> None:
        check_kind("kmq", settings)
        self.counts = RedeliveryCounts()
        self._clock = clock or SystemClock()
        self._settings = settings
        self._tracked: dict[int, _TrackedPartition] = {}
        self._next_commit_at = 0.0
        client = topics.create_admin_client(settings)
        self._partition_count = topics.prepare_queue_topics(client, settings, self._clock, with_markers=True)
        if topics.is_unknown_group(client, settings.group):
            advice = "if workers run, their group.id is another one and their messages are not redelivered"
            log.warning("group %r does not exist yet; %s", settings.group, advice)
        self._marker_retention = MarkerRetention(client, settings.markers_topic, self._clock)
        self._message_lookup = MessageLookup(settings.topic, settings.client_config, self._clock)
        self._producer = DurableProducer(settings.client_config, self._clock)
        config = {**MARKER_FETCH_CONFIG, **settings.consumer_config, "group.id": settings.tracker_group}
        self._consumer = Consumer({**config, "auto.offset.reset": "earliest"}, clock=self._clock)

    def run(self, stop: Event) -> None:
        """Track until `stop` is set, then commit and leave the group.

        Raises GroupMembershipError, and KafkaException for errors that are not transient.
        """
        settings = self._settings
        markers = settings.markers_topic
        names = (settings.topic, settings.group, markers, settings.tracker_group)
        log.info("tracking messages of topic %s in flight in group %s, by %s as group %s", *names)
        try:
            self._consumer.subscribe([markers], self._on_assign, self._on_revoke, self._on_lost)
            while not stop.is_set():
                self.run_iteration()
        finally:
            self.close()

    def run_iteration(self) -> None:
        """Read the available markers, redeliver due messages, commit once per interval."""
        # Of a backlog only the first part was redelivered in the last iteration.
        more_due = any(t.caught_up and t.redelivery.has_due for t in self._tracked.values())
        self._apply_markers(self._consumer.consume(1, 0 if more_due else MARKER_POLL_TIMEOUT_S))
        self._apply_markers(self._consumer.consume(MAX_MARKERS_PER_POLL, 0))
        for partition, tracked in list(self._tracked.items()):
            self._send_tick_if_due(partition, tracked)
            if tracked.caught_up:
                self._redeliver_due(partition, tracked)
        self._producer.poll()
        if self._clock.monotonic() >= self._next_commit_at:
            self._next_commit_at = self._clock.monotonic() + TRACKER_COMMIT_INTERVAL_S
            self._commit_safe_offsets(self._tracked)
            # Below the committed offset only: after a crash the next tracker reads from there.
            committed = {p: tracked.committed_offset for p, tracked in self._tracked.items()}
            self._marker_retention.delete_markers(committed)

    def close(self) -> None:
        """Commit, leave the group, close all clients."""
        self._consumer.close()
        self._message_lookup.close()
        self._producer.flush(TRACKER_WRITE_TIMEOUT_S)

    # -- the group --------------------------------------------------------------------------------

    def _on_assign(self, _: Consumer, partitions: Sequence[RawPartition]) -> None:
        if any(p.partition >= self._partition_count for p in partitions):  # dead letters, too
            count = topics.add_missing_partitions(self._settings, self._clock, with_markers=True)
            self._partition_count = max(self._partition_count, count)
        for partition in partitions:
            self._tracked[partition.partition] = _TrackedPartition(secrets.token_hex(8))

    def _on_revoke(self, consumer: Consumer, partitions: Sequence[RawPartition]) -> None:
        self._commit_safe_offsets([p.partition for p in partitions])
        self._on_lost(consumer, partitions)

    def _on_lost(self, _: Consumer, partitions: Sequence[RawPartition]) -> None:
        for partition in partitions:
            self._tracked.pop(partition.partition, None)

    def _commit_safe_offsets(self, partitions: Iterable[int]) -> None:
        changed: dict[int, tuple[int, str]] = {}
        for partition in sorted(self._tracked.keys() & partitions):
            tracked = self._tracked[partition]
            offset, metadata = tracked.redelivery.safe_offset, tracked.commit_metadata
            if offset > max(0, tracked.committed_offset) or metadata != tracked.committed_metadata:
                changed[partition] = offset, metadata
        if not changed:
            return
        topic = self._settings.markers_topic
        try:
            offsets = [RawPartition(topic, p, *position) for p, position in changed.items()]
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            cause: KafkaError = error.args[0]
            # The next commit, or the partition's next tracker, repeats it.
            transient = cause.code() in LOST_MEMBERSHIP_ERRORS or cause.retriable()
            level = logging.DEBUG if transient else logging.WARNING
            log.log(level, "the offsets of %s were not committed: %s", topic, cause.str())
            return
        for partition, (offset, metadata) in changed.items():
            self._tracked[partition].committed_offset = offset
            self._tracked[partition].committed_metadata = metadata

    # -- reading ----------------------------------------------------------------------------------

    def _apply_markers(self, raws: Sequence[Message]) -> None:
        for raw in raws:
            error = raw.error()
            tracked = self._tracked.get(int(raw.partition() or 0))
            if error is not None:
                log.warning("%s: %s", self._settings.markers_topic, error.str())
            elif tracked is not None:
                self._apply_marker(tracked, raw)

    def _apply_marker(self, tracked: _TrackedPartition, raw: Message) -> None:
        offset = int(raw.offset() or 0)
        _, appended_ms = raw.timestamp()
        try:
            marker = self._decode_marker(raw)
        except InvalidPayloadError as error:
            record_log.warning("%s-%s, offset %s: %s", raw.topic(), raw.partition(), offset, error)
            marker = Marker(MarkerKind.TICK)  # its append time is valid all the same
        tracked.redelivery.apply_marker(offset, appended_ms, marker)
        tracked.read_at = self._clock.monotonic()
        if marker.tracker_token == tracked.tick_token:
            tracked.caught_up = True

    def _decode_marker(self, raw: Message) -> Marker:
        key = raw.key() or self._settings.marker_key
        if key != self._settings.marker_key:
            own, names = self._settings.marker_key.decode(), key[:80]
            raise InvalidPayloadError(
                f"marker of the queue {names!r} among those of {own}: set {MARKERS_SETTING} in one of them"
            )
        return decode_marker(raw.value() or b"")

    def _send_tick_if_due(self, partition: int, tracked: _TrackedPartition) -> None:
        now = self._clock.monotonic()
        state = tracked.redelivery
        if now < tracked.ticked_at + (TICK_INTERVAL_S if tracked.caught_up else TRACKER_COMMIT_INTERVAL_S):
            return
        if tracked.caught_up:  # else it needs its own tick (rule 1)
            deadline = state.next_deadline_ms
            if deadline is None or deadline <= state.broker_time_ms:
                return
            # A newer marker tells the broker's time as well (rule 2).
            if now < tracked.read_at + (deadline - state.broker_time_ms) / 1000:
                return
        tracked.ticked_at = now
        tick = Marker(MarkerKind.TICK, tracker_token=tracked.tick_token)
        self._producer.send_async(build_marker_record(self._settings, partition, tick), log_unwritten_marker)

    # -- writing ----------------------------------------------------------------------------------

    def _redeliver_due(self, partition: int, tracked: _TrackedPartition) -> None:
        state = tracked.redelivery
        # In the order of the log, so that neighbours are read without a seek.
        due = sorted(state.pop_due(MAX_REDELIVERIES_PER_WRITE), key=attrgetter("offset"))
        if not due:
            return
        try:
            result = self._message_lookup.read_messages(partition, [message.offset for message in due])
        except KafkaException as error:
            record_log.warning("%s-%d: %s; retrying", self._settings.topic, partition, error)
            state.postpone_due(due, REDELIVERY_RETRY_MS)
            return
        repair_headers([*result.messages.values()])
        readable = [m for m in due if m.offset in result.messages]
        found = result.messages
        settings = self._settings
        records = [build_redelivery(m, found[m.offset], partition, settings) for m in readable]
        self._write_redeliveries(partition, state, readable, records)
        deleted = [m for m in due if m.offset in result.deleted]
        letters = [self._build_lost_letter(m, partition, EXPIRED_REASON) for m in deleted]
        self._write_redeliveries(partition, state, deleted, letters)
        known = result.messages.keys() | result.deleted
        retry_ms = REDELIVERY_RETRY_MS * max(1, len(state) // OPEN_MESSAGES_PER_RETRY)
        state.postpone_due([m for m in due if m.offset not in known], retry_ms)

    def _build_lost_letter(self, due: DueMessage, partition: int, reason: str) -> ProducerRecord:
        log.error("%s-%d, offset %d: %s", self._settings.topic, partition, due.offset, reason)
        return build_lost_letter(due, partition, self._settings, reason)

    def _write_redeliveries(
        self,
        partition: int,
        state: RedeliveryState,
        messages: Sequence[DueMessage],
        records: Sequence[ProducerRecord],
    ) -> None:
        def shorten(index: int) -> ProducerRecord:
            message = messages[index]
            return self._build_lost_letter(message, partition, too_large_reason(message, self._settings))

        if not messages:
            return
        written, failed = write_or_shorten(self._write, records, shorten)
        if failed:
            self.counts.failed += len(failed)
            reason = next(iter(failed.values()))
            log.warning("%d messages were not redelivered: %s; retrying", len(failed), reason)
            state.postpone_due([messages[index] for index in failed], REDELIVERY_RETRY_MS)
        stored = [index for index in range(len(written)) if index not in failed]
        redelivered = sum(written[index].topic == self._settings.topic for index in stored)
        self.counts.redelivered += redelivered
        self.counts.dead_lettered += len(stored) - redelivered
        self._write_end_marker(partition, state, [messages[index] for index in stored])

    def _write_end_marker(
        self, partition: int, state: RedeliveryState, messages: Sequence[DueMessage]
    ) -> None:
        if not messages:
            return
        end = Marker(MarkerKind.END, to_ranges(message.offset for message in messages))
        if self._write([build_marker_record(self._settings, partition, end)]):
            state.postpone_due(messages, REDELIVERY_RETRY_MS)  # a duplicate, no loss (rule 3)

    def _write(self, records: Sequence[ProducerRecord]) -> dict[int, str]:
        return self._producer.write_and_wait(records, TRACKER_WRITE_TIMEOUT_S)
