"""Schemas of a registry that are broken or harmful: their records are dead letters with a reason."""

import json
from base64 import b64encode
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

from trimtab.consumer_sdk.lake.decoding import registry_decoders
from trimtab.consumer_sdk.lake.decoding.decoded_records import BatchTooLargeError
from trimtab.consumer_sdk.lake.decoding.registry_decoders import RegistryDecoder
from trimtab.consumer_sdk.lake.decoding.schema_registry import RegisteredSchema
from trimtab.consumer_sdk.lake.decoding.value_reader import MAX_READ_VALUES
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_SCHEMA

EMPTY = {"type": "record", "name": "e", "fields": [{"name": "a", "type": "null"}]}
NESTED = {"type": "record", "name": "n", "fields": [{"name": "b", "type": EMPTY}]}


def record(*fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "r",
        "fields": [{"name": f"f{n}", "type": f} for n, f in enumerate(fields)],
    }


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


class Registry:
    """A registry of one schema."""

    def __init__(self, kind: str, text: str) -> None:
        self.schema = RegisteredSchema(kind, text)

    def fetch_schema(self, schema_id: int, form: str | None = None) -> RegisteredSchema:  # noqa: ARG002
        return self.schema


def decode_error(kind: str, text: str, value: bytes) -> str | None:
    """Return the reason of the dead letter, None for a row."""
    registry: Any = Registry(kind.upper(), text)
    rows = [{"topic": "t", "partition": 0, "offset": 0, "value": value}]
    decoded = RegistryDecoder(registry, kind).decode_batch(pa.Table.from_pylist(rows, RECORD_SCHEMA))
    if decoded.dead_letters is None:
        return None
    (letter,) = decoded.dead_letters.to_pylist()
    return str(letter["error"])


@pytest.mark.parametrize(
    "text",
    [
        "7",
        "[]",
        "{}",
        '{"type": "record", "name": 1e308, "fields": []}',
        '{"type": "record", "name": "r", "fields": 7}',
        '{"type": "record", "name": "r", "fields": [{"name": "a"}]}',
        '{"type": "record", "name": "r", "fields": [{"name": "a", "type": {"type": "array"}}]}',
        '{"a":' * 100_000,
    ],
    ids=lambda text: text[:60],
)
def test_a_malformed_avro_schema_makes_dead_letters(text: str) -> None:
    """Whoever may register a schema must not end the sink."""
    assert str(decode_error("avro", text, b"\0\0\0\0\1x")).startswith("schema id 1: ")


@pytest.mark.parametrize("text", ["ü", "AAAA", "", "CgF4"])
def test_a_malformed_descriptor_makes_dead_letters(text: str) -> None:
    """The registry may return any text."""
    assert str(decode_error("protobuf", text, b"\0\0\0\0\1\0x")).startswith("schema id 1: ")


@pytest.mark.parametrize(
    "items", ["null", EMPTY, NESTED, {"type": "fixed", "name": "x", "size": 0}, {"type": "null"}]
)
def test_an_array_of_values_without_bytes_is_not_read(items: Any) -> None:
    """Five bytes announce 2^31 of them: 17 GB of memory, of one owner after the other."""
    announced = b"\0\0\0\0\1" + b"\xfe\xff\xff\xff\x0f" + b"\0"
    error = str(decode_error("avro", json.dumps(record("int", array(items))), announced))
    assert "array of values that take no bytes" in error


@pytest.mark.parametrize(
    "items", ["int", ["null", "int"], record("null", "int"), array("int"), {"type": "map", "values": "null"}]
)
def test_other_arrays_are_read(items: Any) -> None:
    """A value of at least a byte ends with the record; so does a record that encloses itself."""
    items = items if not isinstance(items, dict) or "fields" not in items else {**items, "name": "inner"}
    assert decode_error("avro", json.dumps(record(array(items))), b"\0\0\0\0\1\0") is None
    recursive = json.dumps(record("null", ["null", array("r")]))
    assert decode_error("avro", recursive, b"\0\0\0\0\1\0") is None


BOMB_LEVELS = 16  # two fields each of the level below: 2^16 columns from a few kB


@pytest.mark.parametrize("leaf", ["int", "null"])
def test_a_schema_whose_references_expand_is_not_read(leaf: str) -> None:
    """Thirty levels would fill the memory of one owner after the other."""
    level = {**record(leaf, leaf), "name": "r0"}
    for n in range(1, BOMB_LEVELS):
        level = {**record(level, level["name"]), "name": f"r{n}"}
    assert "more than 10000 columns" in str(decode_error("avro", json.dumps(level), b"\0\0\0\0\1\0"))


def test_a_descriptor_whose_references_expand_is_not_read() -> None:
    """As in Avro, for messages."""
    file = FileDescriptorProto(name="bomb.proto", syntax="proto3")
    for n in range(BOMB_LEVELS):
        message = file.message_type.add(name=f"m{n}")
        for number in (1, 2):
            field = message.field.add(
                name=f"f{number}", number=number, type=FieldDescriptorProto.TYPE_MESSAGE
            )
            field.label, field.type_name = FieldDescriptorProto.LABEL_OPTIONAL, f".m{n + 1}"
    leaf = file.message_type.add(name=f"m{BOMB_LEVELS}").field.add(name="f", number=1)
    leaf.label, leaf.type = FieldDescriptorProto.LABEL_OPTIONAL, FieldDescriptorProto.TYPE_INT32
    text = b64encode(file.SerializeToString()).decode()
    assert "more than 10000 columns" in str(decode_error("protobuf", text, b"\0\0\0\0\1\0"))


WIDE = 2000


def wide_message(label: Any) -> tuple[str, int]:
    """Return the descriptor of a message with a field of a wide one, in two levels, and its number."""
    file = FileDescriptorProto(name="wide.proto", syntax="proto3")
    for name, inner in (("top", ".middle"), ("middle", ".wide")):
        field = file.message_type.add(name=name).field.add(name="f", number=1, label=label)
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, inner
    wide = file.message_type.add(name="wide")
    for number in range(1, WIDE + 1):
        leaf = wide.field.add(name=f"f{number}", number=number, type=FieldDescriptorProto.TYPE_INT32)
        leaf.label = FieldDescriptorProto.LABEL_OPTIONAL
    return b64encode(file.SerializeToString()).decode(), 1


def test_items_that_take_two_bytes_each_take_no_memory_without_end() -> None:
    """Each has all fields of its message, whose defaults take no bytes: a megabyte would be a billion."""
    text, number = wide_message(FieldDescriptorProto.LABEL_REPEATED)
    most = MAX_READ_VALUES // (WIDE + 1) - 10
    assert decode_error("protobuf", text, repeat_items(number, most // 10, 10)) is None
    error = str(decode_error("protobuf", text, repeat_items(number, most // 10, 11)))
    assert "its items have more than 5000000 values" in error


def repeat_items(number: int, inner: int, outer: int) -> bytes:
    """Return a value with this many items, each with inner ones, without a byte of their own."""
    tag = bytes([number << 3 | 2])
    item = (tag + b"\0") * inner
    size = len(item)
    return b"\0\0\0\0\1\0" + (tag + bytes([size & 127 | 128, size >> 7]) + item) * outer


def test_wide_values_are_read_in_parts_that_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows are the same as in one part; a batch whose columns take too much tells how many fit."""
    text, number = wide_message(FieldDescriptorProto.LABEL_REPEATED)
    values = [repeat_items(number, 2, at % 3) for at in range(7)]
    rows = [{"topic": "t", "partition": 0, "offset": at, "value": value} for at, value in enumerate(values)]
    records = pa.Table.from_pylist(rows, RECORD_SCHEMA)
    registry: Any = Registry("PROTOBUF", text)
    decoder = RegistryDecoder(registry, "protobuf")
    whole = decoder.decode_batch(records).rows
    monkeypatch.setattr(registry_decoders, "MAX_READ_VALUES", 2 * WIDE)
    assert decoder.decode_batch(records).rows == whole
    monkeypatch.setattr(registry_decoders, "MAX_COLUMN_BYTES", 60_000)
    with pytest.raises(BatchTooLargeError) as error:
        decoder.decode_batch(records)
    assert error.value.records == 5
    assert decoder.decode_batch(records[:5]).rows == whole[:5]
