"""Protobuf values to rows, with google.protobuf and the descriptors that the registry gives.

The rules: a field that can be absent (`optional`, of a oneof, a message) is null where it is; one
that cannot has its default. An enum is its name (its number where the schema does not know it), a
uint64 a decimal, since SQL has no such number. Timestamps are timestamps, Google's wrappers are
optional values; its Struct and Value, a message that contains itself and one without fields are
text in JSON. Any other message is a struct. The registry is asked for `format=serialized`
descriptors, so nothing here has to read .proto text.
"""

import binascii
from base64 import b64decode
from collections.abc import Mapping
from importlib import import_module
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from trimtab.consumer_sdk.lake.decoding.value_reader import (
    TIMESTAMP,
    Column,
    Convert,
    Reader,
    Row,
    Unreadable,
)

_MAIN: Final = "trimtab/value.proto"
_KNOWN: Final = "any api duration empty field_mask source_context struct timestamp type wrappers"
_GOOGLES: Final = {
    module.DESCRIPTOR.name: module.DESCRIPTOR
    for module in (import_module(f"google.protobuf.{name}_pb2") for name in _KNOWN.split())
}
_SCALARS: Final = {
    FieldDescriptor.TYPE_BOOL: pa.bool_(),
    FieldDescriptor.TYPE_BYTES: pa.binary(),
    FieldDescriptor.TYPE_DOUBLE: pa.float64(),
    FieldDescriptor.TYPE_FIXED32: pa.int64(),
    FieldDescriptor.TYPE_FIXED64: pa.decimal128(20, 0),
    FieldDescriptor.TYPE_FLOAT: pa.float32(),
    FieldDescriptor.TYPE_INT32: pa.int32(),
    FieldDescriptor.TYPE_INT64: pa.int64(),
    FieldDescriptor.TYPE_SFIXED32: pa.int32(),
    FieldDescriptor.TYPE_SFIXED64: pa.int64(),
    FieldDescriptor.TYPE_SINT32: pa.int32(),
    FieldDescriptor.TYPE_SINT64: pa.int64(),
    FieldDescriptor.TYPE_STRING: pa.string(),
    FieldDescriptor.TYPE_UINT32: pa.int64(),
    FieldDescriptor.TYPE_UINT64: pa.decimal128(20, 0),
}
_WRAPPERS: Final = frozenset(
    message.full_name
    for message in _GOOGLES["google/protobuf/wrappers.proto"].message_types_by_name.values()
)
_AS_TEXT: Final = frozenset(f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue"))


def reader(text: str, references: Mapping[str, str], path: tuple[int, ...]) -> Reader:
    """Return what reads the message at `path`; the texts are descriptors in base64, by file name.

    Raises Unreadable.
    """
    files = {name: _file(name, body) for name, body in references.items()}
    main = files[_MAIN] = _file(_MAIN, text)
    pool = DescriptorPool()
    try:
        _add(pool, main, files, set())
        found: Descriptor = pool.FindMessageTypeByName(_message_name(main, path))
    except (TypeError, KeyError) as error:
        raise Unreadable(f"the schema cannot be used: {error}") from error
    kind = GetMessageClass(found)
    column = _message(found, frozenset())
    if column.convert is None or not pa.types.is_struct(column.type):
        raise Unreadable(f"the message {found.full_name} has no fields, so it has no columns")
    get = column.convert

    def read(data: bytes) -> Row:
        row: Row = get(kind.FromString(data))
        return row

    return Reader(pa.schema(list(column.type)), read)


def _file(name: str, body: str) -> FileDescriptorProto:
    try:
        file = FileDescriptorProto.FromString(b64decode(body, validate=True))
    except (binascii.Error, DecodeError) as error:
        raise Unreadable(
            "the registry did not give the schema's descriptor (?format=serialized); "
            "lake.decoder=protobuf needs a registry that does"
        ) from error
    file.name = name
    return file


def _add(
    pool: DescriptorPool,
    file: FileDescriptorProto,
    files: Mapping[str, FileDescriptorProto],
    added: set[str],
) -> None:
    """Add a file to a pool, what it imports first."""
    if file.name in added:
        return
    added.add(file.name)
    for name in file.dependency:
        wanted = files.get(name)
        if wanted is None and name in _GOOGLES:
            wanted = FileDescriptorProto()
            _GOOGLES[name].CopyToProto(wanted)
        if wanted is None:
            raise Unreadable(f"its schema imports {name}, which is not among its references")
        _add(pool, wanted, files, added)
    pool.Add(file)  # pyright: ignore[reportUnknownMemberType]


def _message_name(file: FileDescriptorProto, path: tuple[int, ...]) -> str:
    names = [file.package] if file.package else []
    messages: Any = file.message_type
    for index in path:
        if not 0 <= index < len(messages):
            raise Unreadable(f"its schema has no message at {list(path)}")
        message: DescriptorProto = messages[index]
        names.append(message.name)
        messages = message.nested_type
    return ".".join(names)


def _message(kind: Descriptor, around: frozenset[str]) -> Column:
    """Return the column of a message; `around`: the names of the messages that it is in."""
    name = kind.full_name
    if name == "google.protobuf.Timestamp":
        return Column(TIMESTAMP, _micros)
    if name in _WRAPPERS:
        return Column(_SCALARS[kind.fields[0].type], attrgetter("value"))
    if name in _AS_TEXT or name in around or not kind.fields:
        return Column(pa.string(), _as_json)
    inside = around | {name}
    columns = {field.name: _field(field, inside) for field in kind.fields}
    gets = [(name, column.convert) for name, column in columns.items()]

    def row(message: Any) -> Row:
        return {name: get(message) for name, get in gets if get is not None}

    return Column(pa.struct([(name, column.type) for name, column in columns.items()]), row)


def _field(field: FieldDescriptor, around: frozenset[str]) -> Column:
    """Return a field's column; `convert` takes the message that the field is in."""
    name = field.name
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return _map(field, around)
    value = _value(field, around)
    convert = value.convert
    if field.is_repeated:
        return Column(pa.list_(value.type), _listed(name, convert))
    if field.has_presence:
        return Column(value.type, _optional(name, convert or _same))
    return Column(value.type, attrgetter(name) if convert is None else _converted(name, convert))


def _map(field: FieldDescriptor, around: frozenset[str]) -> Column:
    assert field.message_type is not None
    name, entry = field.name, field.message_type.fields_by_name
    key, value = _value(entry["key"], around), _value(entry["value"], around)
    convert = value.convert or _same

    def pairs(message: Any) -> list[tuple[Any, Any]]:
        return [(k, convert(v)) for k, v in getattr(message, name).items()]

    return Column(pa.map_(key.type, value.type), pairs)


def _listed(name: str, convert: Convert | None) -> Convert:
    def listed(message: Any) -> list[Any]:
        found = getattr(message, name)
        return list(found) if convert is None else [convert(value) for value in found]

    return listed


def _optional(name: str, convert: Convert) -> Convert:
    def optional(message: Any) -> Any:
        return convert(getattr(message, name)) if message.HasField(name) else None

    return optional


def _converted(name: str, convert: Convert) -> Convert:
    def converted(message: Any) -> Any:
        return convert(getattr(message, name))

    return converted


def _value(field: FieldDescriptor, around: frozenset[str]) -> Column:
    """Return the column of one value of a field; `convert` takes the value."""
    if field.message_type is not None:
        return _message(field.message_type, around)
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}

        def named(number: int) -> str:
            return names.get(number) or str(number)

        return Column(pa.string(), named)
    return Column(_SCALARS[field.type])


def _micros(time: Any) -> int:
    return int(time.seconds * 1_000_000 + time.nanos // 1000)


def _as_json(message: Any) -> str:
    return MessageToJson(message, preserving_proto_field_name=True, indent=None)


def _same(value: Any) -> Any:
    return value
