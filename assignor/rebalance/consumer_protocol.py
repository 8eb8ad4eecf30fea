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

from trimtab.assignor.model import NOBODY, BoolArray, IntArray
from trimtab.assignor.partition_index import Holding, Universe
from trimtab.common.errors import BadPayload

ASSIGNMENT_VERSION: Final = 1

_SHORT: Final = Struct(">h")
_INT: Final = Struct(">i")
_OWNED_SINCE: Final = 1
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
    return Decoder().subscription(data)


class Decoder:
    """Reads the subscriptions of one group, whose members mostly name the same topics.

    What is cut off is an error, never a shorter value.
    """

    def __init__(self) -> None:
        self._block = b""  # of the topics that were read last, with their tuple
        self._topics: tuple[str, ...] = ()
        self._names: dict[bytes, str] = {}

    def subscription(self, data: bytes) -> Subscription:
        """Read a ConsumerProtocolSubscription of any version. Raises BadPayload."""
        try:
            return self._subscription(data)
        except (error, ValueError) as fault:
            raise BadPayload(f"subscription is malformed: {fault}: {data[:80]!r}") from fault

    def _subscription(self, data: bytes) -> Subscription:
        (version,) = _SHORT.unpack_from(data)
        if version < 0:
            raise ValueError(f"version {version}")
        topics, at = self._subscribed(data)
        user_data, at = _blob(data, at)
        owned, generation, rack = Holding(), -1, None
        if version >= _OWNED_SINCE:
            owned, at = self._holding(data, at)
        if version >= _GENERATION_SINCE:
            (generation,) = _INT.unpack_from(data, at)
        if version >= _RACK_SINCE:
            rack = self._optional(data, at + 4)
        return Subscription(topics, user_data, owned, generation, rack)

    def _subscribed(self, data: bytes) -> tuple[tuple[str, ...], int]:
        """Read [topic]; the same bytes as last time are the same topics."""
        if not self._block or not data.startswith(self._block, 2):
            count, at = _count(data, 2)
            topics: list[str] = []
            for _ in range(count):
                piece, at = _string(data, at)
                topics.append(self._name(piece))
            self._topics, self._block = tuple(topics), data[2:at]
        return self._topics, 2 + len(self._block)

    def _holding(self, data: bytes, at: int) -> tuple[Holding, int]:
        """Read [topic, [partition]]."""
        entries, at = _count(data, at)
        topics: list[str] = []
        counts: list[int] = []
        pieces: list[bytes] = []
        for _ in range(entries):
            name, at = _string(data, at)
            topics.append(self._names.get(name) or self._name(name))
            count, at = _count(data, at)
            counts.append(count)
            pieces.append(data[at : at + 4 * count])
            at += 4 * count
        _within(data, at)
        number = np.frombuffer(b"".join(pieces), dtype=_WIRE_INT).astype(np.int32)
        return Holding(tuple(topics), tuple(counts), number), at

    def _optional(self, data: bytes, at: int) -> str | None:
        (length,) = _SHORT.unpack_from(data, at)
        return None if length < 0 else self._name(_string(data, at)[0])

    def _name(self, piece: bytes) -> str:
        return self._names.setdefault(piece, piece.decode())


def _count(data: bytes, at: int) -> tuple[int, int]:
    """Read an array's length, none (-1) as empty; return it and where the array begins."""
    (count,) = _INT.unpack_from(data, at)
    return max(0, count), at + 4


def _string(data: bytes, at: int) -> tuple[bytes, int]:
    """Read a string's bytes; return them and where they end."""
    (length,) = _SHORT.unpack_from(data, at)
    end = at + 2 + length
    if length < 0 or end > len(data):
        raise ValueError(f"a string of {length} bytes at {at} of {len(data)}")
    return data[at + 2 : end], end


def _blob(data: bytes, at: int) -> tuple[bytes | None, int]:
    """Read bytes or none; return them and where they end."""
    (length,) = _INT.unpack_from(data, at)
    at += 4
    if length < 0:
        return None, at
    _within(data, at + length)
    return data[at : at + length], at + length


def _within(data: bytes, end: int) -> None:
    if end > len(data):
        raise ValueError(f"{end} bytes are announced, {len(data)} are there")


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
    names = [_named(name) for name in universe.topics]
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


def _named(text: str) -> bytes:
    data = text.encode()
    return _SHORT.pack(len(data)) + data
