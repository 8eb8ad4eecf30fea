"""What the consumer does to the data plane: begin, stop, go back."""

import logging
from collections.abc import Iterable
from typing import Final

from confluent_kafka import OFFSET_INVALID, KafkaException, Message
from confluent_kafka import Consumer as DataConsumer
from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.consumer.client_adapters import key, key_of
from trimtab.consumer_sdk.consumer.partition_state import Bookkeeping

log = logging.getLogger("trimtab.consumer_sdk")

METADATA: Final = 2.0
"""Seconds that a question for metadata may take before partitions are begun without."""


def starts(
    data: DataConsumer,
    book: Bookkeeping,
    partitions: Iterable[TopicPartition],
    begin: int = OFFSET_INVALID,
) -> list[RawPartition]:
    """Return where to begin: at the committed offsets, at `begin` where there are none."""
    asked = [RawPartition(*p) for p in sorted(partitions)]
    _know_leaders(data, {p.topic for p in asked})
    try:
        found = data.committed(asked, timeout=5) if asked else []
    except KafkaException as error:
        log.warning("committed offsets: %s; librdkafka will ask again", error)
        return asked
    for partition in found:
        book.taken_over(key(partition), partition.metadata)
    known = {key(p): p.offset for p in found if p.error is None}
    book.committed.update({p: offset for p, offset in known.items() if offset >= 0})
    begins = {p: offset if offset >= 0 else begin for p, offset in known.items()}
    return [RawPartition(*key(p), begins.get(key(p), OFFSET_INVALID)) for p in asked]


def warm_up(data: DataConsumer, topics: Iterable[str]) -> None:
    """Connect to the brokers and the coordinator while the group is being joined.

    Else the first partitions would wait for it, which nobody reads meanwhile.
    """
    names = sorted(t for t in topics if not t.startswith("^"))
    _know_leaders(data, set(names))
    try:
        if names:
            data.committed([RawPartition(names[0], 0)], timeout=METADATA)
    except KafkaException as error:
        log.debug("coordinator: %s; librdkafka will ask again", error)


def _know_leaders(data: DataConsumer, topics: set[str]) -> None:
    """Let librdkafka have the metadata of topics that are new to it.

    It looks for leaders that it does not know once a second only, and meanwhile fetches nothing.
    """
    unknown = sorted(topics - {p.topic for p in data.assignment()})
    try:
        if len(unknown) == 1:
            data.list_topics(unknown[0], timeout=METADATA)
        elif unknown:
            data.list_topics(timeout=METADATA)
    except KafkaException as error:
        log.debug("metadata of %s: %s; librdkafka will ask again", unknown, error)


def rewind(data: DataConsumer, messages: Iterable[Message]) -> None:
    """Go back to before these records, as if they had never been fetched."""
    first: dict[TopicPartition, int] = {}
    for message in messages:
        if message.error() is None:
            first.setdefault(key_of(message), int(message.offset() or 0))
    for partition, offset in first.items():
        data.seek(RawPartition(*partition, offset))


def stop(data: DataConsumer, partitions: Iterable[TopicPartition]) -> None:
    """Stop fetching those of the partitions that are being fetched."""
    reading = {key(p) for p in data.assignment()}
    gone = [RawPartition(*p) for p in partitions if p in reading]
    if gone:
        data.incremental_unassign(gone)
