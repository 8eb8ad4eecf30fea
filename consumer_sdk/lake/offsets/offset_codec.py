"""What a table remembers by group, topic and partition, as JSON: marks and gaps.

`{"v": 1, "groups": {group: {topic: {partition: value}}}}`; equal values give equal text.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from trimtab.assignor.model import TopicPartition

T = TypeVar("T")

OFFSET_CODEC_VERSION: Final = 1

OFFSET_DECODE_ERRORS: Final = (ValueError, TypeError, KeyError, AttributeError)
"""What `decode_groups` raises for a text that is none of this version."""


def encode_groups(
    groups: Mapping[str, Mapping[TopicPartition, T]], encode_value: Callable[[T], object]
) -> str:
    """Return JSON; `encode_value` gives a value as JSON has it."""
    told_groups: dict[str, dict[str, dict[str, object]]] = {}
    for group, partitions in sorted(groups.items()):
        topics = told_groups.setdefault(group, {})
        for (topic, partition), value in sorted(partitions.items()):
            topics.setdefault(topic, {})[str(partition)] = encode_value(value)
    return json.dumps({"v": OFFSET_CODEC_VERSION, "groups": told_groups}, separators=(",", ":"))


def decode_groups(
    text: str, decode_value: Callable[[Any], T]
) -> dict[str, dict[TopicPartition, T]]:
    """Read JSON; `decode_value` takes a value as JSON has it. Raises ILLEGIBLE."""
    body = json.loads(text)
    if body["v"] != OFFSET_CODEC_VERSION:
        raise ValueError(f"version {body['v']!r}")
    return {
        group: {
            TopicPartition(topic, int(partition)): decode_value(value)
            for topic, partitions in topics.items()
            for partition, value in partitions.items()
        }
        for group, topics in body["groups"].items()
    }
