"""`kmq`: a queue on any broker, by a classic group and a markers topic (the KMQ pattern).

The rules of a worker:

1. Messages are handed out only when their start markers are kept by the broker, and then the
   group's offset is committed. So at any moment a message is behind the offset, and will be read,
   or open in the markers, and will come back.
2. If that fails nothing is handed out. What is still ours is read again; a start marker that stays
   behind brings its message back once more than needed.
3. Deadlines are counted from before the start marker was written, and a tracker is told one that
   is later by as much as acknowledgements gather: a worker thinks a message late sooner than a
   tracker can.
4. A revoked partition needs no waiting: what was handed out of it is in the markers, and is settled
   there, whoever reads on.
"""

import logging
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any, Final, Self

from confluent_kafka import Message as Raw
from confluent_kafka import TopicPartition as RawPartition

from trimtab.common.clock import Clock, SystemClock
from trimtab.consumer_sdk.consumer.consumer import Consumer
from trimtab.consumer_sdk.errors import MarkerWriteError
from trimtab.consumer_sdk.queues import message_headers, topics
from trimtab.consumer_sdk.queues.durable_producer import DurableProducer, ProducerRecord
from trimtab.consumer_sdk.queues.kmq.delivered_batch import DeliveredBatch
from trimtab.consumer_sdk.queues.kmq.marker_writer import MARKER_LINGER_S, MarkerWriter
from trimtab.consumer_sdk.queues.kmq.markers import Marker, MarkerKind
from trimtab.consumer_sdk.queues.message import QueueMessage
from trimtab.consumer_sdk.queues.message_fetch import (
    close_on_error,
    commit_if_member,
    convert_transient_errors,
    fetch_messages,
    rewind_messages,
)
from trimtab.consumer_sdk.queues.settings import parse_queue_settings

log = logging.getLogger("trimtab.queues")

KMQ_WRITE_TIMEOUT_S: Final = 10.0
"""Seconds that start markers may take to be kept."""


class KmqQueue:
    """A worker's side of the queue; `trimtab redeliver` must run somewhere too.

    Raises SettingError, QueueTopicMismatchError, MissingAclError, BrokerUnreachableError.
    """

    def __init__(
        self, topic: str, config: Mapping[str, Any], *, clock: Clock | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        self._settings = parse_queue_settings(topic, config)
        topics.prepare_queue_topics(
            topics.create_admin_client(self._settings),
            self._settings,
            self._clock,
            with_markers=True,
        )
        self._consumer = Consumer(self._settings.consumer_config, clock=self._clock)
        self._producer = DurableProducer(self._settings.client_config, self._clock)
        self._marker_writer = MarkerWriter(
            self._settings.markers_topic, self._producer, self._clock
        )
        self._closed = False
        with close_on_error(self):
            self._consumer.subscribe([topic])

    def receive(self, max: int = 100, wait: float = 1.0) -> Sequence[QueueMessage]:  # noqa: A002
        """Return up to `max` messages as soon as there are any, none after `wait` seconds.

        Raises MarkerWriteError, BrokerUnreachableError for what passes by itself, and what `Consumer`
        raises; nothing is lost by any.
        """
        with convert_transient_errors(self._settings.bootstrap):
            raws = fetch_messages(self._consumer, max, wait)
            return self._deliver_messages(raws) if raws else []

    def flush(self, timeout: float = 30.0) -> bool:
        """Wait until what was said of messages is kept by the broker; False if it is not yet."""
        return self._marker_writer.flush(timeout)

    def close(self) -> None:
        """Write what was said of messages and leave the group; may be called twice."""
        if self._closed:
            return
        self._closed = True
        try:
            self._consumer.close()
        finally:
            self._marker_writer.close()
            if not self._marker_writer.flush(KMQ_WRITE_TIMEOUT_S):
                log.warning(
                    "%s: the last markers are not kept; messages come back", self._settings.topic
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _count_deliveries(self, raws: Sequence[Raw]) -> list[int]:
        """Return which delivery each message is at, 0 for one that is another group's."""
        if not any([raw.headers() for raw in raws]):  # noqa: C419 - faster, and all but always
            return [1] * len(raws)
        found = [message_headers.read_trimtab_headers(raw) for raw in raws]
        group = self._settings.group
        return [
            message_headers.parse_delivery_count(ours)
            if ours.get(message_headers.GROUP_HEADER, group) == group
            else 0
            for ours in found
        ]

    def _deliver_messages(self, raws: Sequence[Raw]) -> Sequence[QueueMessage]:
        deliveries = self._count_deliveries(raws)
        mine = raws if all(deliveries) else list(compress(raws, deliveries))
        deadline = self._clock.monotonic() + self._settings.timeout
        batch = DeliveredBatch(mine, list(filter(None, deliveries)), deadline, self._marker_writer)
        try:
            self._write_start_markers(batch)
            if not self._commit_offsets({raw.partition() or 0: raw.offset() or 0 for raw in raws}):
                rewind_messages(self._consumer, raws)
                return []
        except Exception:
            rewind_messages(self._consumer, raws)
            raise
        return batch

    def _write_start_markers(self, batch: DeliveredBatch) -> None:
        ms = round((self._settings.timeout + MARKER_LINGER_S) * 1000)
        failed = self._producer.write_and_wait(
            [
                ProducerRecord(
                    self._settings.markers_topic,
                    partition,
                    Marker(MarkerKind.START, ranges, ms, delivery).encode(),
                )
                for (partition, delivery), ranges in batch.group_offsets().items()
            ],
            KMQ_WRITE_TIMEOUT_S,
        )
        if failed:
            raise MarkerWriteError(
                f"{len(failed)} start markers were not kept in {self._settings.markers_topic!r}: "
                f"{next(iter(failed.values()))}; nothing was handed out, receive() again"
            )

    def _commit_offsets(self, last: Mapping[int, int]) -> bool:
        """Commit behind these offsets by partition; False if the group went on without us."""
        topic = self._settings.topic
        offsets = [RawPartition(topic, partition, at + 1) for partition, at in last.items()]
        return commit_if_member(
            topic, lambda: self._consumer.commit(offsets=offsets, asynchronous=False)
        )
