"""Measures the group's lag for the `lag-aware` heuristic if no sidecar publishes it."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from confluent_kafka import Consumer as DataConsumer
from confluent_kafka import TopicPartition as RawPartition
from confluent_kafka import admin as admin_api
from confluent_kafka.admin import AdminClient

from trimtab.assignor.model import TopicPartition
from trimtab.common.lag import compute_lag

_LAG_ADMIN_API: Final[Any] = admin_api  # its OffsetSpec is neither typed nor declared as exported

LAG_QUERY_TIMEOUT_S: Final = 5.0  # of each of the four requests


def measure_lags(
    consumer: DataConsumer, admin: AdminClient, topics: Sequence[str], *, from_beginning: bool
) -> dict[TopicPartition, int]:
    """Return the lag in records of each partition; names that begin with "^" are patterns.

    Raises KafkaException if the brokers do not answer.
    """
    partitions = _list_partitions(admin, topics)
    if not partitions:
        return {}
    ends = _list_offsets(admin, partitions, _LAG_ADMIN_API.OffsetSpec.latest())
    beginnings = _list_offsets(admin, partitions, _LAG_ADMIN_API.OffsetSpec.earliest())
    requested = [RawPartition(*p) for p in partitions]
    fetched = consumer.committed(requested, timeout=LAG_QUERY_TIMEOUT_S)
    # librdkafka marks a partition without a commit by a negative offset.
    committed = {TopicPartition(p.topic, p.partition): p.offset for p in fetched if p.offset >= 0}
    return {
        p: compute_lag(ends[p], committed.get(p), beginnings[p], from_beginning=from_beginning)
        for p in partitions
    }


def _list_partitions(admin: AdminClient, topics: Sequence[str]) -> list[TopicPartition]:
    existing = admin.list_topics(timeout=LAG_QUERY_TIMEOUT_S).topics
    return sorted(
        TopicPartition(name, number)
        for name, topic in existing.items()
        if any(re.match(p, name) if p.startswith("^") else p == name for p in topics)
        for number in topic.partitions
    )


def _list_offsets(
    admin: AdminClient, partitions: Iterable[TopicPartition], offset_spec: Any
) -> dict[TopicPartition, int]:
    specs = {RawPartition(*p): offset_spec for p in partitions}
    futures = admin.list_offsets(specs, request_timeout=LAG_QUERY_TIMEOUT_S)
    return {TopicPartition(p.topic, p.partition): f.result().offset for p, f in futures.items()}
