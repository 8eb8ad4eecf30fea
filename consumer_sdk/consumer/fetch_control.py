"""What the consumer does to the data plane: begin, stop, go back."""

import logging
from collections.abc import Iterable
from typing import Final

from confluent_kafka import OFFSET_INVALID, KafkaException, Message
from confluent_kafka import Consumer as DataConsumer
from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.consumer.client_adapters import partition_of, to_partition
from trimtab.consumer_sdk.consumer.partition_state import PartitionState

log = logging.getLogger("trimtab.consumer_sdk")

METADATA_TIMEOUT_S: Final = 2.0
"""Seconds that a question for metadata may take before partitions are begun without."""


def resolve_start_offsets(
    data_plane: DataConsumer,
    partition_state: PartitionState,
    partitions: Iterable[TopicPartition],
    default_offset: int = OFFSET_INVALID,
) -> list[RawPartition]:
    """Return where to begin: at the committed offsets, at `default_offset` where there are none."""
    asked = [RawPartition(*p) for p in sorted(partitions)]
    _prefetch_leaders(data_plane, {p.topic for p in asked})
    try:
        found = data_plane.committed(asked, timeout=5) if asked else []
    except KafkaException as error:
        log.warning("committed offsets: %s; librdkafka will ask again", error)
        return asked
    for partition in found:
        partition_state.record_release_time(to_partition(partition), partition.metadata)
    known = {to_partition(p): p.offset for p in found if p.error is None}
    partition_state.committed_offsets.update(
        {p: offset for p, offset in known.items() if offset >= 0}
    )
    begins = {p: offset if offset >= 0 else default_offset for p, offset in known.items()}
    return [
        RawPartition(*to_partition(p), begins.get(to_partition(p), OFFSET_INVALID)) for p in asked
    ]


def warm_up_connections(data_plane: DataConsumer, topics: Iterable[str]) -> None:
    """Connect to the brokers and the coordinator while the group is being joined.

    Else the first partitions would wait for it, which nobody reads meanwhile.
    """
    names = sorted(t for t in topics if not t.startswith("^"))
    _prefetch_leaders(data_plane, set(names))
    try:
        if names:
            data_plane.committed([RawPartition(names[0], 0)], timeout=METADATA_TIMEOUT_S)
    except KafkaException as error:
        log.debug("coordinator: %s; librdkafka will ask again", error)


def _prefetch_leaders(data_plane: DataConsumer, topics: set[str]) -> None:
    """Let librdkafka have the metadata of topics that are new to it.

    It looks for leaders that it does not know once a second only, and meanwhile fetches nothing.
    """
    unknown = sorted(topics - {p.topic for p in data_plane.assignment()})
    try:
        if len(unknown) == 1:
            data_plane.list_topics(unknown[0], timeout=METADATA_TIMEOUT_S)
        elif unknown:
            data_plane.list_topics(timeout=METADATA_TIMEOUT_S)
    except KafkaException as error:
        log.debug("metadata of %s: %s; librdkafka will ask again", unknown, error)


def seek_back(data_plane: DataConsumer, messages: Iterable[Message]) -> None:
    """Go back to before these records, as if they had never been fetched."""
    first: dict[TopicPartition, int] = {}
    for message in messages:
        if message.error() is None:
            first.setdefault(partition_of(message), int(message.offset() or 0))
    for partition, offset in first.items():
        data_plane.seek(RawPartition(*partition, offset))


def stop_fetching(data_plane: DataConsumer, partitions: Iterable[TopicPartition]) -> None:
    """Stop fetching those of the partitions that are being fetched."""
    reading = {to_partition(p) for p in data_plane.assignment()}
    gone = [RawPartition(*p) for p in partitions if p in reading]
    if gone:
        data_plane.incremental_unassign(gone)
