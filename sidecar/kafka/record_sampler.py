"""Samples sizes of the newest records with a consumer that neither joins a group nor commits."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from operator import methodcaller
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.model import TopicPartition

RECORDS_PER_PARTITION: Final = 8
MAX_SAMPLED_PARTITIONS: Final = 64  # per iteration: thousands of partitions are sampled in turn
SAMPLE_TIMEOUT_S: Final = 0.5  # of an iteration, which must not wait for slow leaders
RESAMPLE_INTERVAL_S: Final = 30.0  # record sizes change slowly
FORGET_AFTER_S: Final = 3600.0  # partitions of deleted topics, which are asked for no more
SAMPLER_GROUP_ID: Final = "trimtab-sidecar-record-sampler"  # never joined, so it needs no ACL
# Not `message.headers()`: a specialized call loses the error (`consumer_sdk.readable_headers`).
_read_headers: Final[Any] = methodcaller("headers")


class RecordSampler:
    """Samples a few records of the least recently sampled partitions."""

    def __init__(self, client: Mapping[str, Any]) -> None:
        self._consumer = Consumer(
            {
                **client,
                "group.id": SAMPLER_GROUP_ID,  # librdkafka requires one
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
        self.denied_topics: frozenset[str] = frozenset()  # of the last sample

    def sample_record_sizes(
        self, ends: Mapping[TopicPartition, int], begins: Mapping[TopicPartition, int], now: float
    ) -> dict[TopicPartition, Sequence[int]]:
        """Return sizes (bytes of key, value, headers) of the newest records of partitions that are due."""
        self._attempted_at = {p: at for p, at in self._attempted_at.items() if now - at < FORGET_AFTER_S}
        self._sampled_at = {p: at for p, at in self._sampled_at.items() if now - at < RESAMPLE_INTERVAL_S}
        filled = (p for p in ends if ends[p] > begins.get(p, ends[p]))
        due = [p for p in filled if p not in self._sampled_at]
        due.sort(key=lambda p: (self._attempted_at.get(p, float("-inf")), p))
        chosen = due[:MAX_SAMPLED_PARTITIONS]
        if not chosen:
            return {}
        # by attempt, not by success: else unresponsive partitions would starve the others
        self._attempted_at.update(dict.fromkeys(chosen, now))
        starts = {p: max(begins[p], ends[p] - RECORDS_PER_PARTITION) for p in chosen}
        try:
            messages = self._read_newest_records(starts, sum(ends[p] - starts[p] for p in chosen))
        except KafkaException:
            return {}  # sampled again in the next iteration
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
    sizes: defaultdict[TopicPartition, list[int]] = defaultdict(list)
    for message in messages:
        topic, partition = message.topic(), message.partition()
        if message.error() is None and topic is not None and partition is not None:
            sizes[TopicPartition(topic, partition)].append(_compute_size(message))
    return dict(sizes)


def _is_topic_denied(message: Message) -> bool:
    error = message.error()
    return error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def _compute_size(message: Message) -> int:
    try:
        headers: Any = _read_headers(message) or ()
    except (SystemError, UnicodeDecodeError):  # a name that is not UTF-8; a second read would end the process
        headers = ()
    in_headers = sum(len(name) + len(value or b"") for name, value in headers)
    return len(message.key() or b"") + len(message.value() or b"") + in_headers
