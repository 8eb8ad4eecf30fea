"""Deletes markers that are over, so that the log is as long as the oldest open message is old."""

import logging
from collections.abc import Mapping
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as RawPartition
from confluent_kafka.admin import AdminClient

from trimtab.assignor.clock import Clock

log = logging.getLogger("trimtab.queues")

EVERY: Final = 10.0
"""Seconds between two deletions."""


class Trimmer:
    """Asks in the background, and looks at the answers the next time."""

    def __init__(self, client: AdminClient, markers: str, clock: Clock) -> None:
        self._client = client
        self._markers = markers
        self._clock = clock
        self._trimmed: dict[int, int] = {}
        self._at = clock.monotonic()
        self._allowed = True

    def trim(self, below: Mapping[int, int]) -> None:
        """Delete the markers below these offsets, by partition, now and then."""
        if not self._allowed or self._clock.monotonic() < self._at:
            return
        self._at = self._clock.monotonic() + EVERY
        moved = {p: at for p, at in below.items() if at > max(0, self._trimmed.get(p, 0))}
        if not moved:
            return
        offsets = [RawPartition(self._markers, partition, at) for partition, at in moved.items()]
        for partition, answer in self._client.delete_records(offsets).items():
            try:
                answer.result(EVERY)
                self._trimmed[partition.partition] = moved[partition.partition]
            except KafkaException as error:
                self._failed(error)
            except TimeoutError:
                log.info("old markers of %s: no answer in time; asking again", self._markers)

    def _failed(self, error: KafkaException) -> None:
        if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            self._allowed = False
            log.warning(
                "deleting old markers of %s is not allowed (DELETE on the topic): give the right, "
                "or set its retention.ms to twice the longest timeout; then a tracker must run "
                "within that time",
                self._markers,
            )
        else:
            log.info("old markers of %s were not deleted: %s", self._markers, error.args[0].str())
