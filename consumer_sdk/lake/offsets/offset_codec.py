"""JSON codec of a table's offsets and gaps, by group, topic and partition.

`{"v": 1, "groups": {group: {topic: {partition: value}}}}`; equal values give equal text. Any other text
is an error: an offset that was rounded, or a key read as another one, would lose or repeat rows.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.lag import MAX_OFFSET

OffsetT = TypeVar("OffsetT")

OFFSET_CODEC_VERSION: Final = 1
# of `decode_groups`; deeply nested JSON is a RecursionError
OFFSET_DECODE_ERRORS: Final = (ValueError, TypeError, KeyError, AttributeError, RecursionError)


def encode_groups(
    groups: Mapping[str, Mapping[TopicPartition, OffsetT]], encode: Callable[[OffsetT], object]
) -> str:
    """Return JSON; `encode` makes a JSON value."""
    encoded: dict[str, dict[str, dict[str, object]]] = {}
    for group, partitions in sorted(groups.items()):  # sorted: equal offsets are equal bytes
        topics = encoded.setdefault(group, {})
        for (topic, partition), value in sorted(partitions.items()):
            topics.setdefault(topic, {})[str(partition)] = encode(value)
    return json.dumps({"v": OFFSET_CODEC_VERSION, "groups": encoded}, separators=(",", ":"))


def decode_groups(text: str, decode: Callable[[Any], OffsetT]) -> dict[str, dict[TopicPartition, OffsetT]]:
    """Parse JSON; `decode` reads a JSON value. Raises OFFSET_DECODE_ERRORS."""
    body = json.loads(text, object_pairs_hook=_reject_repeated_keys)
    if read_offset(body["v"]) != OFFSET_CODEC_VERSION:
        raise ValueError(f"version {body['v']!r}")
    return {
        group: {
            TopicPartition(topic, _read_partition(partition)): decode(value)
            for topic, partitions in topics.items()
            for partition, value in partitions.items()
        }
        for group, topics in body["groups"].items()
    }


def read_offset(value: object) -> int:
    """Return an offset of Kafka's range. Raises ValueError for any other value, also 7.0, "7" and true."""
    if type(value) is not int or not 0 <= value <= MAX_OFFSET:
        raise ValueError(f"{str(value)[:40]} is not an offset")
    return value


def _read_partition(key: str) -> int:
    if str(partition := int(key)) != key or partition < 0:  # "01" would be "1" again
        raise ValueError(f"{key[:40]!r} is not a partition")
    return partition


def _reject_repeated_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    body = dict(pairs)
    if len(body) < len(pairs):
        raise ValueError("a key is written twice")
    "".join(body).encode()  # half a surrogate pair cannot be printed: ValueError
    return body
