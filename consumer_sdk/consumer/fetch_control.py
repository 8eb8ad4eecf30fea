"""Starts, stops and rewinds fetching on the data plane."""

import logging
from collections.abc import Iterable
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, KafkaException, Message
from confluent_kafka import Consumer as DataConsumer
from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.consumer_sdk.client.client_adapters import partition_of, to_partition
from trimtab.consumer_sdk.consumer.partition_state import PartitionState

log = logging.getLogger("trimtab.consumer_sdk")

METADATA_TIMEOUT_S: Final = 2.0  # then partitions start without it: librdkafka looks it up itself
COMMITTED_TIMEOUT_S: Final = 5.0  # then librdkafka fetches the committed offsets itself


def resolve_start_offsets(
    data_plane: DataConsumer,
    state: PartitionState,
    partitions: Iterable[TopicPartition],
    default: int = OFFSET_INVALID,
) -> list[RawPartition]:
    """Return the partitions with their committed offsets, or with `default`."""
    ordered = sorted(partitions)
    requested = [RawPartition(*p) for p in ordered]
    _prefetch_leaders(data_plane, {p.topic for p in requested})
    try:
        fetched = data_plane.committed(requested, timeout=COMMITTED_TIMEOUT_S) if requested else []
    except KafkaException as error:
        log.warning("committed offsets: %s; librdkafka will retry", error)
        return requested
    for partition in fetched:
        state.record_release_time(partition)
    offsets = {to_partition(p): p.offset for p in fetched if p.error is None}
    committed = {p: offset for p, offset in offsets.items() if offset >= 0}
    state.add_fetched_commits(committed)
    # OFFSET_INVALID, not `default`, where the query failed: librdkafka queries it again.
    defaults = {p: default if p in offsets else OFFSET_INVALID for p in ordered}
    starts = [RawPartition(*p, offset) for p, offset in {**defaults, **committed}.items()]
    return _resolve_logical_offsets(data_plane, starts)


def _resolve_logical_offsets(
    data_plane: DataConsumer, partitions: Iterable[RawPartition]
) -> list[RawPartition]:
    """Return the partitions with the ends of their logs in place of logical offsets, where these answer."""
    # librdkafka repeats a failed query for a logical offset after 0.5 s, and then reads from there even if
    # a seek has come meanwhile (seen in 2.16).
    starts = {to_partition(p): p for p in partitions}
    logical = [p for p in starts.values() if p.offset in (OFFSET_BEGINNING, OFFSET_END)]
    try:
        # these are also the timestamps of a log's ends (ListOffsets)
        found = data_plane.offsets_for_times(logical, timeout=METADATA_TIMEOUT_S) if logical else []
    except KafkaException as error:
        log.debug("offsets of %s: %s; librdkafka looks them up", logical, error)
        found = []
    starts |= {to_partition(p): p for p in found if p.error is None and p.offset >= 0}
    return list(starts.values())


def warm_up_connections(data_plane: DataConsumer, topics: Iterable[str]) -> None:
    """Connect to the brokers and the coordinator while the group is being joined."""
    # The first partitions would wait for the connections otherwise, and no other member reads them.
    names = sorted(t for t in topics if not t.startswith("^"))
    _prefetch_leaders(data_plane, set(names))
    try:
        if names:
            data_plane.committed([RawPartition(names[0], 0)], timeout=METADATA_TIMEOUT_S)
    except KafkaException as error:
        log.debug("coordinator: %s; librdkafka will retry", error)


def _prefetch_leaders(data_plane: DataConsumer, topics: set[str]) -> None:
    # librdkafka looks up unknown leaders once a second only, and fetches nothing meanwhile.
    unknown = sorted(topics - {p.topic for p in data_plane.assignment()})
    try:
        if len(unknown) == 1:
            data_plane.list_topics(unknown[0], timeout=METADATA_TIMEOUT_S)
        elif unknown:
            data_plane.list_topics(timeout=METADATA_TIMEOUT_S)
    except KafkaException as error:
        log.debug("metadata of %s: %s; librdkafka will retry", unknown, error)


def seek_back(data_plane: DataConsumer, messages: Iterable[Message]) -> dict[TopicPartition, int]:
    """Seek to the first of these messages in each partition; return the offsets."""
    first: dict[TopicPartition, int] = {}  # messages of a partition are in order
    for message in messages:
        if message.error() is None:
            first.setdefault(partition_of(message), int(message.offset() or 0))
    for partition, offset in first.items():
        try:
            data_plane.seek(RawPartition(*partition, offset))
        except KafkaException as error:  # another thread has stopped it; the others must be rewound
            log.warning("%s: not rewound to offset %d: %s", partition, offset, error)
    return first


def stop_fetching(data_plane: DataConsumer, partitions: Iterable[TopicPartition]) -> None:
    """Stop fetching the partitions; ignore those that are not being fetched."""
    # librdkafka raises on partitions that it does not have, such as those of a failed callback.
    reading = {to_partition(p) for p in data_plane.assignment()}
    gone = [RawPartition(*p) for p in partitions if p in reading]
    if gone:
        data_plane.incremental_unassign(gone)
