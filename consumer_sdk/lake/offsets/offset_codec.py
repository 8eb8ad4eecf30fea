"""What a table remembers by group, topic and partition, as JSON: marks and gaps.

`{"v": 1, "groups": {group: {topic: {partition: value}}}}`; equal values give equal text.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from trimtab.assignor.model import TopicPartition

T = TypeVar("T")

VERSION: Final = 1

ILLEGIBLE: Final = (ValueError, TypeError, KeyError, AttributeError)
"""What `decode` raises for a text that is none of this version."""


def encode(groups: Mapping[str, Mapping[TopicPartition, T]], told: Callable[[T], object]) -> str:
    """Return JSON; `told` gives a value as JSON has it."""
    told_groups: dict[str, dict[str, dict[str, object]]] = {}
    for group, partitions in sorted(groups.items()):
        topics = told_groups.setdefault(group, {})
        for (topic, partition), value in sorted(partitions.items()):
            topics.setdefault(topic, {})[str(partition)] = told(value)
    return json.dumps({"v": VERSION, "groups": told_groups}, separators=(",", ":"))


def decode(text: str, read: Callable[[Any], T]) -> dict[str, dict[TopicPartition, T]]:
    """Read JSON; `read` takes a value as JSON has it. Raises ILLEGIBLE."""
    body = json.loads(text)
    if body["v"] != VERSION:
        raise ValueError(f"version {body['v']!r}")
    return {
        group: {
            TopicPartition(topic, int(partition)): read(value)
            for topic, partitions in topics.items()
            for partition, value in partitions.items()
        }
        for group, topics in body["groups"].items()
    }
