"""Arguments of AsyncConsumer's methods, checked as aiokafka does."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.consumer_sdk.consumer.asyncio.application_listener import check_listener

Partitions = Collection[TopicPartition]
CommitOffsets = Mapping[TopicPartition, int | tuple[int, str]]


class Subscription(NamedTuple):
    """What a consumer reads: topics, a pattern or partitions."""

    kind: Literal["topics", "pattern", "partitions"]
    names: tuple[str, ...] = ()
    partitions: frozenset[TopicPartition] = frozenset()


def check_subscription(topics: Collection[str], pattern: str | None, listener: object) -> Subscription:
    """Return the subscription. Raises TypeError, and ValueError for a pattern that does not compile."""
    if bool(topics) == bool(pattern):
        raise TypeError("You should provide either `topics` or `pattern`")
    if not isinstance(topics, list | tuple | set | frozenset):
        raise TypeError("Topics should be list of strings")
    _check_topic_names(topics)
    check_listener(listener)
    if pattern is None:
        return Subscription("topics", tuple(topics))
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a valid pattern: {error}") from error
    return Subscription("pattern", (f"^(?:{pattern})",))


def _check_topic_names(topics: Iterable[Any]) -> None:
    for name in topics:
        if not (isinstance(name, str) and name):
            example = "AsyncConsumer('orders', 'clicks') or subscribe(['orders', 'clicks'])"
            raise TypeError(f"{name!r} is no topic name; write {example}")


def check_partitions(partitions: Iterable[object]) -> None:
    """Raise TypeError unless all are pairs of topic and number."""
    for partition in partitions:
        if not (isinstance(partition, tuple) and len(partition) == 2):  # noqa: PLR2004 - topic and number
            raise TypeError(f"{partition!r} is no TopicPartition")


def check_seek_offset(offset: object) -> None:
    """Raise ValueError unless it is an int that is not negative."""
    if not isinstance(offset, int) or offset < 0:
        raise ValueError("Offset must be a positive integer")


def check_offsets(offsets: Mapping[TopicPartition, Any]) -> list[RawPartition]:
    """Return the offsets to commit. Raises ValueError and TypeError."""
    if not offsets or not isinstance(offsets, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"commit() takes a mapping of partitions to offsets, not {offsets!r}")
    check_partitions(offsets)
    return [_check_offset(partition, given) for partition, given in offsets.items()]


def _check_offset(partition: TopicPartition, given: Any) -> RawPartition:
    offset, metadata = (given, "") if isinstance(given, int) else _unpack_offset(given)
    return RawPartition(*partition, offset, metadata)


def _unpack_offset(given: Any) -> tuple[int, str]:
    try:
        offset, metadata = given
    except (TypeError, ValueError):
        raise ValueError(f"{given!r} is neither an offset nor a pair of offset and metadata") from None
    if not isinstance(metadata, str):
        raise TypeError("Metadata should be a string")
    return int(offset), metadata
