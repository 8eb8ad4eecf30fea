"""Measures the group's lags for the `lag-aware` heuristic where no sidecar publishes them."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from confluent_kafka import Consumer as DataConsumer
from confluent_kafka import TopicPartition as RawPartition
from confluent_kafka import admin as admin_api
from confluent_kafka.admin import AdminClient

from trimtab.assignor.model import TopicPartition
from trimtab.common.lag import lag_of

_API: Final[Any] = admin_api  # its OffsetSpec is neither typed nor declared as exported

TIMEOUT: Final = 5.0
"""Seconds that one question to the brokers may take."""


def measure(
    consumer: DataConsumer, admin: AdminClient, topics: Sequence[str], *, from_beginning: bool
) -> dict[TopicPartition, int]:
    """Return the lag of every partition of these topics; names that begin with "^" are patterns.

    Raises KafkaException when the brokers do not answer.
    """
    partitions = _partitions(admin, topics)
    if not partitions:
        return {}
    ends = _offsets(admin, partitions, _API.OffsetSpec.latest())
    beginnings = _offsets(admin, partitions, _API.OffsetSpec.earliest())
    asked = [RawPartition(*p) for p in partitions]
    committed = {
        TopicPartition(p.topic, p.partition): p.offset if p.offset >= 0 else None
        for p in consumer.committed(asked, timeout=TIMEOUT)
    }
    return {
        p: lag_of(ends[p], committed.get(p), beginnings[p], from_beginning=from_beginning)
        for p in partitions
    }


def _partitions(admin: AdminClient, topics: Sequence[str]) -> list[TopicPartition]:
    known = admin.list_topics(timeout=TIMEOUT).topics
    return sorted(
        TopicPartition(name, number)
        for name, topic in known.items()
        if any(_matches(pattern, name) for pattern in topics)
        for number in topic.partitions
    )


def _matches(pattern: str, name: str) -> bool:
    return bool(re.match(pattern, name)) if pattern.startswith("^") else pattern == name


def _offsets(
    admin: AdminClient, partitions: Iterable[TopicPartition], which: Any
) -> dict[TopicPartition, int]:
    asked = {RawPartition(*p): which for p in partitions}
    answers = admin.list_offsets(asked, request_timeout=TIMEOUT)
    return {TopicPartition(p.topic, p.partition): f.result().offset for p, f in answers.items()}
