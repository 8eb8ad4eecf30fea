"""Codecs of Kafka's messages, from tables of fields.

1. A table is a text: `name:type`, then `?` if it may be null, `@2+`, `@4-7` or `@-3` for the versions that
   have it, `#0` for the tag of a tagged field, `=` with the value where it is not given: a number or one of
   `_DEFAULTS`.
   `[…]` is an array of a type or of fields, `{…}` fields in a field.
2. What is read is checked against the bytes that are there, before anything is allocated: every element of an
   array takes at least one byte.
3. Messages are read into namespaces. A field that a version lacks has its default.
"""

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby
from types import SimpleNamespace
from typing import Any, Final, TypeAlias
from uuid import UUID

from trimtab.common.kafka_protocol.errors import MalformedMessageError

Read: TypeAlias = Callable[["Reader"], Any]
Write: TypeAlias = Callable[[bytearray, Any], None]
Codec: TypeAlias = tuple[Read, Write]

_NUMBERS: Final = {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "bool": "?"}
_MAX_VARINT_BITS: Final = 35
_MORE_FOLLOWS: Final = 0x80
_DEFAULTS: Final[Mapping[str, Any]] = {"false": False, "": "", "empty": (), "zero": UUID(int=0)}
# a group may commit any bytes as metadata: they must not hide the other groups of a response
_decode_text: Final = partial(str, encoding="utf-8", errors="replace")
_TOKEN: Final = re.compile(r"(?:\w+:)?(?:\w+|[\[{])|[\]}]|\?|[@#=][\w+-]*")


class Reader:
    """Position in the bytes of a message."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        """Return the next bytes. Raises MalformedMessageError if fewer are there."""
        at = self.at
        end = at + size
        if end > len(self.data):
            self.check(size)
        self.at = end
        return self.data[at:end]

    def check(self, size: int) -> None:
        """Raise MalformedMessageError unless as many bytes are there."""
        if not 0 <= size <= len(self.data) - self.at:
            raise MalformedMessageError(f"{size} bytes announced, {len(self.data) - self.at} there")

    def take_varint(self) -> int:
        """Return the next unsigned number of seven bits a byte. Raises IndexError at the end of the bytes."""
        byte = self.data[self.at]
        self.at += 1
        value, shift = byte & 0x7F, 7
        while byte >= _MORE_FOLLOWS and shift < _MAX_VARINT_BITS:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
        return value


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a table."""

    name: str
    kind: str  # of a primitive, "[" or "{"
    element: "str | tuple[Field, ...]" = ""  # of an array; the fields of "{"
    nullable: bool = False
    since: int = 0
    until: int = 99
    tag: int | None = None
    default: Any = ...  # ...: a request must give it


@cache
def compile_table(text: str, version: int, *, flexible: bool) -> Codec:
    """Return the functions that read and write a message of this table in a version."""
    return _compile(parse_table(text), version, flexible)


def parse_table(text: str) -> tuple[Field, ...]:
    """Return the fields of a table (rule 1)."""
    tokens = iter([*_TOKEN.findall(text), "]"])
    return _parse_fields(tokens, next(tokens))


def _parse_fields(tokens: Iterator[str], token: str) -> tuple[Field, ...]:
    fields: list[Field] = []
    while token not in ("]", "}"):
        name, _, kind = token.partition(":")
        element: str | tuple[Field, ...] = ""
        if kind in ("[", "{"):
            first = next(tokens)
            is_primitive = kind == "[" and ":" not in first
            element = first if is_primitive else _parse_fields(tokens, first)
            if is_primitive:
                next(tokens)  # the bracket
        marks: dict[str, Any] = {}
        while (token := next(tokens))[0] in "?@#=":
            marks |= _parse_mark(token)
        fields.append(Field(name, kind, element, **marks))
    return tuple(fields)


def _parse_mark(token: str) -> dict[str, Any]:
    mark, text = token[0], token[1:]
    if mark == "?":
        return {"nullable": True, "default": None}
    if mark == "#":
        return {"tag": int(text)}
    if mark == "=":
        return {"default": _DEFAULTS[text] if text in _DEFAULTS else int(text)}
    since, _, until = text.rstrip("+").partition("-")
    is_one = "-" not in text and not text.endswith("+")
    return {"since": int(since or 0), "until": int(until or (since if is_one else 99))}


def _compile(fields: tuple[Field, ...], version: int, flexible: bool) -> Codec:  # noqa: FBT001 - of the version
    there = [f for f in fields if f.since <= version <= f.until]
    plain = [(f, *_make_codec(f, version, flexible)) for f in there if f.tag is None]
    tagged = {f.tag: (f, *_make_codec(f, version, flexible)) for f in there if f.tag is not None}
    given = {f.name for f, *_ in plain}
    defaults = {f.name: None if f.default is ... else f.default for f in fields if f.name not in given}
    steps = tuple(_join_numbers(plain))

    def read(reader: Reader) -> SimpleNamespace:
        message = SimpleNamespace(**defaults)
        values = message.__dict__
        for unpack_from, size, name, read_one in steps:
            if read_one is not None:
                values[name] = read_one(reader)
            else:
                values.update(zip(name, unpack_from(reader.data, reader.at), strict=True))
                reader.at += size
        if not flexible:
            return message
        if reader.data[reader.at]:
            _read_tagged(reader, tagged, values)
        else:  # none, as nearly always
            reader.at += 1
        return message

    return read, _make_write(plain, tagged, frozenset(f.name for f in fields), flexible)


def _make_write(
    plain: Sequence[tuple[Field, Read, Write]],
    tagged: Mapping[int, Any],
    names: frozenset[str],
    flexible: bool,  # noqa: FBT001 - of the version
) -> Write:
    def write(out: bytearray, values: Mapping[str, Any]) -> None:
        if not values.keys() <= names:
            raise ValueError(f"unknown fields: {sorted(values.keys() - names)}")
        for field, _, write_one in plain:
            default = field.default
            write_one(out, values[field.name] if default is ... else values.get(field.name, default))
        if flexible:
            _write_tagged(out, tagged, values)

    return write


def _join_numbers(plain: Iterable[tuple[Field, Read, Write]]) -> Iterator[tuple[Any, int, Any, Any]]:
    """Yield how to read the fields: numbers in a row by one call, since most fields are numbers."""
    for is_number, run in groupby(plain, lambda one: one[0].kind in _NUMBERS):
        fields = list(run)
        if is_number and len(fields) > 1:
            packed = struct.Struct(">" + "".join(_NUMBERS[f.kind] for f, *_ in fields))
            yield packed.unpack_from, packed.size, tuple(f.name for f, *_ in fields), None
        else:
            for field, read, _ in fields:
                yield None, 0, field.name, read


def _read_tagged(reader: Reader, tagged: Mapping[int, Any], values: dict[str, Any]) -> None:
    for _ in range(reader.take_varint()):
        tag, size = reader.take_varint(), reader.take_varint()
        part = Reader(reader.take(size))
        if tag in tagged:
            field, read, _ = tagged[tag]
            values[field.name] = read(part)


def _write_tagged(out: bytearray, tagged: Mapping[int, Any], values: Mapping[str, Any]) -> None:
    given = [tag for tag, (field, *_) in tagged.items() if values.get(field.name) is not None]
    write_varint(out, len(given))
    for tag in sorted(given):
        field, _, write = tagged[tag]
        part = bytearray()
        write(part, values[field.name])
        write_varint(out, tag)
        write_varint(out, len(part))
        out += part


def write_varint(out: bytearray, value: int) -> None:
    """Append an unsigned number by seven bits a byte."""
    while value >= _MORE_FOLLOWS:
        out.append(value & 0x7F | _MORE_FOLLOWS)
        value >>= 7
    out.append(value)


def _make_codec(field: Field, version: int, flexible: bool) -> Codec:  # noqa: FBT001 - of the version
    if field.kind in _NUMBERS:
        return _make_number(struct.Struct(">" + _NUMBERS[field.kind]))
    if field.kind == "uuid":
        return (lambda r: UUID(bytes=r.take(16))), (lambda out, value: out.extend(value.bytes))
    if field.kind == "{":
        return _make_struct(field, version, flexible)
    if field.kind == "string":
        return _make_sized(field, "h", flexible, str.encode, _decode_text)
    if field.kind == "bytes":
        return _make_sized(field, "i", flexible, bytes, bytes)
    return _make_array(field, version, flexible)


def _make_number(packed: struct.Struct) -> Codec:
    unpack_from, size, pack = packed.unpack_from, packed.size, packed.pack

    def read(reader: Reader) -> Any:
        at = reader.at
        reader.at = at + size
        return unpack_from(reader.data, at)[0]

    return read, lambda out, value: out.extend(pack(value))


def _make_struct(field: Field, version: int, flexible: bool) -> Codec:  # noqa: FBT001 - of the version
    assert isinstance(field.element, tuple)
    read_fields, write_fields = _compile(field.element, version, flexible)
    if not field.nullable:
        return read_fields, write_fields
    read_mark, write_mark = _make_number(struct.Struct(">b"))

    def write(out: bytearray, value: Any) -> None:
        write_mark(out, -1 if value is None else 1)
        if value is not None:
            write_fields(out, value)

    return (lambda r: None if read_mark(r) < 0 else read_fields(r)), write


def _make_sized(
    field: Field,
    code: str,
    flexible: bool,  # noqa: FBT001 - of the version
    encode: Callable[[Any], bytes],
    decode: Callable[[bytes], Any],
) -> Codec:
    read_size, write_size = _make_size(field, code, flexible)

    def read(reader: Reader) -> Any:
        data, at = reader.data, reader.at
        if flexible and 0 < data[at] < _MORE_FOLLOWS:  # a short one, as nearly always
            reader.at = end = at + data[at]
            if end > len(data):
                reader.check(end - len(data))
            return decode(data[at + 1 : end])
        size = read_size(reader)
        return None if size < 0 else decode(reader.take(size))

    def write(out: bytearray, value: Any) -> None:
        data = None if value is None else encode(value)
        write_size(out, -1 if data is None else len(data))
        out += data or b""

    return read, write


def _make_size(field: Field, code: str, flexible: bool) -> Codec:  # noqa: FBT001 - of the version
    """Return the codec of a length; -1 is null's."""
    read_number, write_number = _make_number(struct.Struct(">" + code))
    may_be_null = field.nullable

    def read(reader: Reader) -> int:
        size: int = reader.take_varint() - 1 if flexible else read_number(reader)
        if size < -may_be_null:
            raise MalformedMessageError(f"{field.name} is null")
        return size

    def write(out: bytearray, size: int) -> None:
        if size < -may_be_null:
            raise ValueError(f"{field.name} must not be None")
        if flexible:
            write_varint(out, size + 1)
        else:
            write_number(out, size)

    return read, write


def _make_array(field: Field, version: int, flexible: bool) -> Codec:  # noqa: FBT001 - of the version
    read_size, write_size = _make_size(field, "i", flexible)
    if isinstance(field.element, str):
        read_one, write_one = _make_codec(Field(field.name, field.element), version, flexible)
    else:
        read_one, write_one = _compile(field.element, version, flexible)

    def read(reader: Reader) -> list[Any] | None:
        size = read_size(reader)
        if size < 0:
            return None
        reader.check(size)  # rule 2
        return [read_one(reader) for _ in range(size)]

    def read_numbers(reader: Reader) -> list[int] | None:
        size = read_size(reader)
        return None if size < 0 else list(struct.unpack(f">{size}i", reader.take(4 * size)))

    def write(out: bytearray, values: Any) -> None:
        write_size(out, -1 if values is None else len(values))
        for value in values or ():
            write_one(out, value)

    return (read_numbers if field.element == "int32" else read), write
