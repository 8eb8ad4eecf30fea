"""Deletes markers that are over, so that the log is as long as the oldest open message is old.

It is called within a tracker's turn, so it never waits: a partition whose answer has not come yet
is asked for again when it has, and librdkafka sees to it that it comes.
"""

import logging
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as RawPartition
from confluent_kafka.admin import AdminClient

from trimtab.common.clock import Clock

log = logging.getLogger("trimtab.queues")

MARKER_DELETION_INTERVAL_S: Final = 10.0
"""Seconds between two deletions."""

MARKER_DELETION_TIMEOUT_S: Final = 10.0
"""Seconds after which librdkafka answers for a broker that does not."""


class MarkerRetention:
    """Asks in the background, and looks at the answers the next time."""

    def __init__(self, client: AdminClient, markers_topic: str, clock: Clock) -> None:
        self._client = client
        self._markers_topic = markers_topic
        self._clock = clock
        self._deleted_below: dict[int, int] = {}
        self._pending: dict[int, tuple[int, Future[object]]] = {}  # partition → offset, its answer
        self._next_deletion_at = clock.monotonic()
        self._allowed = True

    def delete_markers(self, below: Mapping[int, int]) -> None:
        """Delete the markers below these offsets, by partition, now and then."""
        self._collect_answers()
        if not self._allowed or self._clock.monotonic() < self._next_deletion_at:
            return
        self._next_deletion_at = self._clock.monotonic() + MARKER_DELETION_INTERVAL_S
        moved = {
            p: at
            for p, at in below.items()
            if at > max(0, self._deleted_below.get(p, 0)) and p not in self._pending
        }
        if not moved:
            return
        offsets = [
            RawPartition(self._markers_topic, partition, at) for partition, at in moved.items()
        ]
        answers = self._client.delete_records(offsets, request_timeout=MARKER_DELETION_TIMEOUT_S)
        for where, answer in answers.items():
            self._pending[where.partition] = (moved[where.partition], answer)

    def _collect_answers(self) -> None:
        """Take in the answers that have come."""
        come = {p: asked for p, asked in self._pending.items() if asked[1].done()}
        for partition, (at, answer) in come.items():
            del self._pending[partition]
            try:
                answer.result()
                self._deleted_below[partition] = at
            except KafkaException as error:
                self._on_deletion_failed(error)

    def _on_deletion_failed(self, error: KafkaException) -> None:
        if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
            log.info(
                "old markers of %s were not deleted: %s", self._markers_topic, error.args[0].str()
            )
        elif self._allowed:  # told once, not for each partition
            self._allowed = False
            log.warning(
                "deleting old markers of %s is not allowed (DELETE on the topic): give the right, "
                "or set its retention.ms to twice the longest timeout; then a tracker must run "
                "within that time",
                self._markers_topic,
            )
