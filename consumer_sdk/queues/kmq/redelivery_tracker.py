"""The redelivery tracker of a `kmq` queue: what nobody settles in time comes back.

Several may run; they share the markers' partitions as any group of ours does. The rules:

1. The ledger (`redelivery`) says what is due. A tracker acts on it only after it has read back a tick
   of its own in the partition: then it knows everything that was written before it came.
2. The time of a partition is that of its newest marker. When a deadline seems to have come and
   nobody has written since, the tracker ticks.
3. A due message is written once more, or to the dead letters, and only when that is kept is its
   end marker written. In between a crash makes a second copy, never a hole. What its topic does
   not take, as it is too large, becomes a dead letter without its value.
4. Committed, and deleted from the markers topic, is what the ledger calls safe. So the log is
   bounded by the oldest open message, and nothing is lost however long no tracker runs. The
   commit's metadata tell how many messages are open, for whoever scales the workers.
"""

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from threading import Event
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka import Message as Raw
from confluent_kafka import TopicPartition as RawPartition

from trimtab.common.clock import Clock, SystemClock
from trimtab.common.errors import InvalidPayloadError
from trimtab.common.kmq_offset_metadata import OpenMessages
from trimtab.consumer_sdk.consumer.consumer import Consumer
from trimtab.consumer_sdk.queues import redelivery_decision, topics
from trimtab.consumer_sdk.queues.durable_producer import (
    DurableProducer,
    ProducerRecord,
    log_unwritten_marker,
    write_or_shorten,
)
from trimtab.consumer_sdk.queues.kmq.marker_retention import MarkerRetention
from trimtab.consumer_sdk.queues.kmq.markers import Marker, MarkerKind, decode_marker, to_ranges
from trimtab.consumer_sdk.queues.kmq.message_lookup import MessageLookup
from trimtab.consumer_sdk.queues.kmq.redelivery_state import DueMessage, RedeliveryState
from trimtab.consumer_sdk.queues.message_fetch import LOST_MEMBERSHIP_ERRORS
from trimtab.consumer_sdk.queues.settings import QueueSettings

log = logging.getLogger("trimtab.queues")

MARKER_POLL_TIMEOUT_S: Final = 0.05
"""Seconds of one wait for markers."""

MAX_MARKERS_PER_POLL: Final = 2000
"""Markers taken at once."""

MARKER_FETCH_CONFIG: Final = {"fetch.wait.max.ms": 100, "fetch.min.bytes": 20_000}
"""Markers wait for one another at the broker: each answer costs it as much as hundreds of them."""

MAX_REDELIVERIES_PER_WRITE: Final = 1000
"""Messages that are written again in one go."""

TICK_INTERVAL_S: Final = 0.1
"""Seconds between two ticks in a partition, while a deadline has come."""

REDELIVERY_RETRY_MS: Final = 1000
"""Milliseconds until what could not be written again is tried once more."""

TRACKER_COMMIT_INTERVAL_S: Final = 1.0
"""Seconds between two commits."""

TRACKER_WRITE_TIMEOUT_S: Final = 10.0
"""Seconds that messages may take to be kept."""


@dataclass(slots=True)
class RedeliveryCounts:
    """What a tracker has done so far."""

    redelivered: int = 0
    given_up: int = 0
    failed: int = 0


@dataclass(slots=True)
class _TrackedPartition:
    """A partition of ours; times are of the monotonic clock, `tick_token` is in our ticks."""

    tick_token: str
    redelivery: RedeliveryState = field(default_factory=RedeliveryState)
    caught_up: bool = False  # our own tick has been read
    read_at: float = 0.0
    ticked_at: float = 0.0
    committed_offset: int = -1
    committed_metadata: str = ""  # in the metadata of that commit

    @property
    def commit_metadata(self) -> str:
        """Return how many messages are open; nothing before all of them are known."""
        if not self.caught_up:
            return ""
        returned = self.redelivery.returned_count
        return OpenMessages(
            self.redelivery.next_offset, len(self.redelivery) - returned, returned
        ).encode()


class RedeliveryTracker:
    """One tracker; `run` is all that an application calls. Not thread-safe."""

    def __init__(self, settings: QueueSettings, *, clock: Clock | None = None) -> None:
        self.counts = RedeliveryCounts()
        self._clock = clock or SystemClock()
        self._settings = settings
        self._tracked: dict[int, _TrackedPartition] = {}
        self._next_commit_at = 0.0
        client = topics.create_admin_client(settings)
        topics.prepare_queue_topics(client, settings, self._clock, with_markers=True)
        if topics.is_unknown_group(client, settings.group):
            log.warning(
                "nobody has read as group %r yet; if workers do, their group.id is another one, "
                "and nothing of theirs comes back",
                settings.group,
            )
        self._marker_retention = MarkerRetention(client, settings.markers_topic, self._clock)
        self._message_lookup = MessageLookup(settings.topic, settings.client_config, self._clock)
        self._producer = DurableProducer(settings.client_config, self._clock)
        config = {
            **MARKER_FETCH_CONFIG,
            **settings.consumer_config,
            "group.id": settings.tracker_group,
        }
        self._consumer = Consumer({**config, "auto.offset.reset": "earliest"}, clock=self._clock)

    def run(self, stop: Event) -> None:
        """Track until `stop` is set, then commit and leave the group.

        Raises GroupMembershipError, and KafkaException for what does not pass by itself.
        """
        own = self._settings
        where = (own.group, own.topic, own.markers_topic, own.tracker_group)
        log.info("what group %s has in work of topic %s is watched in %s, as group %s", *where)
        try:
            self._consumer.subscribe(
                [own.markers_topic], self._on_assign, self._on_revoke, self._on_lost
            )
            while not stop.is_set():
                self.run_iteration()
        finally:
            self.close()

    def run_iteration(self) -> None:
        """Read what there is, and do what is due."""
        self._apply_markers(self._consumer.consume(1, MARKER_POLL_TIMEOUT_S))
        self._apply_markers(self._consumer.consume(MAX_MARKERS_PER_POLL, 0))
        for partition, watched in list(self._tracked.items()):
            self._send_tick_if_due(partition, watched)
            if watched.caught_up:
                self._redeliver_due(partition, watched)
        self._producer.poll()
        if self._clock.monotonic() >= self._next_commit_at:
            self._next_commit_at = self._clock.monotonic() + TRACKER_COMMIT_INTERVAL_S
            self._commit_safe_offsets(list(self._tracked))
            self._marker_retention.delete_markers(
                {p: w.committed_offset for p, w in self._tracked.items()}
            )

    def close(self) -> None:
        """Commit, leave the group, free everything."""
        self._consumer.close()
        self._message_lookup.close()
        self._producer.flush(TRACKER_WRITE_TIMEOUT_S)

    def count_open_messages(self) -> Mapping[int, int]:
        """Return how many messages are in work, by partition."""
        return {partition: len(watched.redelivery) for partition, watched in self._tracked.items()}

    # -- the group --------------------------------------------------------------------------------

    def _on_assign(self, _: Consumer, partitions: Sequence[RawPartition]) -> None:
        for partition in partitions:
            self._tracked[partition.partition] = _TrackedPartition(secrets.token_hex(8))

    def _on_revoke(self, _: Consumer, partitions: Sequence[RawPartition]) -> None:
        self._commit_safe_offsets([p.partition for p in partitions])
        self._on_lost(_, partitions)

    def _on_lost(self, _: Consumer, partitions: Sequence[RawPartition]) -> None:
        for partition in partitions:
            self._tracked.pop(partition.partition, None)

    def _commit_safe_offsets(self, partitions: Sequence[int]) -> None:
        safe = {
            p: w.redelivery.safe_offset
            for p in partitions
            if (w := self._tracked.get(p)) is not None
        }
        notes = {p: self._tracked[p].commit_metadata for p in safe}
        moved = {
            p: at
            for p, at in safe.items()
            if at > max(0, self._tracked[p].committed_offset)
            or notes[p] != self._tracked[p].committed_metadata
        }
        if not moved:
            return
        markers = self._settings.markers_topic
        offsets = [RawPartition(markers, p, at, notes[p]) for p, at in moved.items()]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            passing = error.args[0].code() in LOST_MEMBERSHIP_ERRORS or error.args[0].retriable()
            log.log(
                logging.DEBUG if passing else logging.WARNING,
                "the markers' offsets were not committed: %s",
                error.args[0].str(),
            )
            return
        for partition, at in moved.items():
            self._tracked[partition].committed_offset = at
            self._tracked[partition].committed_metadata = notes[partition]

    # -- reading ----------------------------------------------------------------------------------

    def _apply_markers(self, raws: Sequence[Raw]) -> None:
        for raw in raws:
            error = raw.error()
            if error is not None:
                log.warning("markers: %s", error.str())
                continue
            watched = self._tracked.get(int(raw.partition() or 0))
            if watched is not None:
                self._apply_marker(watched, raw)

    def _apply_marker(self, tracked: _TrackedPartition, raw: Raw) -> None:
        at = int(raw.offset() or 0)
        _, appended = raw.timestamp()
        try:
            marker = decode_marker(raw.value() or b"")
        except InvalidPayloadError as error:
            log.warning("%s, partition %s, offset %s: %s", raw.topic(), raw.partition(), at, error)
            marker = Marker(MarkerKind.TICK)
        tracked.redelivery.apply_marker(at, appended, marker)
        tracked.read_at = self._clock.monotonic()
        if marker.tracker_token == tracked.tick_token:
            tracked.caught_up = True

    def _send_tick_if_due(self, partition: int, tracked: _TrackedPartition) -> None:
        """Ask for the time where a deadline has come, and when we are new (rules 1 and 2)."""
        now, ledger = self._clock.monotonic(), tracked.redelivery
        if now < tracked.ticked_at + (
            TICK_INTERVAL_S if tracked.caught_up else TRACKER_COMMIT_INTERVAL_S
        ):
            return
        if tracked.caught_up:
            if ledger.next_deadline_ms is None or ledger.next_deadline_ms <= ledger.broker_time_ms:
                return
            if now < tracked.read_at + (ledger.next_deadline_ms - ledger.broker_time_ms) / 1000:
                return
        tracked.ticked_at = now
        tick = Marker(MarkerKind.TICK, tracker_token=tracked.tick_token).encode()
        self._producer.send_async(
            ProducerRecord(self._settings.markers_topic, partition, tick), log_unwritten_marker
        )

    # -- writing ----------------------------------------------------------------------------------

    def _redeliver_due(self, partition: int, tracked: _TrackedPartition) -> None:
        due = sorted(
            tracked.redelivery.pop_due(MAX_REDELIVERIES_PER_WRITE), key=attrgetter("offset")
        )
        if not due:
            return
        try:
            found = self._message_lookup.read_messages(
                partition, [message.offset for message in due]
            )
        except KafkaException as error:
            log.warning("%s-%d: %s; trying again", self._settings.topic, partition, error)
            tracked.redelivery.postpone_due(due, REDELIVERY_RETRY_MS)
            return
        ready = [message for message in due if message.offset in found.messages]
        gone = [message for message in due if message.offset in found.deleted]
        self._write_redeliveries(
            partition,
            tracked,
            ready,
            lambda m: self._build_redelivery(m, partition, found.messages),
        )
        self._write_redeliveries(
            partition,
            tracked,
            gone,
            lambda m: self._build_lost_letter(m, partition, redelivery_decision.EXPIRED_REASON),
        )
        answered = found.messages.keys() | found.deleted
        tracked.redelivery.postpone_due(
            [m for m in due if m.offset not in answered], REDELIVERY_RETRY_MS
        )

    def _build_redelivery(
        self, due: DueMessage, partition: int, messages: Mapping[int, Raw]
    ) -> ProducerRecord:
        return redelivery_decision.build_redelivery(
            due, messages[due.offset], partition, self._settings
        )

    def _build_lost_letter(self, due: DueMessage, partition: int, reason: str) -> ProducerRecord:
        where = f"{self._settings.topic}-{partition}"
        log.error("%s, offset %d: %s", where, due.offset, reason)
        return redelivery_decision.build_lost_letter(due, partition, self._settings, reason)

    def _build_shortened_letter(self, due: DueMessage, partition: int) -> ProducerRecord:
        return self._build_lost_letter(
            due, partition, redelivery_decision.too_large_reason(due, self._settings)
        )

    def _write_redeliveries(
        self,
        partition: int,
        tracked: _TrackedPartition,
        messages: Sequence[DueMessage],
        build_record: Callable[[DueMessage], ProducerRecord],
    ) -> None:
        """Write messages once more, and then the end markers of those that are kept (rule 3)."""
        if not messages:
            return
        records, failed = write_or_shorten(
            lambda some: self._producer.write_and_wait(some, TRACKER_WRITE_TIMEOUT_S),
            [build_record(message) for message in messages],
            lambda place: self._build_shortened_letter(messages[place], partition),
        )
        if failed:
            self.counts.failed += len(failed)
            why = next(iter(failed.values()))
            log.warning("%d messages were not written again: %s; trying again", len(failed), why)
            tracked.redelivery.postpone_due(
                [messages[place] for place in failed], REDELIVERY_RETRY_MS
            )
        kept = [place for place in range(len(records)) if place not in failed]
        again = sum(records[place].topic == self._settings.topic for place in kept)
        self.counts.redelivered += again
        self.counts.given_up += len(kept) - again
        self._write_end_marker(partition, tracked, [messages[place] for place in kept])

    def _write_end_marker(
        self, partition: int, tracked: _TrackedPartition, messages: Sequence[DueMessage]
    ) -> None:
        if not messages:
            return
        end = Marker(MarkerKind.END, to_ranges(message.offset for message in messages)).encode()
        if self._producer.write_and_wait(
            [ProducerRecord(self._settings.markers_topic, partition, end)], TRACKER_WRITE_TIMEOUT_S
        ):
            tracked.redelivery.postpone_due(messages, REDELIVERY_RETRY_MS)
