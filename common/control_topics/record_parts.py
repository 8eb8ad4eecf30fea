"""Large values of control topics, written as several records.

1. A value of up to `MAX_RECORD_BYTES` is one record, which every version reads.
2. A larger one is compressed (zlib) and split into parts. A part is a JSON object of format version 2,
   which readers of version 1 skip.
3. Each part has a key of its own. Part 0 has the value's key and is written last: until it is read,
   the previous value stays in force.
4. Parts are one value if they agree in key, count and digest, and their bytes have that digest: parts
   of two writes are never combined, and half a write is no value.
5. A value has at most `MAX_VALUE_BYTES`; a reader decompresses no more than that.
"""

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Final

from trimtab.common.control_topics.number_ranges import Int32, NumberRange
from trimtab.common.control_topics.versioned_json import SHOWN_BYTES, validate_json
from trimtab.common.errors import InvalidPayloadError

PART_VERSION: Final = 2
MAX_RECORD_BYTES: Final = 900_000  # Kafka's own limit is 1 MB with key, headers and batch
MAX_VALUE_BYTES: Final = 64_000_000  # 340,000 partitions of a topic
MAX_PARTS: Final = 128
MAX_PENDING_BYTES: Final = 2 * MAX_VALUE_BYTES
PART_OVERHEAD_BYTES: Final = 1000
PART_BYTES: Final = (MAX_RECORD_BYTES - 2_000) // 4 * 3  # of compressed data: Base64 makes 4 bytes of 3
COMPRESSION_LEVEL: Final = 1  # level 6 saves a tenth for four times the time
_PART_PREFIX: Final = b'{"v":%d,"min_reader_version":%d,' % (PART_VERSION, PART_VERSION)


@dataclass(frozen=True, slots=True)
class _Part:
    """One record of a large value."""

    group: str
    key: str  # of the value
    part: Int32
    parts: Annotated[int, NumberRange(le=MAX_PARTS, ge=1)]
    digest: str  # SHA-256 of the compressed value
    data: str  # Base64

    @property
    def size(self) -> int:
        """Bytes in memory, about: any writer decides which of the texts is long, and how many parts come."""
        return PART_OVERHEAD_BYTES + len(self.key) + len(self.digest) + len(self.data)


def split_value(group: str, key: str, value: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield keys and values of the records of a value. Raises InvalidPayloadError."""
    if len(value) <= MAX_RECORD_BYTES:
        yield key, value
        return
    if len(value) > MAX_VALUE_BYTES:
        raise InvalidPayloadError(
            f"the value of {key} has {len(value)} bytes; readers take {MAX_VALUE_BYTES}: use a topic of "
            "fewer partitions"
        )
    data = zlib.compress(value, COMPRESSION_LEVEL)
    parts = -(-len(data) // PART_BYTES)
    digest = sha256(data).hexdigest()
    for part in reversed(range(parts)):
        body = {"v": PART_VERSION, "min_reader_version": PART_VERSION, "group": group, "key": key}
        piece = b64encode(data[part * PART_BYTES : (part + 1) * PART_BYTES]).decode()
        body |= {"part": part, "parts": parts, "digest": digest, "data": piece}
        yield (json.dumps([key, part]) if part else key), json.dumps(body, separators=(",", ":")).encode()


class PartAssembler:
    """Makes values of one group's records of one topic; of all groups' for None."""

    def __init__(self, group: str | None) -> None:
        self._group = group
        # by key of the value and number, oldest first: the newest part, as compaction would leave it
        self._pending: dict[tuple[str, int], _Part] = {}
        self._pending_bytes = 0  # a sum for each record would take longer with each part

    def add_record(self, value: bytes) -> bytes | None:
        """Return a value that is complete with this record, else None. Raises InvalidPayloadError."""
        if not value.startswith(_PART_PREFIX):
            return value
        part = validate_json(_Part, value, "part")
        if self._group not in (None, part.group):
            return None
        if part.part >= part.parts:
            raise InvalidPayloadError(f"part {part.part} of {part.parts}: {value[:SHOWN_BYTES]!r}")
        self._keep_part(part)
        found = (self._pending.get((part.key, number)) for number in range(part.parts))
        pieces = [piece for piece in found if piece is not None and _is_same_write(piece, part)]
        if len(pieces) < part.parts:
            return None
        for piece in pieces:  # only these: of several partitions, a later write's parts may come earlier
            self._drop_part(piece.key, piece.part)
        return _join(pieces)

    def _keep_part(self, part: _Part) -> None:
        self._drop_part(part.key, part.part)
        self._pending[part.key, part.part] = part
        self._pending_bytes += part.size
        while self._pending_bytes > MAX_PENDING_BYTES:  # parts that never become a value
            self._drop_part(*next(iter(self._pending)))

    def _drop_part(self, key: str, number: int) -> None:
        part = self._pending.pop((key, number), None)
        self._pending_bytes -= part.size if part is not None else 0


def _is_same_write(one: _Part, other: _Part) -> bool:
    return (one.digest, one.parts) == (other.digest, other.parts)


def _join(parts: list[_Part]) -> bytes:
    name = f"{parts[0].key} in {len(parts)} parts"
    try:
        data = b"".join(b64decode(part.data, validate=True) for part in parts)
    except ValueError as error:
        raise InvalidPayloadError(f"{name}: {error}") from error
    if sha256(data).hexdigest() != parts[0].digest:
        raise InvalidPayloadError(f"{name}: the bytes do not have their digest")
    return decompress(data, name)


def decompress(data: bytes, name: str, max_bytes: int = MAX_VALUE_BYTES) -> bytes:
    """Return zlib data decompressed, up to `max_bytes`. Raises InvalidPayloadError with `name`."""
    inflater = zlib.decompressobj()
    try:
        value = inflater.decompress(data, max_bytes + 1)
    except zlib.error as error:
        raise InvalidPayloadError(f"{name}: {error}") from error
    if not inflater.eof or len(value) > max_bytes:
        raise InvalidPayloadError(f"{name}: truncated, or more than {max_bytes} bytes decompressed")
    return value
