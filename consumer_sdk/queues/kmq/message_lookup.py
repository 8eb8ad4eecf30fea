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

GAP: Final = 1000
"""Messages in between that are cheaper to read than to jump over."""

TIMEOUT: Final = 10.0
"""Seconds that reading may take; what has not come by then is asked for again."""

END: Final = KafkaError._PARTITION_EOF  # noqa: SLF001 - its public name
UNREADABLE: Final = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001 - its public name
"""What librdkafka says of the end that a broker knows, and of an offset that it has not."""

RACK: Final = "client.rack"
"""The setting that would let followers answer."""


@dataclass(slots=True)
class Found:
    """Messages by offset, and the offsets that the log no longer holds."""

    messages: dict[int, Raw] = field(default_factory=dict[int, Raw])
    gone: set[int] = field(default_factory=set[int])


class Originals:
    """A reader of its own, in no group."""

    def __init__(self, topic: str, config: Mapping[str, Any], clock: Clock) -> None:
        self._topic = topic
        self._clock = clock
        self._beyond: dict[int, set[int]] = {}  # offsets told of in the log, by partition
        self._data = DataConsumer(
            {
                **{name: value for name, value in config.items() if name != RACK},
                "group.id": "trimtab-originals",  # asked for by librdkafka; never joined
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 50,
            }
        )

    def read(self, partition: int, offsets: Sequence[int]) -> Found:
        """Return the messages at these ascending offsets; what is in neither part is not known yet.

        Raises KafkaException when the broker does not answer.
        """
        low, high = self._data.get_watermark_offsets(
            RawPartition(self._topic, partition), timeout=TIMEOUT
        )
        gone, there, beyond = placed(offsets, low, high)
        self._tell_beyond(partition, beyond, high)
        found = Found(gone=set(gone))
        deadline = self._clock.monotonic() + TIMEOUT
        for run in runs(there):
            self._read_run(partition, run, found, deadline)
        self._data.unassign()
        return found

    def close(self) -> None:
        """Free everything."""
        self._data.close()

    def _read_run(self, partition: int, run: Sequence[int], found: Found, deadline: float) -> None:
        wanted = set(run)
        self._data.assign([RawPartition(self._topic, partition, run[0])])
        while wanted and self._clock.monotonic() < deadline:
            for raw in self._soon():
                error, at = raw.error(), int(raw.offset() or 0)
                code = None if error is None else error.code()
                if code == KafkaError.GROUP_AUTHORIZATION_FAILED:
                    continue  # it is in no group
                if code == UNREADABLE:
                    where = f"{self._topic}-{partition}, offsets {run[0]} to {run[-1]}"
                    log.warning("%s: %s; asking again", where, error)
                    return
                if code not in {None, END}:
                    raise KafkaException(error)
                passed = {offset for offset in wanted if offset < at}
                found.gone |= passed
                wanted -= passed
                if code == END:
                    return
                if at in wanted:
                    found.messages[at] = raw
                    wanted.discard(at)

    def _tell_beyond(self, partition: int, beyond: Sequence[int], high: int) -> None:
        """Say once of each offset that it lies beyond the end of the log."""
        told = {offset for offset in self._beyond.get(partition, ()) if offset >= high}
        self._beyond[partition] = told.union(beyond)
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

    def _soon(self) -> list[Raw]:
        """Return what has come as soon as there is anything: `consume` waits until it is full."""
        return [*self._data.consume(1, timeout=0.1), *self._data.consume(500, timeout=0)]


def placed(
    offsets: Sequence[int], low: int, high: int
) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    """Return ascending offsets in three parts: below the log's begin, in it, and beyond its end.

    `low` is the first offset of the log, `high` the one that is written next.
    """
    begin, end = bisect_left(offsets, low), bisect_left(offsets, max(low, high))
    return offsets[:begin], offsets[begin:end], offsets[end:]


def runs(offsets: Sequence[int]) -> Iterator[Sequence[int]]:
    """Return ascending offsets in pieces that are read in one go."""
    begin = 0
    for place in range(1, len(offsets) + 1):
        if place == len(offsets) or offsets[place] - offsets[place - 1] > GAP:
            yield offsets[begin:place]
            begin = place
