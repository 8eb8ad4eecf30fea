"""A partition by name, in a module of its own: consumers use it without numpy."""

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A partition by name; sorts by topic, then by number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
