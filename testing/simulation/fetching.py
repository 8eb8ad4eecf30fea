"""Stand-in for librdkafka's consumer: the parts that the data plane uses.

Reads assigned partitions that are not paused, at their positions, initially the group's committed
offsets. An offset out of range is reported once; the partition is then not read until it is
assigned again (`auto.offset.reset=error`). It never joins or commits.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_INVALID, KafkaError, KafkaException
from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.testing.simulation import green
from trimtab.testing.simulation.membership import Cluster
from trimtab.testing.simulation.network import UnreachableError

MOST: Final = 40
"""Records per fetch and partition, so that records arrive in several pieces."""


@dataclass(frozen=True, slots=True)
class Message:
    """`confluent_kafka.Message`."""

    at: TopicPartition
    number: int
    content: bytes
    record_key: bytes | None = None

    def __len__(self) -> int:
        return len(self.content)

    def topic(self) -> str:
        return self.at.topic

    def partition(self) -> int:
        return self.at.partition

    def offset(self) -> int | None:
        return None if self.number == STOPPED else self.number

    def leader_epoch(self) -> None:
        return None

    def value(self) -> bytes:
        return self.content

    def timestamp(self) -> tuple[int, int]:
        return 0, -1

    def key(self) -> bytes | None:
        return self.record_key

    def headers(self) -> None:
        return None

    def error(self) -> KafkaError | None:
        return None


@dataclass(frozen=True, slots=True)
class Gone(Message):
    """Event of an offset out of range."""

    def error(self) -> KafkaError:
        return KafkaError(KafkaError._AUTO_OFFSET_RESET, "simulated: out of range")


STOPPED: Final = -1
"""Position of a partition that is not read any longer."""


class Fetcher:
    """`confluent_kafka.Consumer` without a group."""

    def __init__(self, cluster: Cluster) -> None:
        self._at = cluster
        self._positions: dict[TopicPartition, int | None] = {}
        self._paused: set[TopicPartition] = set()

    def assignment(self) -> list[Any]:
        return [RawPartition(*p) for p in self._positions]

    def next_offset(self, partition: TopicPartition) -> int | None:
        """Return the offset that is fetched next; None before the first fetch, and if it is not read."""
        return self._positions.get(partition)

    def list_topics(self, topic: str = "", timeout: float = 0) -> None:
        """Do nothing: leaders are known here."""

    def incremental_assign(self, partitions: Sequence[Any]) -> None:
        for raw in partitions:
            if _key(raw) in self._positions:
                raise KafkaException(KafkaError(KafkaError._CONFLICT, f"{raw} is read already"))
            first = self._at.log.lows[_key(raw)] if raw.offset == OFFSET_BEGINNING else None
            self._positions[_key(raw)] = raw.offset if raw.offset >= 0 else first

    def incremental_unassign(self, partitions: Sequence[Any]) -> None:
        for raw in partitions:
            del self._positions[_key(raw)]

    def pause(self, partitions: Sequence[Any]) -> None:
        self._paused |= {_key(raw) for raw in partitions}

    def resume(self, partitions: Sequence[Any]) -> None:
        self._paused -= {_key(raw) for raw in partitions}

    def seek(self, raw: Any) -> None:
        self._positions[_key(raw)] = raw.offset

    def position(self, partitions: Sequence[Any]) -> list[Any]:
        found = ((raw, self._positions.get(_key(raw))) for raw in partitions)
        return [
            RawPartition(raw.topic, raw.partition, OFFSET_INVALID if at in (None, STOPPED) else at)
            for raw, at in found
        ]

    def get_watermark_offsets(self, raw: Any, timeout: float = 0) -> tuple[int, int]:  # noqa: ARG002 - the interface
        """Return a log's watermarks. Raises KafkaException."""
        log = self._at.log
        try:
            found: tuple[int, int] = self._at.network.call(
                lambda respond: respond((log.lows[_key(raw)], log.ends[_key(raw)]))
            )
        except UnreachableError:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT)) from None
        return found

    def offsets_for_times(self, partitions: Sequence[Any], timeout: float = 0) -> list[Any]:
        """Return the ends of logs; each partition has OFFSET_BEGINNING or OFFSET_END for a time."""
        ends = [(raw, *self.get_watermark_offsets(raw, timeout)) for raw in partitions]
        return [
            RawPartition(raw.topic, raw.partition, low if raw.offset == OFFSET_BEGINNING else high)
            for raw, low, high in ends
        ]

    def committed(self, partitions: Sequence[Any], timeout: float = 0) -> list[Any]:  # noqa: ARG002 - the interface
        """Return the group's committed offsets. Raises KafkaException."""
        try:
            known = self._at.network.call(lambda respond: respond(dict(self._at.group.offsets)))
        except UnreachableError:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT)) from None
        found = ((raw, *known.get(_key(raw), (OFFSET_INVALID, ""))) for raw in partitions)
        return [
            RawPartition(raw.topic, raw.partition, offset, note.rstrip("\0")) for raw, offset, note in found
        ]

    def consume(self, count: int, timeout: float = 0) -> list[Message]:
        """Wait, then return the available records."""
        hub = self._at.hub
        hub.sleep(hub.lazily(timeout))
        if count == 0 or self._at.network.away(green.process().name):
            return []
        found: list[Message] = []
        for partition in list(self._positions):
            if partition not in self._paused:
                found += self._read(partition, min(MOST, count - len(found)))
        return found

    def close(self) -> None:
        self._positions.clear()

    def _read(self, partition: TopicPartition, most: int) -> list[Message]:
        log = self._at.log
        begin = self._positions[partition]
        if begin == STOPPED or most <= 0:
            return []
        if begin is None:
            begin = self._at.group.offsets.get(partition, (STOPPED, ""))[0]
        if not log.lows[partition] <= begin <= log.ends[partition]:
            self._positions[partition] = STOPPED
            return [Gone(partition, begin, b"")]
        offsets = log.sorted[partition]
        first = bisect_left(offsets, begin)
        wanted = offsets[first : first + most]
        self._positions[partition] = wanted[-1] + 1 if wanted else begin
        records = log.records[partition]
        keys = log.keys.get(partition, {})
        return [Message(partition, offset, records[offset], keys.get(offset)) for offset in wanted]


def _key(raw: Any) -> TopicPartition:
    return TopicPartition(raw.topic, raw.partition)
