"""Deletes settled markers, so that the age of the oldest open message bounds the log.

The tracker calls it in every iteration, so it never waits: a partition with a pending request gets
the next one after the answer, which librdkafka guarantees within a timeout.
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

MARKER_DELETION_INTERVAL_S: Final = 10.0  # brokers free whole segments only, so more often gains nothing
MARKER_DELETION_TIMEOUT_S: Final = 10.0  # then librdkafka reports the request as failed


class MarkerRetention:
    """Requests deletions asynchronously and collects the answers on the next call."""

    def __init__(self, client: AdminClient, markers_topic: str, clock: Clock) -> None:
        self._client = client
        self._markers_topic = markers_topic
        self._clock = clock
        self._deleted_below: dict[int, int] = {}
        self._pending: dict[int, tuple[int, Future[object]]] = {}  # partition → offset, answer
        self._next_deletion_at = clock.monotonic()
        self._allowed = True

    def delete_markers(self, below: Mapping[int, int]) -> None:
        """Delete the markers below these offsets, by partition; once per interval."""
        self._collect_answers()
        if not self._allowed or self._clock.monotonic() < self._next_deletion_at:
            return
        self._next_deletion_at = self._clock.monotonic() + MARKER_DELETION_INTERVAL_S
        advanced = {p: offset for p, offset in below.items() if offset > self._deleted_below.get(p, 0)}
        topic = self._markers_topic
        offsets = [RawPartition(topic, p, o) for p, o in advanced.items() if p not in self._pending]
        if not offsets:
            return
        answers = self._client.delete_records(offsets, request_timeout=MARKER_DELETION_TIMEOUT_S)
        for deleted, answer in answers.items():
            self._pending[deleted.partition] = (advanced[deleted.partition], answer)

    def _collect_answers(self) -> None:
        answered = {p: request for p, request in self._pending.items() if request[1].done()}
        for partition, (offset, answer) in answered.items():
            del self._pending[partition]
            try:
                answer.result()
                self._deleted_below[partition] = offset
            except KafkaException as error:
                self._on_deletion_failed(error)

    def _on_deletion_failed(self, error: KafkaException) -> None:
        topic = self._markers_topic
        cause = error.args[0]
        if cause.code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
            log.info("settled markers of %s were not deleted: %s", topic, cause.str())
        elif self._allowed:  # log it once, not for each partition
            self._allowed = False
            advice = (
                "grant DELETE on the topic, or set its retention.ms to twice the longest timeout; "
                "then a tracker must run within that time"
            )
            log.warning("not authorized to delete settled markers of %s: %s", topic, advice)
