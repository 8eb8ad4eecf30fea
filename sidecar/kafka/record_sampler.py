"""Samples sizes of the newest records with a consumer that neither joins a group nor commits."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.model import TopicPartition

RECORDS_PER_PARTITION: Final = 8  # read of each partition
MAX_SAMPLED_PARTITIONS: Final = 64  # partitions of one turn
SAMPLE_TIMEOUT_S: Final = 0.5  # seconds of one turn
RESAMPLE_INTERVAL_S: Final = 30.0  # seconds after which a partition is sampled anew

SAMPLER_GROUP_ID: Final = "trimtab-sidecar-record-sampler"
"""Group id of the sampling consumer; it needs no ACL."""


class RecordSampler:
    """Samples a few records of the least recently sampled partitions."""

    def __init__(self, client: Mapping[str, Any]) -> None:
        self._consumer = Consumer(
            {
                **client,
                "group.id": SAMPLER_GROUP_ID,  # librdkafka wants one; it is never joined
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "latest",
                "fetch.wait.max.ms": 50,
                "fetch.message.max.bytes": 65_536,
                "queued.max.messages.kbytes": 4096,
            }
        )
        self._attempted_at: dict[TopicPartition, float] = {}
        self._sampled_at: dict[TopicPartition, float] = {}
        self.denied_topics: frozenset[str] = frozenset()
        """Topics that denied the last read."""

    def sample_record_sizes(
        self, ends: Mapping[TopicPartition, int], begins: Mapping[TopicPartition, int], now: float
    ) -> dict[TopicPartition, Sequence[int]]:
        """Return sizes of newest records in bytes (key, value, headers) where they are due."""
        known = (p for p in ends if ends[p] > begins.get(p, ends[p]))
        due = [p for p in known if now - self._sampled_at.get(p, float("-inf")) >= RESAMPLE_INTERVAL_S]
        due.sort(key=lambda p: (self._attempted_at.get(p, float("-inf")), p))
        chosen = due[:MAX_SAMPLED_PARTITIONS]
        self._attempted_at.update(
            dict.fromkeys(chosen, now)
        )  # else unresponsive partitions starve the others
        if not chosen:
            return {}
        starts = {p: max(begins[p], ends[p] - RECORDS_PER_PARTITION) for p in chosen}
        try:
            messages = self._read_newest_records(starts, sum(ends[p] - starts[p] for p in chosen))
        except KafkaException:
            return {}  # asked again next turn; what is not answered stays unknown
        self.denied_topics = frozenset(str(m.topic()) for m in messages if _is_topic_denied(m))
        sizes = _group_sizes_by_partition(messages)
        self._sampled_at.update(dict.fromkeys(sizes, now))
        return sizes

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _read_newest_records(self, starts: Mapping[TopicPartition, int], count: int) -> list[Message]:
        self._consumer.assign([RawPartition(p.topic, p.partition, o) for p, o in starts.items()])
        try:
            return self._consumer.consume(count, timeout=SAMPLE_TIMEOUT_S)
        finally:
            self._consumer.unassign()


def _group_sizes_by_partition(messages: Sequence[Message]) -> dict[TopicPartition, Sequence[int]]:
    found: defaultdict[TopicPartition, list[int]] = defaultdict(list)
    for message in messages:
        topic, partition = message.topic(), message.partition()
        if message.error() is None and topic is not None and partition is not None:
            found[TopicPartition(topic, partition)].append(_compute_record_size(message))
    return dict(found)


def _is_topic_denied(message: Message) -> bool:
    error = message.error()
    return error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def _compute_record_size(message: Message) -> int:
    headers: Any = message.headers() or ()
    extra = sum(len(name) + len(value or b"") for name, value in headers)
    return len(message.key() or b"") + len(message.value() or b"") + extra
