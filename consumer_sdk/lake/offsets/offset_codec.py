"""JSON codec of a table's offsets and gaps, by group, topic and partition.

`{"v": 1, "groups": {group: {topic: {partition: value}}}}`; equal values give equal text.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from trimtab.assignor.model import TopicPartition

OffsetT = TypeVar("OffsetT")

OFFSET_CODEC_VERSION: Final = 1
OFFSET_DECODE_ERRORS: Final = (ValueError, TypeError, KeyError, AttributeError)  # of `decode_groups`


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
    body = json.loads(text)
    if body["v"] != OFFSET_CODEC_VERSION:
        raise ValueError(f"version {body['v']!r}")
    return {
        group: {
            TopicPartition(topic, int(partition)): decode(value)
            for topic, partitions in topics.items()
            for partition, value in partitions.items()
        }
        for group, topics in body["groups"].items()
    }
