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
from trimtab.consumer_sdk.errors import MarkersNotWritten
from trimtab.consumer_sdk.queues import message_headers, topics
from trimtab.consumer_sdk.queues.durable_producer import Record, Writer
from trimtab.consumer_sdk.queues.kmq.delivered_batch import Handed
from trimtab.consumer_sdk.queues.kmq.marker_writer import LINGER, Settler
from trimtab.consumer_sdk.queues.kmq.markers import Kind, Marker
from trimtab.consumer_sdk.queues.message import Received
from trimtab.consumer_sdk.queues.message_fetch import (
    closed_on_error,
    committed,
    gather,
    named,
    rewind,
)
from trimtab.consumer_sdk.queues.settings import settings

log = logging.getLogger("trimtab.queues")

KEPT: Final = 10.0
"""Seconds that start markers may take to be kept."""


class KmqQueue:
    """A worker's side of the queue; `trimtab redeliver` must run somewhere too.

    Raises SettingError, QueueMismatch, NotAllowed, BrokerUnreachable.
    """

    def __init__(
        self, topic: str, config: Mapping[str, Any], *, clock: Clock | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        self._settings = settings(topic, config)
        topics.prepare(topics.connect(self._settings), self._settings, self._clock, markers=True)
        self._consumer = Consumer(self._settings.consumer, clock=self._clock)
        self._writer = Writer(self._settings.client, self._clock)
        self._settler = Settler(self._settings.markers, self._writer, self._clock)
        self._closed = False
        with closed_on_error(self):
            self._consumer.subscribe([topic])

    def receive(self, max: int = 100, wait: float = 1.0) -> Sequence[Received]:  # noqa: A002
        """Return up to `max` messages as soon as there are any, none after `wait` seconds.

        Raises MarkersNotWritten, BrokerUnreachable for what passes by itself, and what `Consumer`
        raises; nothing is lost by any.
        """
        with named(self._settings.bootstrap):
            raws = gather(self._consumer, max, wait)
            return self._hand_out(raws) if raws else []

    def flush(self, timeout: float = 30.0) -> bool:
        """Wait until what was said of messages is kept by the broker; False if it is not yet."""
        return self._settler.flush(timeout)

    def close(self) -> None:
        """Write what was said of messages and leave the group; may be called twice."""
        if self._closed:
            return
        self._closed = True
        try:
            self._consumer.close()
        finally:
            self._settler.close()
            if not self._settler.flush(KEPT):
                log.warning(
                    "%s: the last markers are not kept; messages come back", self._settings.topic
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _deliveries(self, raws: Sequence[Raw]) -> list[int]:
        """Return which delivery each message is at, 0 for one that is another group's."""
        if not any([raw.headers() for raw in raws]):  # noqa: C419 - faster, and all but always
            return [1] * len(raws)
        found = [message_headers.read(raw) for raw in raws]
        group = self._settings.group
        return [
            message_headers.delivery(ours) if ours.get(message_headers.GROUP, group) == group else 0
            for ours in found
        ]

    def _hand_out(self, raws: Sequence[Raw]) -> Sequence[Received]:
        deliveries = self._deliveries(raws)
        mine = raws if all(deliveries) else list(compress(raws, deliveries))
        deadline = self._clock.monotonic() + self._settings.timeout
        batch = Handed(mine, list(filter(None, deliveries)), deadline, self._settler)
        try:
            self._write_starts(batch)
            if not self._commit({raw.partition() or 0: raw.offset() or 0 for raw in raws}):
                rewind(self._consumer, raws)
                return []
        except Exception:
            rewind(self._consumer, raws)
            raise
        return batch

    def _write_starts(self, batch: Handed) -> None:
        ms = round((self._settings.timeout + LINGER) * 1000)
        failed = self._writer.write(
            [
                Record(
                    self._settings.markers,
                    partition,
                    Marker(Kind.START, ranges, ms, delivery).encode(),
                )
                for (partition, delivery), ranges in batch.opened().items()
            ],
            KEPT,
        )
        if failed:
            raise MarkersNotWritten(
                f"{len(failed)} start markers were not kept in {self._settings.markers!r}: "
                f"{next(iter(failed.values()))}; nothing was handed out, receive() again"
            )

    def _commit(self, last: Mapping[int, int]) -> bool:
        """Commit behind these offsets by partition; False if the group went on without us."""
        topic = self._settings.topic
        offsets = [RawPartition(topic, partition, at + 1) for partition, at in last.items()]
        return committed(topic, lambda: self._consumer.commit(offsets=offsets, asynchronous=False))
