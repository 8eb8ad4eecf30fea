"""When a group was rebalanced: the generations in its own record in `__consumer_offsets`."""

import struct
from collections.abc import Iterator
from typing import Final

from confluent_kafka import Consumer, TopicPartition

OFFSETS: Final = "__consumer_offsets"
GROUP: Final = 2
"""Version of a key there under which a group's own state stands."""


def generations(bootstrap: str, group: str) -> list[tuple[float, int]]:
    """Return when the group was rebalanced, and the number of the generation that began."""
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
    """Return the version of a key, and the name that stands in it."""
    version, length = struct.unpack_from(">hh", key)
    return version, key[4 : 4 + length].decode()


def generation(value: bytes) -> int:
    """Return the number behind the version and the protocol's type."""
    (length,) = struct.unpack_from(">h", value, 2)
    (number,) = struct.unpack_from(">i", value, 4 + length)
    return int(number)
