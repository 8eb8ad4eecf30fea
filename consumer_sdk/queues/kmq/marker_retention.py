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

EVERY: Final = 10.0
"""Seconds between two deletions."""

ANSWERED: Final = 10.0
"""Seconds after which librdkafka answers for a broker that does not."""


class Trimmer:
    """Asks in the background, and looks at the answers the next time."""

    def __init__(self, client: AdminClient, markers: str, clock: Clock) -> None:
        self._client = client
        self._markers = markers
        self._clock = clock
        self._trimmed: dict[int, int] = {}
        self._asked: dict[int, tuple[int, Future[object]]] = {}  # partition → offset, its answer
        self._at = clock.monotonic()
        self._allowed = True

    def trim(self, below: Mapping[int, int]) -> None:
        """Delete the markers below these offsets, by partition, now and then."""
        self._look()
        if not self._allowed or self._clock.monotonic() < self._at:
            return
        self._at = self._clock.monotonic() + EVERY
        moved = {
            p: at
            for p, at in below.items()
            if at > max(0, self._trimmed.get(p, 0)) and p not in self._asked
        }
        if not moved:
            return
        offsets = [RawPartition(self._markers, partition, at) for partition, at in moved.items()]
        answers = self._client.delete_records(offsets, request_timeout=ANSWERED)
        for where, answer in answers.items():
            self._asked[where.partition] = (moved[where.partition], answer)

    def _look(self) -> None:
        """Take in the answers that have come."""
        come = {p: asked for p, asked in self._asked.items() if asked[1].done()}
        for partition, (at, answer) in come.items():
            del self._asked[partition]
            try:
                answer.result()
                self._trimmed[partition] = at
            except KafkaException as error:
                self._failed(error)

    def _failed(self, error: KafkaException) -> None:
        if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
            log.info("old markers of %s were not deleted: %s", self._markers, error.args[0].str())
        elif self._allowed:  # told once, not for each partition
            self._allowed = False
            log.warning(
                "deleting old markers of %s is not allowed (DELETE on the topic): give the right, "
                "or set its retention.ms to twice the longest timeout; then a tracker must run "
                "within that time",
                self._markers,
            )
