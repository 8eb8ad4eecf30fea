"""Wire format of the schema registry, whose prefix names the schema of a value.

A value is the byte 0, the schema's id in four bytes (big-endian, below 2^31), and the data. Between id and
data, Protobuf has the path to the message within the schema's file: a count, then an index for each level
(the third message of the file is [2]), as zigzag varints; a lone 0 stands for [0].
"""

from dataclasses import dataclass
from typing import Final

MAGIC_BYTE: Final = b"\0"
SCHEMA_ID_END: Final = 5
_SCHEMA_ID_LIMIT: Final = b"\0\x80"  # ids are Java's ints: registries refuse other numbers
_MAX_NESTING: Final = 32  # more levels mean another format's bytes


class WireFormatError(Exception):
    """The value does not begin like one of the registry's serializers."""

    def __str__(self) -> str:
        return "not in the schema registry's wire format: it does not begin with byte 0 and a schema id"


@dataclass(frozen=True, slots=True, order=True)
class SchemaHeader:
    """Parsed prefix: schema id, and for Protobuf the path to the message."""

    schema_id: int
    message_path: tuple[int, ...] = ()


def read_avro_prefix(value: bytes) -> bytes:
    """Return the prefix of an Avro value. Raises WireFormatError."""
    if len(value) < SCHEMA_ID_END or not MAGIC_BYTE <= value < _SCHEMA_ID_LIMIT:
        raise WireFormatError
    return value[:SCHEMA_ID_END]


def read_protobuf_prefix(value: bytes) -> bytes:
    """Return the prefix of a Protobuf value. Raises WireFormatError."""
    if len(value) <= SCHEMA_ID_END or not MAGIC_BYTE <= value < _SCHEMA_ID_LIMIT:
        raise WireFormatError
    if value[SCHEMA_ID_END] == 0:  # the first message of the file, as nearly always
        return value[: SCHEMA_ID_END + 1]
    return value[: _read_message_path(value)[1]]


def parse_schema_header(prefix: bytes) -> SchemaHeader:
    """Parse the prefix of a value."""
    path = _read_message_path(prefix)[0] if len(prefix) > SCHEMA_ID_END else ()
    return SchemaHeader(int.from_bytes(prefix[1:SCHEMA_ID_END]), path)


def _read_message_path(value: bytes) -> tuple[tuple[int, ...], int]:
    """Return the path and its end."""
    count, at = _read_varint(value, SCHEMA_ID_END)
    if not 0 <= count <= _MAX_NESTING:
        raise WireFormatError
    path: list[int] = []
    for _ in range(count):
        index, at = _read_varint(value, at)
        path.append(index)
    return tuple(path) or (0,), at


def _read_varint(value: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag varint of at most five bytes, and its end."""
    number = 0
    for shift in range(0, 35, 7):
        if at >= len(value):
            break
        byte = value[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the last byte has no high bit
            return (number >> 1) ^ -(number & 1), at
    raise WireFormatError
