"""Codec of the consumer protocol (KIP-429, KIP-792, KIP-881): subscriptions in, assignments out.

All is big-endian; a string is an int16 length and UTF-8, an array an int32 length and its items,
bytes an int32 length (-1: none) and the bytes. As in Kafka, a newer version is read up to the last
known field.

    subscription v0: [topic], user data
                 v1: + [topic, [partition]]    owned partitions
                 v2: + int32                   generation
                 v3: + string or none (-1)     rack
    assignment v0-3: [topic, [partition]], user data
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct, error
from typing import Final

import numpy as np

from trimtab.assignor.model import UNASSIGNED, IntArray
from trimtab.assignor.model.partition_index import OwnedPartitions, PartitionIndex
from trimtab.common.errors import InvalidPayloadError

ASSIGNMENT_VERSION: Final = 1  # later versions add nothing
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_OWNED_PARTITIONS_VERSION: Final = 1  # KIP-429
_GENERATION_VERSION: Final = 2  # KIP-792
_RACK_VERSION: Final = 3  # KIP-881
_INT32_BE: Final = np.dtype(">i4")


@dataclass(frozen=True, slots=True, eq=False)
class MemberSubscription:
    """The subscription in a member's JoinGroup."""

    topics: tuple[str, ...] = ()
    user_data: bytes | None = None
    owned: OwnedPartitions = OwnedPartitions()  # noqa: RUF009 - frozen
    generation: int = -1  # unknown: before version 2
    rack: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ReceivedAssignment:
    """The assignment in a member's SyncGroup response."""

    owned: OwnedPartitions
    user_data: bytes | None


def decode_subscription(data: bytes) -> MemberSubscription:
    """Decode a ConsumerProtocolSubscription of any version. Raises InvalidPayloadError."""
    return SubscriptionDecoder().decode(data)


def decode_assignment(data: bytes) -> ReceivedAssignment:
    """Decode a ConsumerProtocolAssignment of any version. Raises InvalidPayloadError."""
    return SubscriptionDecoder().decode_assignment(data)


class SubscriptionDecoder:
    """Decodes the subscriptions and assignments of one group; a truncated value is an error."""

    # Members of a group mostly subscribe to the same topics: their names are decoded once.
    def __init__(self) -> None:
        self._topics_bytes = b""  # encoded form of `_topics`
        self._topics: tuple[str, ...] = ()
        self._names: dict[bytes, str] = {}

    def decode(self, data: bytes) -> MemberSubscription:
        """Decode a ConsumerProtocolSubscription of any version. Raises InvalidPayloadError."""
        try:
            return self._decode_fields(data)
        except (error, ValueError) as fault:
            raise InvalidPayloadError(f"subscription is malformed: {fault}: {data[:80]!r}") from fault

    def decode_assignment(self, data: bytes) -> ReceivedAssignment:
        """Decode a ConsumerProtocolAssignment of any version. Raises InvalidPayloadError."""
        try:
            owned, at = self._read_owned(data, 2)
            return ReceivedAssignment(owned, _read_bytes(data, at)[0])
        except (error, ValueError) as fault:
            raise InvalidPayloadError(f"assignment is malformed: {fault}: {data[:80]!r}") from fault

    def _decode_fields(self, data: bytes) -> MemberSubscription:
        (version,) = _INT16.unpack_from(data)
        if version < 0:
            raise ValueError(f"version {version}")
        topics, at = self._read_topics(data)
        user_data, at = _read_bytes(data, at)
        owned, generation, rack = OwnedPartitions(), -1, None
        if version >= _OWNED_PARTITIONS_VERSION:
            owned, at = self._read_owned(data, at)
        if version >= _GENERATION_VERSION:
            (generation,) = _INT32.unpack_from(data, at)
        if version >= _RACK_VERSION:
            rack = self._read_optional_string(data, at + 4)
        return MemberSubscription(topics, user_data, owned, generation, rack)

    def _read_topics(self, data: bytes) -> tuple[tuple[str, ...], int]:
        if not self._topics_bytes or not data.startswith(self._topics_bytes, 2):
            count, at = _read_array_length(data, 2)
            topics: list[str] = []
            for _ in range(count):
                piece, at = _read_string(data, at)
                topics.append(self._intern_name(piece))
            self._topics, self._topics_bytes = tuple(topics), data[2:at]
        return self._topics, 2 + len(self._topics_bytes)

    def _read_owned(self, data: bytes, at: int) -> tuple[OwnedPartitions, int]:
        entries, at = _read_array_length(data, at)
        topics, counts, pieces = list[str](), list[int](), list[bytes]()
        for _ in range(entries):
            name, at = _read_string(data, at)
            topics.append(self._names.get(name) or self._intern_name(name))
            count, at = _read_array_length(data, at)
            counts.append(count)
            pieces.append(data[at : at + 4 * count])
            at += 4 * count
        _check_bounds(data, at)  # a slice beyond the end is short without an error
        # One array a member: 100,000 Python integers would take longer than the decision.
        number = np.frombuffer(b"".join(pieces), dtype=_INT32_BE).astype(np.int32)
        return OwnedPartitions(tuple(topics), tuple(counts), number), at

    def _read_optional_string(self, data: bytes, at: int) -> str | None:
        (length,) = _INT16.unpack_from(data, at)
        return None if length < 0 else self._intern_name(_read_string(data, at)[0])

    def _intern_name(self, piece: bytes) -> str:
        return self._names.setdefault(piece, piece.decode())


def _read_array_length(data: bytes, at: int) -> tuple[int, int]:
    (count,) = _INT32.unpack_from(data, at)
    return max(0, count), at + 4  # -1 is a missing array


def _read_string(data: bytes, at: int) -> tuple[bytes, int]:
    (length,) = _INT16.unpack_from(data, at)
    end = at + 2 + length
    if length < 0 or end > len(data):
        raise ValueError(f"a string of {length} bytes at {at} of {len(data)}")
    return data[at + 2 : end], end


def _read_bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    (length,) = _INT32.unpack_from(data, at)
    at += 4
    if length < 0:
        return None, at
    _check_bounds(data, at + length)
    return data[at : at + length], at + length


def _check_bounds(data: bytes, end: int) -> None:
    if end > len(data):
        raise ValueError(f"{end} bytes announced, {len(data)} received")


def encode_assignments(
    partition_index: PartitionIndex,
    owner: IntArray,
    user_data: Sequence[bytes],
    version: int = ASSIGNMENT_VERSION,
) -> list[bytes]:
    """Return each member's ConsumerProtocolAssignment, sorted by topic and number.

    `owner` (P,) is the member of each partition or UNASSIGNED; `user_data` has one entry a member.
    """
    held = np.flatnonzero(owner != UNASSIGNED)
    owners = owner[held]
    if len(user_data) <= np.iinfo(np.uint16).max:
        owners = owners.astype(np.uint16)  # numpy sorts 16-bit integers by radix, ten times faster
    item = held[np.argsort(owners, kind="stable")]
    member, topic = owner[item], partition_index.topic[item]
    numbers = partition_index.number[item].astype(_INT32_BE).tobytes()
    last = np.ones(len(item), dtype=np.bool_)  # of a member's partitions of a topic
    last[:-1] = (np.diff(member) != 0) | (np.diff(topic) != 0)
    ends = np.flatnonzero(last) + 1
    entries: list[list[bytes]] = [[] for _ in user_data]
    names = [_encode_string(name) for name in partition_index.topics]
    at = 0
    for m, t, end in zip(member[ends - 1].tolist(), topic[ends - 1].tolist(), ends.tolist(), strict=True):
        entries[m] += (names[t], _INT32.pack(end - at), numbers[4 * at : 4 * end])
        at = end
    begin = _INT16.pack(version)
    return [
        b"".join((begin, _INT32.pack(len(entry) // 3), *entry, _INT32.pack(len(data)), data))
        for entry, data in zip(entries, user_data, strict=True)
    ]


def _encode_string(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data
