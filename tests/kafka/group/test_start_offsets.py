"""Where a consumer starts to read partitions without a committed offset."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, Producer

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.consumer.fetch_control import resolve_start_offsets
from trimtab.consumer_sdk.consumer.partition_state import PartitionState

pytestmark = pytest.mark.broker

RECORDS = 3


@pytest.mark.parametrize(("default", "offset"), [(OFFSET_BEGINNING, 0), (OFFSET_END, RECORDS)])
def test_the_ends_of_a_log_are_known_before_it_is_read(
    default: int, offset: int, topic: Callable[..., str], bootstrap: str, group: str
) -> None:
    """Of a logical one librdkafka may ask the broker again later, and forget a seek that came meanwhile."""
    name = topic(partitions=2)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for _ in range(RECORDS):
        producer.produce(name, b"x", partition=0)
    producer.flush()
    data: Any = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        partitions = [TopicPartition(name, 0), TopicPartition(name, 1)]
        starts = resolve_start_offsets(data, PartitionState(), partitions, default)
    finally:
        data.close()
    assert [(start.partition, start.offset) for start in starts] == [(0, offset), (1, 0)]
