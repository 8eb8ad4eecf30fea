"""Reads Protobuf values into rows with google.protobuf and the registry's descriptors.

1. An absent field with presence (`optional`, in a oneof, a message) is null; without presence it has
   its default.
2. An enum is its name, or its number if the schema does not name it; of a closed enum (proto2) such a
   number is out of range. A uint64 is a decimal.
3. Google's Timestamp is a timestamp, its wrappers are optional values; its Struct and Value, a
   recursive message and one without fields are JSON text. Any other message is a struct.
"""

from base64 import b64decode
from collections.abc import Mapping
from importlib import import_module
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor import FieldDescriptor as _Field
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from trimtab.consumer_sdk.lake.decoding.value_ranges import (
    STRICT_RANGES,
    OutOfRangeError,
    ValueRanges,
    to_micros,
)
from trimtab.consumer_sdk.lake.decoding.value_reader import (
    TIMESTAMP_TYPE,
    ColumnCounter,
    DecodedColumn,
    DecodedRow,
    ItemCounter,
    UnusableSchemaError,
    ValueConverter,
    ValueReader,
    explain_unusable_schema,
    keep_value,
)

_VALUE_FILE: Final = "trimtab/value.proto"
_GOOGLE_MODULES: Final = "any api duration empty field_mask source_context struct timestamp type wrappers"
_GOOGLE_FILES: Final = {
    module.DESCRIPTOR.name: module.DESCRIPTOR
    for module in (import_module(f"google.protobuf.{name}_pb2") for name in _GOOGLE_MODULES.split())
}
_PROTOBUF_TYPES: Final = {
    _Field.TYPE_BOOL: pa.bool_(),
    _Field.TYPE_BYTES: pa.binary(),
    _Field.TYPE_DOUBLE: pa.float64(),
    _Field.TYPE_FLOAT: pa.float32(),
    _Field.TYPE_STRING: pa.string(),
    **dict.fromkeys((_Field.TYPE_INT32, _Field.TYPE_SINT32, _Field.TYPE_SFIXED32), pa.int32()),
    **dict.fromkeys((_Field.TYPE_INT64, _Field.TYPE_SINT64, _Field.TYPE_SFIXED64), pa.int64()),
    # SQL has no unsigned numbers: the next longer type holds them
    **dict.fromkeys((_Field.TYPE_UINT32, _Field.TYPE_FIXED32), pa.int64()),
    **dict.fromkeys((_Field.TYPE_UINT64, _Field.TYPE_FIXED64), pa.decimal128(20, 0)),
}
_WRAPPER_MESSAGES: Final = frozenset(
    message.full_name
    for message in _GOOGLE_FILES["google/protobuf/wrappers.proto"].message_types_by_name.values()
)
_JSON_MESSAGES: Final = frozenset(f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue"))


def create_protobuf_reader(
    text: str, references: Mapping[str, str], path: tuple[int, ...], ranges: ValueRanges = STRICT_RANGES
) -> ValueReader:
    """Return the reader of the message at `path`; the texts are base64 descriptors, by file name.

    Raises UnusableSchemaError.
    """
    with explain_unusable_schema():
        files = {name: _parse_descriptor(name, body) for name, body in references.items()}
        main = files[_VALUE_FILE] = _parse_descriptor(_VALUE_FILE, text)
        pool = DescriptorPool()  # not the default one: two schemas may define one name differently
        _add_with_imports(pool, main, files, set())
        message: Descriptor = pool.FindMessageTypeByName(_find_message_name(main, path))
        kind = GetMessageClass(message)
        builder = _ProtobufColumnBuilder(ranges)
        column = builder.build_message(message, frozenset())
        if column.convert is None or not pa.types.is_struct(column.type):
            raise UnusableSchemaError(f"the message {message.full_name} has no fields, so it has no columns")
        get, columns, items = column.convert, pa.schema(list(column.type)), builder.items

    def read(data: bytes) -> DecodedRow:
        items.values = 0
        row: DecodedRow = get(kind.FromString(data))
        return row

    return ValueReader(columns, read, items)


def _parse_descriptor(name: str, body: str) -> FileDescriptorProto:
    # format=serialized: google.protobuf cannot parse .proto text
    try:
        file = FileDescriptorProto.FromString(b64decode(body, validate=True))
    except (ValueError, DecodeError) as error:
        raise UnusableSchemaError(
            "the registry did not return the schema's descriptor (?format=serialized); "
            "lake.decoder=protobuf needs a registry that does"
        ) from error
    file.name = name
    return file


def _add_with_imports(
    pool: DescriptorPool, file: FileDescriptorProto, files: Mapping[str, FileDescriptorProto], added: set[str]
) -> None:
    # imports first: a pool refuses a file whose dependencies it lacks
    if file.name in added:
        return
    added.add(file.name)
    for name in file.dependency:
        imported = files.get(name)
        if imported is None and name in _GOOGLE_FILES:
            imported = FileDescriptorProto()
            _GOOGLE_FILES[name].CopyToProto(imported)
        if imported is None:
            raise UnusableSchemaError(f"its schema imports {name}, which is not among its references")
        _add_with_imports(pool, imported, files, added)
    pool.Add(file)  # pyright: ignore[reportUnknownMemberType]


def _find_message_name(file: FileDescriptorProto, path: tuple[int, ...]) -> str:
    names = [file.package] if file.package else []
    messages: Any = file.message_type
    for index in path:
        if not 0 <= index < len(messages):
            raise UnusableSchemaError(f"its schema has no message at {list(path)}")
        message: DescriptorProto = messages[index]
        names.append(message.name)
        messages = message.nested_type
    return ".".join(names)


class _ProtobufColumnBuilder(ColumnCounter):
    def __init__(self, ranges: ValueRanges) -> None:
        super().__init__()
        self._ranges = ranges
        self.items = ItemCounter()

    def build_message(self, kind: Descriptor, enclosing: frozenset[str]) -> DecodedColumn:
        name = kind.full_name
        if name == "google.protobuf.Timestamp":
            return DecodedColumn(TIMESTAMP_TYPE, self._ranges.guard(_timestamp_to_micros))
        if name in _WRAPPER_MESSAGES:
            return DecodedColumn(_PROTOBUF_TYPES[kind.fields[0].type], attrgetter("value"))
        if name in _JSON_MESSAGES or name in enclosing or not kind.fields:
            return DecodedColumn(pa.string(), _message_to_json)
        inside = enclosing | {name}
        columns = {field.name: self._build_field(field, inside) for field in kind.fields}
        gets = [(name, column.convert) for name, column in columns.items()]
        closed = {field.number: field for field in kind.fields if _is_closed(field)}

        def row(message: Any) -> DecodedRow:
            if closed:
                _check_closed_enums(message, closed)
            try:
                return {name: get(message) for name, get in gets if get is not None}
            except OutOfRangeError:  # rare: names its field
                return {name: _read_field(name, get, message) for name, get in gets if get is not None}

        return DecodedColumn(pa.struct([(name, column.type) for name, column in columns.items()]), row)

    def _build_field(self, field: _Field, enclosing: frozenset[str]) -> DecodedColumn:
        # its `convert` takes the message of the field, unlike that of _build_value
        self.count_column()
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            return self._build_map(field, enclosing)
        outer, self._ranges = self._ranges, self._ranges.within(field.name)
        value, width = self._build_items(field, enclosing)
        self._ranges = outer
        get = attrgetter(field.name)
        convert = value.convert or keep_value

        def read_all(message: Any) -> list[Any]:
            values = get(message)
            self.items.count(len(values) * width)
            return list(values) if value.convert is None else [convert(v) for v in values]

        def read_present(message: Any) -> Any:
            return convert(get(message)) if message.HasField(field.name) else None

        def read(message: Any) -> Any:
            return convert(get(message))

        if field.is_repeated:
            return DecodedColumn(pa.list_(value.type), read_all)
        if field.has_presence:
            return DecodedColumn(value.type, read_present)
        return DecodedColumn(value.type, get if value.convert is None else read)

    def _build_map(self, field: _Field, enclosing: frozenset[str]) -> DecodedColumn:
        assert field.message_type is not None
        name, entry = field.name, field.message_type.fields_by_name
        key = self._build_value(entry["key"], enclosing)
        value, width = self._build_items(entry["value"], enclosing)
        convert = value.convert or keep_value

        def pairs(message: Any) -> list[tuple[Any, Any]]:
            entries = getattr(message, name)
            self.items.count(len(entries) * width)
            return [(k, convert(v)) for k, v in entries.items()]

        return DecodedColumn(pa.map_(key.type, value.type), pairs)

    def _build_items(self, field: _Field, enclosing: frozenset[str]) -> tuple[DecodedColumn, int]:
        """Return a field's value, and the number of columns that one has."""
        before = self.columns
        return self._build_value(field, enclosing), max(1, self.columns - before)

    def _build_value(self, field: _Field, enclosing: frozenset[str]) -> DecodedColumn:
        if field.message_type is not None:
            return self.build_message(field.message_type, enclosing)
        if field.enum_type is not None:
            names = {value.number: value.name for value in reversed(field.enum_type.values)}  # not aliases

            def named(number: int) -> str:
                return names.get(number) or str(number)

            return DecodedColumn(pa.string(), named)
        return DecodedColumn(_PROTOBUF_TYPES[field.type])


def _is_closed(field: _Field) -> bool:
    """Return whether a field, or a map's value, is of an enum that has no other numbers."""
    if (entry := field.message_type) is not None and entry.GetOptions().map_entry:
        return _is_closed(entry.fields_by_name["value"])
    return field.enum_type is not None and field.enum_type.is_closed


def _check_closed_enums(message: Any, fields: Mapping[int, _Field]) -> None:
    """Raise OutOfRangeError for a number without a name, which the parser takes out of the message."""
    unknown_fields: Any = UnknownFieldSet(message)  # a sequence, by no stub
    for unknown in unknown_fields:
        if (field := fields.get(unknown.field_number)) is None:
            continue
        if field.enum_type is not None:
            raise OutOfRangeError(f"{unknown.data} is no value of {field.enum_type.full_name}", field.name)
        assert field.message_type is not None
        entry: Any = GetMessageClass(field.message_type).FromString(unknown.data)  # whole, with its key
        try:
            _check_closed_enums(entry, field.message_type.fields_by_number)
        except OutOfRangeError as error:
            raise OutOfRangeError(error.problem, f"{field.name}.{entry.key}") from None


def _read_field(name: str, get: ValueConverter, message: Any) -> Any:
    try:
        return get(message)
    except OutOfRangeError as error:
        raise error.within(name) from None


def _timestamp_to_micros(time: Any) -> int:
    return to_micros(time.seconds * 1_000_000_000 + time.nanos, "ns")


def _message_to_json(message: Any) -> str:
    return MessageToJson(message, preserving_proto_field_name=True, indent=None)
