"""The consumer protocol in bytes (KIP-429, KIP-792, KIP-881): subscriptions in, assignments out.

All is big-endian; a string is an int16 length and UTF-8, an array an int32 length and its items,
bytes an int32 length (-1: none) and the bytes.

    subscription v0: [topic], user data
                 v1: + [topic, [partition]]    what the member reads
                 v2: + int32                   since which generation
                 v3: + string or none (-1)     its rack
    assignment v0-3: [topic, [partition]], user data

A reader takes a newer version as far as it knows its fields, as Kafka's own do. Partition numbers
never become Python objects: each member's are one array.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct, error
from typing import Final

import numpy as np

from trimtab.assignor.errors import BadPayload
from trimtab.assignor.model import NOBODY, BoolArray, IntArray
from trimtab.assignor.universe import Holding, Universe

ASSIGNMENT_VERSION: Final = 1

_SHORT: Final = Struct(">h")
_INT: Final = Struct(">i")
_GENERATION_SINCE: Final = 2
_RACK_SINCE: Final = 3
_WIRE_INT: Final = np.dtype(">i4")


@dataclass(frozen=True, slots=True, eq=False)
class Subscription:
    """What a member sends when it joins; `generation` is -1 where it does not say."""

    topics: tuple[str, ...] = ()
    user_data: bytes | None = None
    owned: Holding = Holding()  # noqa: RUF009 - frozen
    generation: int = -1
    rack: str | None = None


def decode_subscription(data: bytes) -> Subscription:
    """Read a ConsumerProtocolSubscription of any version. Raises BadPayload."""
    try:
        return _subscription(data)
    except (error, IndexError, UnicodeDecodeError, ValueError) as fault:
        raise BadPayload(f"subscription is malformed: {fault}: {data[:80]!r}") from fault


def _subscription(data: bytes) -> Subscription:
    reader = _Reader(data)
    version = reader.short()
    if version < 0:
        raise ValueError(f"version {version}")
    topics = tuple(reader.string() for _ in range(reader.count()))
    return Subscription(
        topics=topics,
        user_data=reader.blob(),
        owned=reader.holding() if version else Holding(),
        generation=reader.integer() if version >= _GENERATION_SINCE else -1,
        rack=reader.optional_string() if version >= _RACK_SINCE else None,
    )


class _Reader:
    """Reads one value after the other; what is cut off is an error, never a shorter value."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def short(self) -> int:
        (value,) = _SHORT.unpack_from(self._data, self._at)
        self._at += 2
        return int(value)

    def integer(self) -> int:
        (value,) = _INT.unpack_from(self._data, self._at)
        self._at += 4
        return int(value)

    def count(self) -> int:
        """Read an array's length; none (-1) counts as empty."""
        return max(0, self.integer())

    def string(self) -> str:
        return self._take(self.short()).decode()

    def optional_string(self) -> str | None:
        length = self.short()
        return None if length < 0 else self._take(length).decode()

    def blob(self) -> bytes | None:
        length = self.integer()
        return None if length < 0 else self._take(length)

    def holding(self) -> Holding:
        """Read [topic, [partition]]."""
        topics: list[str] = []
        counts: list[int] = []
        pieces: list[bytes] = []
        for _ in range(self.count()):
            topics.append(self.string())
            counts.append(self.count())
            pieces.append(self._take(4 * counts[-1]))
        number = np.frombuffer(b"".join(pieces), dtype=_WIRE_INT).astype(np.int32)
        return Holding(tuple(topics), tuple(counts), number)

    def _take(self, length: int) -> bytes:
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise ValueError(f"{length} bytes at {self._at} of {len(self._data)}")
        piece = self._data[self._at : end]
        self._at = end
        return piece


def encode_assignments(
    universe: Universe,
    owner: IntArray,
    user_data: Sequence[bytes],
    version: int = ASSIGNMENT_VERSION,
) -> list[bytes]:
    """Return each member's ConsumerProtocolAssignment, sorted by topic and number.

    `owner` (P,) is the member that gets each partition, NOBODY for none; `user_data` has one entry
    a member.
    """
    held = np.flatnonzero(owner != NOBODY)
    item = held[np.argsort(_narrow(owner[held], len(user_data)), kind="stable")]
    member, topic = owner[item], universe.topic[item]
    numbers = universe.number[item].astype(_WIRE_INT).tobytes()
    ends = np.flatnonzero(_last_of_group(member, topic)) + 1
    entries: list[list[bytes]] = [[] for _ in user_data]
    names = [_string(name) for name in universe.topics]
    at = 0
    for m, t, end in zip(
        member[ends - 1].tolist(), topic[ends - 1].tolist(), ends.tolist(), strict=True
    ):
        entries[m] += (names[t], _INT.pack(end - at), numbers[4 * at : 4 * end])
        at = end
    begin = _SHORT.pack(version)
    return [
        b"".join((begin, _INT.pack(len(entry) // 3), *entry, _INT.pack(len(data)), data))
        for entry, data in zip(entries, user_data, strict=True)
    ]


def _narrow(owner: IntArray, members: int) -> np.ndarray[tuple[int], np.dtype[np.integer]]:
    """Return the owners in 16 bits where they fit: those numpy sorts by radix, ten times faster."""
    return owner.astype(np.uint16) if members <= np.iinfo(np.uint16).max else owner


def _last_of_group(member: IntArray, topic: IntArray) -> BoolArray:
    """Tell where the next item is another member's, or of another topic."""
    last = np.ones(len(member), dtype=np.bool_)
    last[:-1] = (np.diff(member) != 0) | (np.diff(topic) != 0)
    return last


def _string(text: str) -> bytes:
    data = text.encode()
    return _SHORT.pack(len(data)) + data
