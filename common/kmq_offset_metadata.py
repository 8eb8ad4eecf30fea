"""What the trackers of a `kmq` queue tell whoever scales its workers, and under which names.

A tracker commits how far it has read the markers, and which of them it still needs. Beside that
offset, in the commit's metadata, it says how many messages are open: one question about offsets
tells it all, and what is told is as old as the commit.
"""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class OpenMessages:
    """The open messages of one partition, as of the marker before offset `read`.

    `working` are in somebody's hands, `returned` were given back or up, and wait for the tracker.
    """

    read: int
    working: int
    returned: int

    def encode(self) -> str:
        """Return the commit's metadata."""
        return json.dumps(asdict(self), separators=(",", ":"))


def decode_open_messages(metadata: str) -> OpenMessages | None:
    """Return what a commit's metadata tell; None of any other note."""
    with suppress(ValueError, TypeError):
        found = OpenMessages(**json.loads(metadata.rstrip("\0")))
        if all(type(number) is int and number >= 0 for number in asdict(found).values()):
            return found
    return None


def markers_topic(topic: str, group: str) -> str:
    """Return the markers topic of a group's queue on a topic, unless it is given another name."""
    return f"{topic}.{group}.markers"


def tracker_group(group: str) -> str:
    """Return the group that the trackers of a queue form."""
    return f"{group}-redeliver"
