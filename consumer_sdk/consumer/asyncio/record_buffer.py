"""Records of an AsyncConsumer between fetch and application; used on the event loop's thread only.

The rules:

1. The position of a partition is the offset after the last record that was taken, not fetched.
2. Records are kept of readable partitions only; those of a revoked partition are dropped.
3. A seek drops what was fetched. Records that arrive until the data plane has carried it out are
   outdated and dropped, too.
4. A parked partition keeps no records: it remembers the first one that it dropped, where reading
   continues.
5. Partitions take turns: one that gave records is the last of the next call.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.consumer_sdk.client.client_adapters import partition_of
from trimtab.consumer_sdk.consumer.asyncio.async_settings import Deserializer


class ConsumerRecord(NamedTuple):
    """A record with aiokafka's attributes; `timestamp` in ms, sizes in bytes, -1 for None."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int  # 0: set by the producer, 1: by the broker
    key: Any
    value: Any
    checksum: None
    serialized_key_size: int
    serialized_value_size: int
    headers: tuple[tuple[str, bytes | None], ...]


class RecordBuffer:
    """Fetched records by partition, positions and parked partitions."""

    def __init__(self, convert: Callable[[Message], ConsumerRecord]) -> None:
        self.readable: set[TopicPartition] = set()
        self.highwaters: dict[TopicPartition, int] = {}  # ends of the logs as of the last records
        self.positions: dict[TopicPartition, int] = {}  # without partitions of which nothing was taken
        self.removed = 0  # records that were taken or dropped so far
        self.reads = 0  # the application's calls so far
        self.waiting_reads = 0
        self._convert = convert
        self._records: OrderedDict[TopicPartition, deque[Message]] = OrderedDict()  # in turn; never empty
        self._parked: dict[TopicPartition, int | None] = {}  # first dropped offset, None: nothing dropped yet
        self._pending_seeks: dict[TopicPartition, object] = {}  # the last one of each partition

    def __len__(self) -> int:
        return sum(map(len, self._records.values()))

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions with records."""
        return list(self._records)

    def add(self, partition: TopicPartition, messages: Sequence[Message]) -> None:
        """Keep a partition's next messages, except those of rules 2 to 4."""
        if partition not in self.readable or partition in self._pending_seeks:
            self.removed += len(messages)
        elif partition in self._parked:
            self._drop_parked(partition, messages)
        elif partition in self._records:
            self._records[partition].extend(messages)
        else:
            self._records[partition] = deque(messages)

    def take(
        self, partitions: Collection[TopicPartition], limit: int | None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Remove up to `limit` records of these partitions (none: of all) and return them.

        A record that its deserializer rejects stays; the error is raised once it is the first one.
        """
        taken: dict[TopicPartition, list[ConsumerRecord]] = {}
        left = len(self) if limit is None else limit
        for partition in self.partitions:
            if left > 0 and (not partitions or partition in partitions):
                try:
                    self._take_of(partition, left, taken)
                except Exception:
                    if not taken:
                        raise
                    return taken
                left -= len(taken.get(partition, ()))
        return taken

    def take_one(self, partitions: Collection[TopicPartition]) -> ConsumerRecord | None:
        """Remove the next record of these partitions (none: of all) and return it."""
        for partition, records in self._records.items():
            if not partitions or partition in partitions:
                record = self._convert(records[0])
                self._advance(partition, record.offset)
                return record
        return None

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop the records of these partitions and keep no more of them; their positions stay."""
        for partition in list(partitions):
            self.removed += len(self._records.pop(partition, ()))
            self._parked.pop(partition, None)
            self._pending_seeks.pop(partition, None)
            self.highwaters.pop(partition, None)
            self.readable.discard(partition)

    def next_offset(self, partition: TopicPartition) -> int | None:
        """Return the position, or the offset of the first fetched record; None if neither is known."""
        if (position := self.positions.get(partition)) is not None:
            return position
        if partition in self._records:
            return self._records[partition][0].offset()
        return self._parked.get(partition)

    def take_positions(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """Remove the positions of these partitions, by default all, and return them."""
        chosen = list(self.positions) if partitions is None else partitions
        return {p: self.positions.pop(p) for p in chosen if p in self.positions}

    def begin_seek(self, partition: TopicPartition, offset: int) -> Callable[[], None]:
        """Set the position; the result is to be called once the data plane has carried the seek out."""
        self.removed += len(self._records.pop(partition, ()))
        if partition in self._parked:
            self._parked[partition] = None
        self.positions[partition] = offset
        self._pending_seeks[partition] = seek = object()
        return partial(self._end_seek, partition, seek)

    def park(self, partition: TopicPartition) -> None:
        """Drop the records of a partition until `unpark`."""
        self._parked.setdefault(partition, None)
        self._drop_parked(partition, self._records.pop(partition, ()))

    def unpark(self, partition: TopicPartition) -> int | None:
        """Keep records again; return the offset to seek to, None if nothing was dropped."""
        return self._parked.pop(partition, None)

    def _end_seek(self, partition: TopicPartition, seek: object) -> None:
        """Keep the records that arrive from now on, unless a later seek is pending."""
        if self._pending_seeks.get(partition) is seek:
            del self._pending_seeks[partition]

    def _drop_parked(self, partition: TopicPartition, messages: Sequence[Message]) -> None:
        if messages and self._parked[partition] is None:
            self._parked[partition] = messages[0].offset()
        self.removed += len(messages)

    def _take_of(
        self, partition: TopicPartition, limit: int, taken: dict[TopicPartition, list[ConsumerRecord]]
    ) -> None:
        records = self._records[partition]
        for _ in range(min(limit, len(records))):
            record = self._convert(records[0])
            taken.setdefault(partition, []).append(record)
            self._advance(partition, record.offset)

    def _advance(self, partition: TopicPartition, offset: int) -> None:
        records = self._records[partition]
        records.popleft()
        self.positions[partition] = offset + 1
        self.removed += 1
        if records:
            self._records.move_to_end(partition)
        else:
            del self._records[partition]


def to_record(
    message: Message, key_deserializer: Deserializer | None, value_deserializer: Deserializer | None
) -> ConsumerRecord:
    """Return the message as aiokafka does."""
    key, value = message.key(), message.value()
    kind, timestamp = message.timestamp()
    known = kind != TIMESTAMP_NOT_AVAILABLE
    topic, partition = partition_of(message)
    return ConsumerRecord(
        topic,
        partition,
        int(message.offset() or 0),
        timestamp if known else -1,
        kind - 1 if known else 0,  # librdkafka counts from 1
        key if key_deserializer is None else key_deserializer(key),
        value if value_deserializer is None else value_deserializer(value),
        None,
        -1 if key is None else len(key),
        -1 if value is None else len(value),
        tuple(cast("list[tuple[str, bytes | None]]", message.headers() or [])),
    )
