"""Starts, stops and rewinds fetching on the data plane."""

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
"""Seconds to wait for metadata before partitions start without it."""

COMMITTED_TIMEOUT_S: Final = 5.0
"""Seconds to wait for committed offsets."""


def resolve_start_offsets(
    data_plane: DataConsumer,
    partition_state: PartitionState,
    partitions: Iterable[TopicPartition],
    default_offset: int = OFFSET_INVALID,
) -> list[RawPartition]:
    """Return the partitions with their committed offsets, or with `default_offset`."""
    requested = [RawPartition(*p) for p in sorted(partitions)]
    _prefetch_leaders(data_plane, {p.topic for p in requested})
    try:
        fetched = data_plane.committed(requested, timeout=COMMITTED_TIMEOUT_S) if requested else []
    except KafkaException as error:
        log.warning("committed offsets: %s; librdkafka will retry", error)
        return requested
    for partition in fetched:
        partition_state.record_release_time(to_partition(partition), partition.metadata)
    offsets = {to_partition(p): p.offset for p in fetched if p.error is None}
    committed = {p: offset for p, offset in offsets.items() if offset >= 0}
    partition_state.committed_offsets.update(committed)
    starts = {**dict.fromkeys(offsets, default_offset), **committed}
    return [RawPartition(*to_partition(p), starts.get(to_partition(p), OFFSET_INVALID)) for p in requested]


def warm_up_connections(data_plane: DataConsumer, topics: Iterable[str]) -> None:
    """Connect to the brokers and the coordinator while the group is being joined."""
    names = sorted(t for t in topics if not t.startswith("^"))
    _prefetch_leaders(data_plane, set(names))
    # The first partitions would wait for the connection otherwise, and no other member reads them.
    try:
        if names:
            data_plane.committed([RawPartition(names[0], 0)], timeout=METADATA_TIMEOUT_S)
    except KafkaException as error:
        log.debug("coordinator: %s; librdkafka will retry", error)


def _prefetch_leaders(data_plane: DataConsumer, topics: set[str]) -> None:
    """Load the metadata of topics that librdkafka does not read yet."""
    # librdkafka looks up unknown leaders once a second only, and fetches nothing meanwhile.
    unknown = sorted(topics - {p.topic for p in data_plane.assignment()})
    try:
        if len(unknown) == 1:
            data_plane.list_topics(unknown[0], timeout=METADATA_TIMEOUT_S)
        elif unknown:
            data_plane.list_topics(timeout=METADATA_TIMEOUT_S)
    except KafkaException as error:
        log.debug("metadata of %s: %s; librdkafka will retry", unknown, error)


def seek_back(data_plane: DataConsumer, messages: Iterable[Message]) -> None:
    """Seek to the first of these messages in each partition, as if they had not been fetched."""
    first: dict[TopicPartition, int] = {}  # messages of a partition are in order
    for message in messages:
        if message.error() is None:
            first.setdefault(partition_of(message), int(message.offset() or 0))
    for partition, offset in first.items():
        data_plane.seek(RawPartition(*partition, offset))


def stop_fetching(data_plane: DataConsumer, partitions: Iterable[TopicPartition]) -> None:
    """Stop fetching the partitions; ignore those that are not being fetched."""
    # librdkafka raises on partitions that it does not have, such as those of a failed callback.
    reading = {to_partition(p) for p in data_plane.assignment()}
    gone = [RawPartition(*p) for p in partitions if p in reading]
    if gone:
        data_plane.incremental_unassign(gone)
