"""Sizes of the newest records, read with a consumer that joins no group and commits nothing."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.model import TopicPartition

RECORDS: Final = 8  # read of each partition
AT_ONCE: Final = 64  # partitions of one turn
PATIENCE: Final = 0.5  # seconds of one turn
AGAIN: Final = 30.0  # seconds after which a partition is sampled anew

SIZES: Final = "trimtab-sidecar-sizes"
"""Group of the reader of sizes, which needs no right."""


class Sampler:
    """Reads a few records of those partitions that were not looked at for longest."""

    def __init__(self, client: Mapping[str, Any]) -> None:
        self._consumer = Consumer(
            {
                **client,
                "group.id": SIZES,  # librdkafka wants one; it is never joined
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "latest",
                "fetch.wait.max.ms": 50,
                "fetch.message.max.bytes": 65_536,
                "queued.max.messages.kbytes": 4096,
            }
        )
        self._tried: dict[TopicPartition, float] = {}
        self._looked: dict[TopicPartition, float] = {}
        self.denied: frozenset[str] = frozenset()
        """Topics that the last turn was not allowed to read."""

    def sample(
        self,
        ends: Mapping[TopicPartition, int],
        begins: Mapping[TopicPartition, int],
        now: float,
    ) -> dict[TopicPartition, Sequence[int]]:
        """Return sizes of newest records in bytes (key, value, headers) where they are due."""
        known = (p for p in ends if ends[p] > begins.get(p, ends[p]))
        due = [p for p in known if now - self._looked.get(p, float("-inf")) >= AGAIN]
        due.sort(key=lambda p: (self._tried.get(p, float("-inf")), p))
        chosen = due[:AT_ONCE]
        self._tried.update(dict.fromkeys(chosen, now))  # else the silent ones starve the others
        if not chosen:
            return {}
        starts = {p: max(begins[p], ends[p] - RECORDS) for p in chosen}
        try:
            messages = self._read(starts, sum(ends[p] - starts[p] for p in chosen))
        except KafkaException:
            return {}  # asked again next turn; what is not answered stays unknown
        self.denied = frozenset(str(m.topic()) for m in messages if _is_denied(m))
        sizes = _sizes(messages)
        self._looked.update(dict.fromkeys(sizes, now))
        return sizes

    def close(self) -> None:
        """Let the consumer go."""
        self._consumer.close()

    def _read(self, starts: Mapping[TopicPartition, int], count: int) -> list[Message]:
        self._consumer.assign([RawPartition(p.topic, p.partition, o) for p, o in starts.items()])
        try:
            return self._consumer.consume(count, timeout=PATIENCE)
        finally:
            self._consumer.unassign()


def _sizes(messages: Sequence[Message]) -> dict[TopicPartition, Sequence[int]]:
    found: defaultdict[TopicPartition, list[int]] = defaultdict(list)
    for message in messages:
        topic, partition = message.topic(), message.partition()
        if message.error() is None and topic is not None and partition is not None:
            found[TopicPartition(topic, partition)].append(_size(message))
    return dict(found)


def _is_denied(message: Message) -> bool:
    error = message.error()
    return error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def _size(message: Message) -> int:
    headers: Any = message.headers() or ()
    extra = sum(len(name) + len(value or b"") for name, value in headers)
    return len(message.key() or b"") + len(message.value() or b"") + extra
