"""`kmq`: a queue on any broker, by a classic group and a markers topic (the KMQ pattern).

The rules of a worker:

1. Messages are delivered only when the broker has stored their start markers, and the group's
   offset is committed after them. So every message is either at or above the committed offset, and
   will be read, or open in the markers, and will be redelivered.
2. If one of the two fails, nothing is delivered, and partitions still assigned are read again. A
   start marker that was stored causes one redelivery more than needed.
3. A worker's deadline counts from before the start marker is written; the marker's is longer by
   `MARKER_LINGER_S`. So a message is late for its worker before it is due for the tracker.
4. A revocation does not wait: delivered messages are in the markers and are settled there, no
   matter which consumer owns the partition.
5. Messages of a partition that the markers topic lacks wait, and delay no others. Trimtab adds the
   partition; if it may not, the log says so every `TOPIC_CHECK_INTERVAL_S` until another has done it.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import compress
from typing import Any, Final

from confluent_kafka import Message
from confluent_kafka import TopicPartition as RawPartition

from trimtab.common.clock import Clock, SystemClock
from trimtab.common.units import format_count
from trimtab.consumer_sdk.consumer.consumer import Consumer
from trimtab.consumer_sdk.errors import MarkerWriteError
from trimtab.consumer_sdk.queues import topics
from trimtab.consumer_sdk.queues.durable_producer import DurableProducer
from trimtab.consumer_sdk.queues.kmq.delivered_batch import DeliveredBatch
from trimtab.consumer_sdk.queues.kmq.marker_writer import MARKER_LINGER_S, MarkerWriter
from trimtab.consumer_sdk.queues.kmq.markers import (
    MAX_STARTED_MESSAGES,
    Marker,
    MarkerKind,
    build_marker_record,
    split_ranges,
)
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
    GROUP_HEADER,
    parse_delivery_count,
    read_redelivery_headers,
)
from trimtab.consumer_sdk.queues.message_queue import MessageQueue
from trimtab.consumer_sdk.queues.queue_spans import open_queue_spans
from trimtab.consumer_sdk.queues.settings import check_kind, parse_queue_settings

log = logging.getLogger("trimtab.queues")

KMQ_WRITE_TIMEOUT_S: Final = 10.0  # for the broker to store start markers
TOPIC_CHECK_INTERVAL_S: Final = 10.0  # while a partition has no markers


class KmqQueue(MessageQueue):
    """Worker of a `kmq` queue; a redelivery tracker (`trimtab redeliver`) must run, too.

    Raises SettingError, QueueTopicMismatchError, MissingAclError, BrokerUnreachableError.
    """

    def __init__(self, topic: str, config: Mapping[str, Any], *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._settings = parse_queue_settings(topic, config)
        check_kind("kmq", self._settings, config)
        self._spans = open_queue_spans(self._settings, self._clock)
        client = topics.create_admin_client(self._settings)
        self._marked_partitions = topics.prepare_queue_topics(
            client, self._settings, self._clock, with_markers=True
        )
        self._held_partitions: set[int] = set()  # paused (rule 5)
        self._next_topic_check_at = 0.0
        self._consumer = Consumer(self._settings.consumer_config, clock=self._clock)
        self._producer = DurableProducer(self._settings.client_config, self._clock)
        self._marker_writer = MarkerWriter(self._settings, self._producer, self._clock)
        self._closed = False
        with close_on_error(self):
            self._consumer.subscribe([topic])

    def receive(self, max: int = 100, wait: float = 1.0) -> Sequence[QueueMessage]:  # noqa: A002
        """Return up to `max` messages once any is available, none after `wait` seconds.

        Raises MarkerWriteError, BrokerUnreachableError for transient failures, and the errors of
        `Consumer`; none of them loses a message.
        """
        with convert_transient_errors(self._settings.bootstrap):
            self._release_held()
            raws = self._hold_unmarked(fetch_messages(self._consumer, max, wait))
            return self._deliver_messages(raws) if raws else []

    def trace_processing(self, message: QueueMessage) -> AbstractContextManager[None]:
        """Return a block whose span processes a message; it does nothing without `trimtab.telemetry`."""
        return self._spans.trace_delivery(message.raw, message.delivery)

    def flush(self, timeout: float = 30.0) -> bool:
        """Wait until the broker has stored all settlements; return False if it has not."""
        return self._marker_writer.flush(timeout)

    def close(self) -> None:
        """Write all settlements and leave the group. Idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            self._consumer.close()
        finally:
            self._marker_writer.close()
            if not self._marker_writer.flush(KMQ_WRITE_TIMEOUT_S):
                topic = self._settings.topic
                log.warning("%s: the last markers are not stored; their messages are redelivered", topic)

    def _hold_unmarked(self, raws: Sequence[Message]) -> Sequence[Message]:
        if all([(raw.partition() or 0) < self._marked_partitions for raw in raws]):  # noqa: C419 - faster
            return raws
        with rewind_on_error(self._consumer, raws):
            self._add_missing_partitions()
            marked = [raw for raw in raws if (raw.partition() or 0) < self._marked_partitions]
            held = [raw for raw in raws if (raw.partition() or 0) >= self._marked_partitions]
            numbers = {raw.partition() or 0 for raw in held}
            self._held_partitions |= numbers
            self._consumer.pause(self._to_raw(numbers))
            rewind_messages(self._consumer, held)
        return marked

    def _release_held(self) -> None:
        if self._held_partitions and self._add_missing_partitions():
            assigned = self._held_partitions & {p.partition for p in self._consumer.assignment()}
            released = {p for p in assigned if p < self._marked_partitions}
            self._consumer.resume(self._to_raw(released))
            self._held_partitions = assigned - released

    def _to_raw(self, partitions: Iterable[int]) -> list[RawPartition]:
        return [RawPartition(self._settings.topic, partition) for partition in sorted(partitions)]

    def _add_missing_partitions(self) -> bool:
        now = self._clock.monotonic()
        if now < self._next_topic_check_at:
            return False
        self._next_topic_check_at = now + TOPIC_CHECK_INTERVAL_S
        count = topics.add_missing_partitions(self._settings, self._clock, with_markers=True)
        self._marked_partitions = max(self._marked_partitions, count)
        return bool(count)

    def _count_deliveries(self, raws: Sequence[Message]) -> list[int]:
        if not any([raw.headers() for raw in raws]):  # noqa: C419 - faster; mostly no headers
            return [1] * len(raws)
        group = self._settings.group
        headers = map(read_redelivery_headers, raws)
        # 0: a redelivery to another group on the topic, which this one skips.
        return [parse_delivery_count(h) if h.get(GROUP_HEADER, group) == group else 0 for h in headers]

    def _deliver_messages(self, raws: Sequence[Message]) -> Sequence[QueueMessage]:
        with rewind_on_error(self._consumer, raws):
            deliveries = self._count_deliveries(raws)
            own = raws if all(deliveries) else list(compress(raws, deliveries))
            deadline = self._clock.monotonic() + self._settings.timeout
            batch = DeliveredBatch(own, list(filter(None, deliveries)), deadline, self._marker_writer)
            self._write_start_markers(batch)
            if self._commit_offsets({raw.partition() or 0: raw.offset() or 0 for raw in raws}):
                return batch
            rewind_messages(self._consumer, raws)
            return []

    def _write_start_markers(self, batch: DeliveredBatch) -> None:
        settings = self._settings
        delay_ms = round((settings.timeout + MARKER_LINGER_S) * 1000)  # rule 3
        records = [
            build_marker_record(settings, partition, Marker(MarkerKind.START, ranges, delay_ms, delivery))
            for (partition, delivery), offsets in batch.group_offsets().items()
            for ranges in split_ranges(offsets, MAX_STARTED_MESSAGES)
        ]
        if failed := self._producer.write_and_wait(records, KMQ_WRITE_TIMEOUT_S):
            lost = format_count(len(failed), "start marker was", "start markers were")
            raise MarkerWriteError(
                f"{lost} not stored in {settings.markers_topic!r}: "
                f"{next(iter(failed.values()))}; no message was delivered, call receive() again"
            )

    def _commit_offsets(self, last_offsets: Mapping[int, int]) -> bool:
        topic = self._settings.topic
        offsets = [RawPartition(topic, p, offset + 1) for p, offset in last_offsets.items()]
        return commit_if_member(topic, lambda: self._consumer.commit(offsets=offsets, asynchronous=False))
