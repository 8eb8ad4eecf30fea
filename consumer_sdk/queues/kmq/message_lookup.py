"""Reads single messages of a partition by their offsets, for a tracker that writes them again.

A message is gone only when the log shows that it is: a later one is read, or the end that a broker
knows lies behind it. What lies at or behind that end may still be kept: a broker that has just
come to lead, or follows, knows of an end that others are past. So only leaders are read from, and
what they do not show is asked for again. One offset that cannot be read holds up no other.
"""

import logging
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer as DataConsumer
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Message as Raw
from confluent_kafka import TopicPartition as RawPartition

from trimtab.common.clock import Clock

log = logging.getLogger("trimtab.queues")

MAX_READ_GAP: Final = 1000
"""Messages in between that are cheaper to read than to jump over."""

LOOKUP_TIMEOUT_S: Final = 10.0
"""Seconds that reading may take; what has not come by then is asked for again."""

END_OF_PARTITION: Final = KafkaError._PARTITION_EOF  # noqa: SLF001 - its public name
OFFSET_OUT_OF_RANGE: Final = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001 - its public name
"""What librdkafka says of the end that a broker knows, and of an offset that it has not."""

RACK_SETTING: Final = "client.rack"
"""The setting that would let followers answer."""


@dataclass(slots=True)
class LookupResult:
    """Messages by offset, and the offsets that the log no longer holds."""

    messages: dict[int, Raw] = field(default_factory=dict[int, Raw])
    deleted: set[int] = field(default_factory=set[int])


class MessageLookup:
    """A reader of its own, in no group."""

    def __init__(self, topic: str, config: Mapping[str, Any], clock: Clock) -> None:
        self._topic = topic
        self._clock = clock
        self._logged_beyond_end: dict[
            int, set[int]
        ] = {}  # offsets told of in the log, by partition
        self._client = DataConsumer(
            {
                **{name: value for name, value in config.items() if name != RACK_SETTING},
                "group.id": "trimtab-originals",  # asked for by librdkafka; never joined
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 50,
            }
        )

    def read_messages(self, partition: int, offsets: Sequence[int]) -> LookupResult:
        """Return the messages at these ascending offsets; what is in neither part is not known yet.

        Raises KafkaException when the broker does not answer.
        """
        low, high = self._client.get_watermark_offsets(
            RawPartition(self._topic, partition), timeout=LOOKUP_TIMEOUT_S
        )
        gone, there, beyond = split_by_log_range(offsets, low, high)
        self._log_beyond_end(partition, beyond, high)
        found = LookupResult(deleted=set(gone))
        deadline = self._clock.monotonic() + LOOKUP_TIMEOUT_S
        for run in split_into_runs(there):
            self._read_run(partition, run, found, deadline)
        self._client.unassign()
        return found

    def close(self) -> None:
        """Free everything."""
        self._client.close()

    def _read_run(
        self, partition: int, run: Sequence[int], result: LookupResult, deadline: float
    ) -> None:
        wanted = set(run)
        self._client.assign([RawPartition(self._topic, partition, run[0])])
        while wanted and self._clock.monotonic() < deadline:
            for raw in self._consume_available():
                error, at = raw.error(), int(raw.offset() or 0)
                code = None if error is None else error.code()
                if code == KafkaError.GROUP_AUTHORIZATION_FAILED:
                    continue  # it is in no group
                if code == OFFSET_OUT_OF_RANGE:
                    where = f"{self._topic}-{partition}, offsets {run[0]} to {run[-1]}"
                    log.warning("%s: %s; asking again", where, error)
                    return
                if code not in {None, END_OF_PARTITION}:
                    raise KafkaException(error)
                passed = {offset for offset in wanted if offset < at}
                result.deleted |= passed
                wanted -= passed
                if code == END_OF_PARTITION:
                    return
                if at in wanted:
                    result.messages[at] = raw
                    wanted.discard(at)

    def _log_beyond_end(self, partition: int, beyond: Sequence[int], high: int) -> None:
        """Say once of each offset that it lies beyond the end of the log."""
        told = {offset for offset in self._logged_beyond_end.get(partition, ()) if offset >= high}
        self._logged_beyond_end[partition] = told.union(beyond)
        if not told.issuperset(beyond):
            log.warning(
                "%s-%d: %d messages, the first at offset %d, lie beyond the log's end (%d) and "
                "wait: their broker does not know them yet, or the topic was made anew",
                self._topic,
                partition,
                len(beyond),
                beyond[0],
                high,
            )

    def _consume_available(self) -> list[Raw]:
        """Return what has come as soon as there is anything: `consume` waits until it is full."""
        return [*self._client.consume(1, timeout=0.1), *self._client.consume(500, timeout=0)]


def split_by_log_range(
    offsets: Sequence[int], log_start_offset: int, log_end_offset: int
) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    """Return ascending offsets in three parts: below the log's begin, in it, and beyond its end.

    `log_start_offset` is the first offset of the log, `log_end_offset` the one that is written next.
    """
    begin, end = (
        bisect_left(offsets, log_start_offset),
        bisect_left(offsets, max(log_start_offset, log_end_offset)),
    )
    return offsets[:begin], offsets[begin:end], offsets[end:]


def split_into_runs(offsets: Sequence[int]) -> Iterator[Sequence[int]]:
    """Return ascending offsets in pieces that are read in one go."""
    begin = 0
    for place in range(1, len(offsets) + 1):
        if place == len(offsets) or offsets[place] - offsets[place - 1] > MAX_READ_GAP:
            yield offsets[begin:place]
            begin = place
