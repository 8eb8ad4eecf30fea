"""Rebalances of a group, by the generations in its records in `__consumer_offsets`."""

import struct
from collections.abc import Iterator
from typing import Final

from confluent_kafka import Consumer, TopicPartition

OFFSETS: Final = "__consumer_offsets"
GROUP: Final = 2
"""Version of the keys of a group's own records there."""


def generations(bootstrap: str, group: str) -> list[tuple[float, int]]:
    """Return the time and the new generation of each rebalance."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "trimtab-generations",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = consumer.list_topics(OFFSETS, 10).topics[OFFSETS].partitions
        consumer.assign([TopicPartition(OFFSETS, number, 0) for number in partitions])
        return sorted(_generations(consumer, len(partitions), group))
    finally:
        consumer.close()


def _generations(consumer: Consumer, ends: int, group: str) -> Iterator[tuple[float, int]]:
    while ends:
        for message in consumer.consume(1000, timeout=1.0):
            if message.error() is not None:
                ends -= 1  # the end of a partition
            elif message.value() is not None and group_of(message.key()) == (GROUP, group):
                yield message.timestamp()[1] / 1000, generation(message.value())


def group_of(key: bytes) -> tuple[int, str]:
    """Return the version of a key and the group name in it."""
    version, length = struct.unpack_from(">hh", key)
    return version, key[4 : 4 + length].decode()


def generation(value: bytes) -> int:
    """Return the generation after the version and the protocol type."""
    (length,) = struct.unpack_from(">h", value, 2)
    (number,) = struct.unpack_from(">i", value, 4 + length)
    return int(number)
