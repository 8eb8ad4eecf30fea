"""Commit metadata of a `kmq` queue's trackers, and the names of their topic and group.

A tracker commits the marker offset that it still needs. The commit's metadata counts the open
messages, so that one OffsetFetch gives the sidecar progress and queue depth as of one moment.
"""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Final

MAX_COUNT: Final = 2**63  # offsets are below it, and numbers of messages


@dataclass(frozen=True, slots=True)
class OpenMessages:
    """Numbers of open messages of one partition, as of the marker before offset `read`."""

    read: int
    working: int  # in flight
    returned: int  # released or timed out, awaiting redelivery

    def encode(self) -> str:
        """Return the commit's metadata."""
        return json.dumps(asdict(self), separators=(",", ":"))


def decode_open_messages(metadata: str) -> OpenMessages | None:
    """Decode commit metadata; None if another program wrote it."""
    # any client may commit in this group, with any metadata
    with suppress(ValueError, TypeError, RecursionError):
        counts = OpenMessages(**json.loads(metadata.rstrip("\0")))  # confluent-kafka needs the NUL
        if all(type(number) is int and 0 <= number < MAX_COUNT for number in asdict(counts).values()):
            return counts
    return None


def markers_topic(topic: str, group: str) -> str:
    """Return the default name of the markers topic."""
    return f"{topic}.{group}.markers"


def tracker_group(group: str) -> str:
    """Return the consumer group of a queue's trackers."""
    return f"{group}-redeliver"
