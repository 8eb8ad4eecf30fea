"""Reads single messages of a partition by offset, for the tracker's redeliveries.

A message is deleted only if the log proves it: a later message, or an end of the log beyond it, is
read. A message at or beyond the end may still exist: the high watermark of a new leader or a
follower lags. So only leaders are read, and missing messages are looked up again. An offset that
cannot be read blocks no other.
"""

import logging
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer as DataConsumer
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as RawPartition

from trimtab.common.clock import Clock

log = logging.getLogger("trimtab.queues")

MAX_READ_GAP: Final = 1000  # offsets that are read through, which is cheaper than a seek
LOOKUP_TIMEOUT_S: Final = 10.0  # messages not read by then are looked up again
BEYOND_END_LOG_INTERVAL_S: Final = 60.0
END_OF_PARTITION: Final = KafkaError._PARTITION_EOF  # noqa: SLF001 - its public name
OFFSET_OUT_OF_RANGE: Final = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001 - its public name
RACK_SETTING: Final = "client.rack"  # lets followers answer fetches (KIP-392), whose high watermark lags


@dataclass(slots=True)
class LookupResult:
    """Messages by offset, and the offsets deleted from the log."""

    messages: dict[int, Message] = field(default_factory=dict[int, Message])
    deleted: set[int] = field(default_factory=set[int])


class MessageLookup:
    """Reader of single messages, outside any group."""

    def __init__(self, topic: str, config: Mapping[str, Any], clock: Clock) -> None:
        self._topic = topic
        self._clock = clock
        self._next_log_at: dict[int, float] = {}  # of messages beyond the end, by partition
        fixed = {
            "group.id": "trimtab-message-lookup",  # librdkafka requires one; never joined
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 50,  # a lookup at the log's end waits for it
        }
        self._client = DataConsumer({**{n: v for n, v in config.items() if n != RACK_SETTING}, **fixed})

    def read_messages(self, partition: int, offsets: Sequence[int]) -> LookupResult:
        """Return the messages at these ascending offsets, and the deleted offsets.

        An offset in neither part of the result is unknown for now. Raises KafkaException if the
        broker does not answer.
        """
        raw = RawPartition(self._topic, partition)
        low, high = self._client.get_watermark_offsets(raw, timeout=LOOKUP_TIMEOUT_S)
        deleted, present, beyond = split_by_log_range(offsets, low, high)
        self._log_beyond_end(partition, beyond, high)
        result = LookupResult(deleted=set(deleted))
        deadline = self._clock.monotonic() + LOOKUP_TIMEOUT_S
        for run in split_into_runs(present):
            self._read_run(partition, run, result, deadline)
        self._client.unassign()
        return result

    def close(self) -> None:
        """Close the client."""
        self._client.close()

    def _read_run(self, partition: int, run: Sequence[int], result: LookupResult, deadline: float) -> None:
        missing = set(run)
        self._client.assign([RawPartition(self._topic, partition, run[0])])
        while missing and self._clock.monotonic() < deadline:
            for raw in self._consume_available():
                error, position = raw.error(), int(raw.offset() or 0)
                code = None if error is None else error.code()
                if code == KafkaError.GROUP_AUTHORIZATION_FAILED:
                    continue  # the group is never joined
                if code == OFFSET_OUT_OF_RANGE:  # retention was faster than this lookup
                    offsets = f"{self._topic}-{partition}, offsets {run[0]} to {run[-1]}"
                    log.warning("%s: %s; looking them up again", offsets, error)
                    return
                if code not in {None, END_OF_PARTITION}:
                    raise KafkaException(error)
                passed = {offset for offset in missing if offset < position}  # proof: the log is in order
                result.deleted |= passed
                missing -= passed
                if code == END_OF_PARTITION:
                    return
                if position in missing:
                    result.messages[position] = raw
                    missing.discard(position)

    def _log_beyond_end(self, partition: int, beyond: Sequence[int], high: int) -> None:
        # While they wait, not for each of their lookups, of which many messages have many.
        now = self._clock.monotonic()
        if beyond and now >= self._next_log_at.get(partition, now):
            self._next_log_at[partition] = now + BEYOND_END_LOG_INTERVAL_S
            text = "%s-%d: messages, one at offset %d, lie beyond the log's end (%d) and wait: %s"
            cause = "their broker has not replicated them yet, or the topic was recreated"
            log.warning(text, self._topic, partition, beyond[0], high, cause)

    def _consume_available(self) -> list[Message]:
        # `consume(n)` waits until it has n messages: wait for one, then take the buffered ones.
        return [*self._client.consume(1, timeout=0.1), *self._client.consume(500, timeout=0)]


def split_by_log_range(
    offsets: Sequence[int], log_start_offset: int, log_end_offset: int
) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    """Split ascending offsets into those below the log, in it, and beyond its end.

    `log_start_offset` is the log's first offset, `log_end_offset` that of the next record.
    """
    begin = bisect_left(offsets, log_start_offset)
    end = bisect_left(offsets, max(log_start_offset, log_end_offset))
    return offsets[:begin], offsets[begin:end], offsets[end:]


def split_into_runs(offsets: Sequence[int]) -> Iterator[Sequence[int]]:
    """Split ascending offsets into runs that are read without a seek."""
    begin = 0
    for end in range(1, len(offsets) + 1):
        if end == len(offsets) or offsets[end] - offsets[end - 1] > MAX_READ_GAP:
            yield offsets[begin:end]
            begin = end
