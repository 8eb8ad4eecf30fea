"""Values of a schema registry: typed columns, evolution, bad values, unavailable registries."""

import json
import logging
import re
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from functools import partial
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from google.protobuf import timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from trimtab.assignor.model import TopicPartition
from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.errors import (
    SchemaRegistryUnavailableError,
    TableAccessError,
    TableSchemaMismatchError,
)
from trimtab.consumer_sdk.lake.decoding.registry_decoders import MAX_UNKNOWN_SCHEMAS, RegistryDecoder
from trimtab.consumer_sdk.lake.decoding.schema_registry import SchemaRegistry
from trimtab.consumer_sdk.lake.decoding.value_reader import UnusableSchemaError
from trimtab.consumer_sdk.lake.flush.metrics import LakeMetrics
from trimtab.consumer_sdk.lake.options.settings import parse_lake_config
from trimtab.consumer_sdk.lake.schema.record_columns import build_record_batch
from trimtab.consumer_sdk.lake.writer.error_scope import concerns_all

P0 = TopicPartition("orders", 0)
Make = Callable[..., Any]

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "note", "type": ["null", "string"], "default": None}],
}


def fields(*more: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an order with other fields."""
    return ORDER | {"fields": list(more)}


def avro(number: int, schema: Any, row: dict[str, Any]) -> bytes:
    """Return a value in the wire format."""
    data = BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema), row)
    return b"\0" + number.to_bytes(4) + data.getvalue()


@pytest.fixture
def split(registry: Any, fakes: Any) -> Callable[..., Any]:
    """Decode values; return (decoded rows, [(offset, reason)])."""

    def run(values: list[bytes | None], kind: str = "avro", **config: Any) -> Any:
        decoder = RegistryDecoder(SchemaRegistry({"url": registry.url} | config), kind)
        messages = [fakes.Message(P0, at, value) for at, value in enumerate(values)]
        found = decoder.decode_batch(pa.Table.from_batches([build_record_batch(P0, messages)]))
        bad = [] if found.dead_letters is None else found.dead_letters.select(["offset", "error"]).to_pylist()
        return found.rows.select(found.rows.column_names[7:]).to_pylist(), [
            (row["offset"], row["error"]) for row in bad
        ]

    return run


EVERY_TYPE = fields(
    {"name": "id", "type": "long"},
    {"name": "offset", "type": "int"},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    {"name": "again", "type": "Kind"},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "more", "type": {"type": "map", "values": ["null", "long"]}},
    {
        "name": "inner",
        "type": [
            "null",
            {
                "type": "record",
                "name": "Inner",
                "fields": [
                    {"name": "x", "type": "double"},
                    {"name": "parts", "type": {"type": "array", "items": {"type": "map", "values": "int"}}},
                ],
            },
        ],
    },
    {"name": "either", "type": ["null", "string", "bytes", "long"]},
    {"name": "number", "type": ["int", "long"]},
    {"name": "next", "type": ["null", "Order"]},
)


def test_avro_values_become_typed_columns(registry: Any, split: Any) -> None:
    """Each type maps to a column that keeps its values; JSON text takes the types without a column."""
    row = {
        "id": 2**40,
        "offset": 5,
        "day": 19_000,
        "at": 1_700_000_000_123,
        "price": Decimal("12.30"),
        "kind": "B",
        "again": "A",
        "tags": ["x"],
        "more": {"a": 1, "b": None},
        "inner": {"x": 0.5, "parts": [{"k": 1}]},
        "either": b"\xff",
        "number": 2**40,
        "next": None,
    }
    number = registry.add("orders-value", EVERY_TYPE)
    (found, last), bad = split([avro(number, EVERY_TYPE, row | {"next": row}), None])
    assert bad == []
    assert str(found.pop("day")) == "2022-01-08"
    assert found.pop("at").isoformat() == "2023-11-14T22:13:20.123000+00:00"
    assert json.loads(found.pop("next"))["either"] == "\xff"
    assert found == {
        "id": 2**40,
        "value_offset": 5,
        "price": Decimal("12.30"),
        "kind": "B",
        "again": "A",
        "tags": ["x"],
        "more": [("a", 1), ("b", None)],
        "inner": {"x": 0.5, "parts": [[("k", 1)]]},
        "either": '"ÿ"',
        "number": 2**40,
    }
    assert set(last.values()) == {None}


def test_schemas_of_a_batch_are_merged(registry: Any, split: Any) -> None:
    """A field is null in records of schemas without it, and the longer number type wins."""
    old = fields(
        {"name": "id", "type": "int"},
        {"name": "gone", "type": "string"},
        {"name": "in", "type": {"type": "record", "name": "In", "fields": [{"name": "x", "type": "int"}]}},
    )
    new = fields(
        {"name": "id", "type": "long"},
        {
            "name": "in",
            "type": {
                "type": "record",
                "name": "In",
                "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "string", "default": "-"}],
            },
        },
        {"name": "added", "type": "double", "default": 1.0},
    )
    first, second = registry.add("s", old), registry.add("s", new)
    rows, bad = split(
        [
            avro(second, new, {"id": 2**40, "in": {"x": 2, "y": "z"}, "added": 2.0}),
            avro(first, old, {"id": 1, "gone": "g", "in": {"x": 1}}),
        ]
    )
    assert bad == []
    assert rows == [
        {"id": 2**40, "gone": None, "in": {"x": 2, "y": "z"}, "added": 2.0},
        {"id": 1, "gone": "g", "in": {"x": 1, "y": None}, "added": None},
    ]


def test_incompatible_schemas_are_an_error(registry: Any, split: Any) -> None:
    """The error names the schema ids and the field; no record is dropped for another."""
    text, number = fields({"name": "n", "type": "string"}), fields({"name": "n", "type": "int"})
    ids = registry.add("s", text), registry.add("s", number)
    with pytest.raises(TableSchemaMismatchError, match=r"schemas 1, 2 .*Field n"):
        split([avro(ids[0], text, {"n": "x"}), avro(ids[1], number, {"n": 1})])
    price = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}
    for one, other in ((price, "double"), ("string", "bytes")):
        ids = [registry.add("s", fields({"name": "n", "type": kind})) for kind in (one, other)]
        with pytest.raises(TableSchemaMismatchError, match=r"n is .* would change its values"):
            split([b"\0" + id_.to_bytes(4) + b"\0" * 8 for id_ in ids])
    cased = fields({"name": "n", "type": "int"}, {"name": "N", "type": "int"})
    with pytest.raises(TableSchemaMismatchError, match="two columns 'n'"):
        split([avro(registry.add("s", cased), cased, {"n": 1, "N": 2})])


def test_each_bad_value_is_a_dead_letter_with_its_reason(registry: Any, split: Any) -> None:
    """Its neighbours are decoded, and nothing stops."""
    good = registry.add("s", ORDER)
    text = registry.add("s", '"string"')
    other = registry.add("s", "", "PROTOBUF")
    value = avro(good, ORDER, {"id": 1, "note": "x"})
    rows, bad = split(
        [
            value,
            b"",
            b'{"id": 1}',
            b"\0\0",
            value[:-1],
            value + b"\0",
            avro(99, ORDER, {"id": 1}),
            avro(text, "string", "x"),
            avro(other, ORDER, {"id": 1}),  # type: ignore[arg-type]
            value,
        ]
    )
    assert [row["id"] for row in rows] == [1, 1]
    assert [at for at, _ in bad] == [1, 2, 3, 4, 5, 6, 7, 8]
    reasons = dict(bad)
    assert all("wire format" in reasons[at] for at in (1, 2, 3))
    assert reasons[4].startswith("does not fit its schema")
    assert "1 bytes are left over" in reasons[5]
    assert reasons[6] == "schema id 99: the schema registry does not know it"
    assert "not a record" in reasons[7]
    assert "it is PROTOBUF" in reasons[8]


def test_a_value_beyond_its_column_is_a_dead_letter(registry: Any, split: Any) -> None:
    """A number of one schema may have more digits than the column that all schemas share."""
    whole, real = fields({"name": "n", "type": "long"}), fields({"name": "n", "type": "double"})
    first, second = registry.add("s", whole), registry.add("s", real)
    values = [
        avro(first, whole, {"n": 2**53 + 1}),
        avro(first, whole, {"n": 3}),
        avro(second, real, {"n": 0.5}),
    ]
    rows, bad = split(values)
    assert [row["n"] for row in rows] == [3.0, 0.5]
    assert [at for at, _ in bad] == [0]


def test_a_value_that_does_not_fit_names_its_field(registry: Any, split: Any) -> None:
    """Within structs, arrays and maps, too: nothing keeps a producer from writing a longer number."""
    number = {
        "type": "array",
        "items": {"type": "record", "name": "In", "fields": [{"name": "n", "type": "int"}]},
    }
    schema = fields({"name": "all", "type": {"type": "map", "values": number}})
    longer = json.loads(json.dumps(schema).replace('"int"', '"long"'))
    id_ = registry.add("s", schema)
    _, bad = split([avro(id_, longer, {"all": {"k": [{"n": 2**31}]}})])
    assert bad == [(0, "all.value.n: 2147483648 does not fit int32")]


def test_a_decimal_with_more_digits_behind_the_point_than_in_all(registry: Any, split: Any) -> None:
    """No engine has such a type."""
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 5}
    id_ = registry.add("s", fields({"name": "p", "type": kind}))
    assert "scale 5 is above the precision 2" in split([b"\0" + id_.to_bytes(4) + b"\2\1"])[1][0][1]


def test_a_number_that_json_lacks(registry: Any, split: Any) -> None:
    """A union is JSON text."""
    schema = fields({"name": "n", "type": ["double", "string"]})
    id_ = registry.add("s", schema)
    rows, bad = split([avro(id_, schema, {"n": n}) for n in (1.5, float("nan"))])
    assert (rows, bad) == ([{"n": "1.5"}], [(1, "n: nan is no number of JSON")])


def test_a_time_beyond_64_bits_of_microseconds_is_a_dead_letter(registry: Any, split: Any) -> None:
    """It stops neither the batch nor the partition."""
    kind = {"type": "long", "logicalType": "timestamp-millis"}
    schema = fields({"name": "at", "type": kind}, {"name": "or", "type": ["null", kind]})
    number = registry.add("s", schema)
    values = [avro(number, schema, {"at": at, "or": None}) for at in (0, 10**17)]
    rows, bad = split(values)
    assert [(row["at"].year, row["or"]) for row in rows] == [(1970, None)]
    assert [at for at, _ in bad] == [1]


def test_schemas_and_references_are_fetched_once(registry: Any, split: Any) -> None:
    """One request per schema and per reference, however many batches follow."""
    address = {
        "type": "record",
        "name": "Address",
        "namespace": "shop",
        "fields": [{"name": "zip", "type": "string"}],
    }
    registry.add("address", address)
    schema = fields({"name": "home", "type": "shop.Address"}, {"name": "work", "type": "shop.Address"})
    refers = [{"name": "shop.Address", "subject": "address", "version": 1}]
    number = registry.add("orders-value", schema, refers=refers)
    whole = fields({"name": "home", "type": address}, {"name": "work", "type": "shop.Address"})
    value = avro(number, whole, {"home": {"zip": "1"}, "work": {"zip": "2"}})
    rows, bad = split([value, value])
    assert (rows[1], bad) == ({"home": {"zip": "1"}, "work": {"zip": "2"}}, [])
    assert len(registry.requested_paths) == 2


def test_a_topic_of_another_format_does_not_flood_the_registry(registry: Any, split: Any) -> None:
    """Requests for unknown ids are limited, and all values are dead letters."""
    _, bad = split([b"\0" + n.to_bytes(4) + b"x" for n in range(1000, 1500)])
    assert len(bad) == 500
    assert len(registry.requested_paths) == MAX_UNKNOWN_SCHEMAS


def proto(*lines: tuple[str, int, Any], nested: Any = ()) -> FileDescriptorProto:
    """Return a file with a message Other and a message Order of these fields."""
    file = FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    file.message_type.add(name="Other").field.add(
        name="o", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL
    )
    order = file.message_type.add(name="Order")
    for name, number, kind in lines:
        added = order.field.add(name=name, number=number, label=Field.LABEL_OPTIONAL)
        if isinstance(kind, str):
            added.type, added.type_name = Field.TYPE_MESSAGE, kind
        else:
            added.type = kind
    order.nested_type.extend(nested)
    return file


def message(file: FileDescriptorProto, name: str = "shop.Order") -> Any:
    """Return the class of a message."""
    pool = DescriptorPool()
    for module in (timestamp_pb2, wrappers_pb2):
        known = FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(known)
        pool.Add(known)
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(name))


def register(registry: Any, file: FileDescriptorProto) -> bytes:
    """Register a file's descriptor; return the five bytes before the message path."""
    text = b64encode(file.SerializeToString()).decode()
    return b"\0" + bytes(registry.add("s", text, "PROTOBUF").to_bytes(4))


ORDER_PATH = b"\x02\x02"  # one index, 1, both zigzag


def every_kind() -> FileDescriptorProto:
    """Return a file whose Order has a field of each kind."""
    file = proto(
        ("id", 1, Field.TYPE_INT64),
        ("big", 2, Field.TYPE_UINT64),
        ("at", 3, ".google.protobuf.Timestamp"),
        ("maybe", 4, ".google.protobuf.StringValue"),
        ("other", 5, ".shop.Other"),
        ("self", 6, ".shop.Order"),
        ("raw", 7, Field.TYPE_BYTES),
    )
    order = file.message_type[1]
    kind = order.enum_type.add(name="Kind")
    kind.value.add(name="A", number=0)
    kind.value.add(name="B", number=1)
    order.field.add(
        name="kind", number=8, type=Field.TYPE_ENUM, type_name=".shop.Order.Kind", label=Field.LABEL_OPTIONAL
    )
    order.field.add(name="tags", number=9, type=Field.TYPE_STRING, label=Field.LABEL_REPEATED)
    entry = order.nested_type.add(name="MoreEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=Field.TYPE_INT32, label=Field.LABEL_OPTIONAL)
    order.field.add(
        name="more",
        number=10,
        type=Field.TYPE_MESSAGE,
        type_name=".shop.Order.MoreEntry",
        label=Field.LABEL_REPEATED,
    )
    order.oneof_decl.add(name="_note")
    order.field.add(
        name="note",
        number=11,
        type=Field.TYPE_STRING,
        label=Field.LABEL_OPTIONAL,
        oneof_index=0,
        proto3_optional=True,
    )
    return file


def test_protobuf_values_become_typed_columns(registry: Any, split: Any) -> None:
    """Presence, enums, repeated fields, maps, unsigned numbers, well-known types, nested messages."""
    file = every_kind()
    prefix = register(registry, file)
    full = message(file)(id=1, big=2**64 - 1, raw=b"\xff", kind=1, tags=["a"], more={"k": 3}, note="")
    full.at.FromMilliseconds(1_700_000_000_123)
    full.maybe.value = "m"
    full.other.o = "o"
    full.self.id = 9
    empty = message(file)(kind=7)
    (one, two), bad = split([prefix + ORDER_PATH + m.SerializeToString() for m in (full, empty)], "protobuf")
    assert bad == []
    assert one.pop("at").isoformat() == "2023-11-14T22:13:20.123000+00:00"
    assert json.loads(one.pop("self")) == {"id": "9"}
    assert one == {
        "id": 1,
        "big": Decimal(2**64 - 1),
        "maybe": "m",
        "other": {"o": "o"},
        "raw": b"\xff",
        "kind": "B",
        "tags": ["a"],
        "more": [("k", 3)],
        "note": "",
    }
    assert two == {
        "id": 0,
        "big": 0,
        "at": None,
        "maybe": None,
        "other": None,
        "self": None,
        "raw": b"",
        "kind": "7",
        "tags": [],
        "more": [],
        "note": None,
    }


def test_protobuf_schemas_evolve_and_bad_values_are_dead_letters(registry: Any, split: Any) -> None:
    """Added fields are null in older records; bad message paths and bytes are dead letters with a reason."""
    old, new = (
        proto(("id", 1, Field.TYPE_INT32)),
        proto(("id", 1, Field.TYPE_INT64), ("more", 2, Field.TYPE_BOOL)),
    )
    first, second = register(registry, old), register(registry, new)
    rows, bad = split(
        [
            first + ORDER_PATH + message(old)(id=1).SerializeToString(),
            second + ORDER_PATH + message(new)(id=2**40).SerializeToString(),
            second + b"\0" + message(new, "shop.Other")(o="x").SerializeToString(),
            second + b"\x02\x12" + b"",
            second + b"\x7e",
            second,
            second + ORDER_PATH + b"\xff",
        ],
        "protobuf",
    )
    assert rows == [
        {"o": None, "id": 1, "more": None},
        {"o": None, "id": 2**40, "more": False},
        {"o": "x", "id": None, "more": None},
    ]
    assert [at for at, _ in bad] == [3, 4, 5, 6]
    assert "no message at [9]" in bad[0][1]
    assert "wire format" in bad[1][1]
    assert "wire format" in bad[2][1]
    assert "does not fit its schema" in bad[3][1]


def test_a_number_that_a_closed_enum_lacks(registry: Any, split: Any) -> None:
    """Protobuf's reader takes it out of the message: the value would be missing without a word."""
    file = proto(("id", 1, Field.TYPE_INT32))
    file.syntax = "proto2"
    kind = (order := file.message_type[1]).enum_type.add(name="Kind", options={"allow_alias": True})
    for name, number in (("A", 0), ("B", 1), ("SAME", 1)):
        kind.value.add(name=name, number=number)
    enum = {"label": Field.LABEL_OPTIONAL, "type": Field.TYPE_ENUM, "type_name": ".shop.Order.Kind"}
    order.field.add(name="kind", number=2, **enum)
    order.field.add(name="kinds", number=3, **enum | {"label": Field.LABEL_REPEATED})
    entry = order.nested_type.add(name="NamedEntry", options={"map_entry": True})
    entry.field.add(name="key", number=1, label=Field.LABEL_OPTIONAL, type=Field.TYPE_STRING)
    entry.field.add(name="value", number=2, **enum)
    order.field.add(name="named", number=4, label=3, type=11, type_name=".shop.Order.NamedEntry")
    prefix = register(registry, file) + ORDER_PATH
    good, bad_entry = b"\x10\x01\x18\x00\x22\x05\x0a\x01a\x10\x00", b"\x22\x05\x0a\x01b\x10\x07"
    data = (good, b"\x10\x07", b"\x18\x00\x18\x07", bad_entry)
    rows, bad = split([prefix + value for value in data], "protobuf")
    assert rows == [{"id": None, "kind": "B", "kinds": ["A"], "named": [("a", "A")]}]
    fields = enumerate(("kind", "kinds", "named.b"), 1)
    assert bad == [(at, f"{field}: 7 is no value of shop.Order.Kind") for at, field in fields]


def test_the_fake_registry_serves_confluents_client(registry: Any) -> None:
    """A schema that confluent-kafka's client registers is found again."""
    client = SchemaRegistryClient({"url": registry.url})
    number = client.register_schema("orders-value", Schema(json.dumps(ORDER), "AVRO"))
    assert json.loads(client.get_schema(number).schema_str or "") == ORDER
    assert client.get_latest_version("orders-value").schema_id == number


def test_a_schema_that_the_registry_refuses_concerns_its_topic_alone(registry: Any) -> None:
    """It answers for other schemas: retried for ever, the flush would hold up tables of other subjects."""
    numbers = [registry.add(subject, fields({"name": subject, "type": "string"})) for subject in ("a", "b")]
    registry.forbidden = {numbers[0]}
    client = SchemaRegistry({"url": registry.url})
    with pytest.raises(TableAccessError, match="refuses schema 1: User is denied") as refused:
        client.fetch_schema(numbers[0])
    assert not concerns_all(refused.value)
    assert client.fetch_schema(numbers[1]).kind == "AVRO"


REFUSED = {"error_code": 42201, "message": "Invalid schema"}
NO_SUCH_PATH = {"error_code": 404, "message": "HTTP 404 Not Found"}


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (404, {"error_code": 404, "message": "No content with id 7"}, UnusableSchemaError),  # Apicurio's
        (404, NO_SUCH_PATH, SchemaRegistryUnavailableError),  # of a wrong URL: so is every other schema
        (404, {}, SchemaRegistryUnavailableError),  # no registry's
        (400, {"error_code": 400, "message": "not an id"}, UnusableSchemaError),
        (422, REFUSED, UnusableSchemaError),
        *((status, REFUSED, SchemaRegistryUnavailableError) for status in (401, 407, 408, 429, 500)),
    ],
)
def test_a_schema_that_is_refused_whenever_it_is_asked_for_is_a_dead_letter(
    registry: Any, status: int, body: dict[str, Any], kind: type[Exception]
) -> None:
    """Retried for ever, one record that is no value of the registry would stop every table."""
    registry.respond = lambda _: (status, body)
    with pytest.raises(kind):
        SchemaRegistry({"url": registry.url}).fetch_schema(7)


@pytest.mark.parametrize("kind", ["avro", "protobuf"])
def test_a_schema_id_above_the_greatest_is_no_wire_format(registry: Any, split: Any, kind: str) -> None:
    """No registry is asked for it: Confluent's answers as it does for a wrong URL."""
    _, bad = split([b"\0\x80\0\0\0\0", b"\0\xff\xff\xff\xff\0", b"\0\x7f\xff\xff\xff\0"], kind)
    assert ["wire format" in reason for _, reason in bad] == [True, True, False]
    assert [path.split("?")[0] for path in registry.requested_paths] == ["/schemas/ids/2147483647"]


def test_an_unavailable_registry_is_an_error_without_secrets(registry: Any) -> None:
    """Down, refusing or no registry at all: retryable, and no password in the message."""
    user = {"basic.auth.user.info": "me:hush"}
    number = registry.add("s", ORDER)
    registry.login = "me:other"
    with pytest.raises(SchemaRegistryUnavailableError, match="Unauthorized") as refused:
        SchemaRegistry({"url": registry.url} | user).fetch_schema(number)
    registry.login = "me:hush"
    assert SchemaRegistry({"url": registry.url} | user).fetch_schema(number).kind == "AVRO"
    registry.down = True
    with pytest.raises(SchemaRegistryUnavailableError, match="not now"):
        SchemaRegistry({"url": registry.url} | user).fetch_schema(number)
    with pytest.raises(SchemaRegistryUnavailableError) as away:
        SchemaRegistry({"url": "http://me:hush@127.0.0.1:1"}).fetch_schema(number)
    assert away.value.retryable
    assert "http://127.0.0.1:1 " in str(away.value)
    assert "hush" not in f"{away.value} {refused.value}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, r"schema\.registry\.url must be"),
        ({"schema.registry.url": "me:hush@host"}, "must be the registry's address"),
        ({"lake.decoder": "avor"}, "did you mean 'avro'"),
        ({"schema.registry.url": "http://x", "lake.schema": "id INT"}, "need each other"),
    ],
)
def test_bad_registry_settings_are_errors(change: dict[str, Any], message: str) -> None:
    """They are raised before anything starts, and show no value that may be secret."""
    good = {"group.id": "g", "enable.auto.commit": False, "lake.warehouse": "/x", "lake.decoder": "avro"}
    with pytest.raises(SettingError, match=message) as caught:
        parse_lake_config(good | change)
    assert "hush" not in str(caught.value)


def test_settings_that_the_client_rejects_are_errors() -> None:
    """The client's message, with our setting's name; repr shows no secret."""
    with pytest.raises(SettingError, match=r"schema\.registry\.\*: Unrecognized.*nonsense"):
        SchemaRegistry({"url": "http://x", "nonsense": 1})
    config = parse_lake_config(
        {
            "group.id": "g",
            "enable.auto.commit": False,
            "lake.warehouse": "/x",
            "lake.decoder": "avro",
            "schema.registry.url": "http://x",
            "basic.auth.user.info": "me:hush",
        }
    )
    assert config.registry_settings["basic.auth.user.info"] == "me:hush"
    assert "hush" not in repr(config)


@pytest.mark.spark
@pytest.mark.parametrize(
    "lake",
    ["iceberg_arrow", *(pytest.param(lake, marks=pytest.mark.slow) for lake in ("iceberg", "delta_arrow"))],
    indirect=True,
)
def test_avro_records_are_written_and_the_table_evolves(
    writers: Make, registry: Any, spark: Any, namespace: str
) -> None:
    """New fields become columns, dead letters have their table, and a tombstone is a row of nulls."""
    new = fields(
        *ORDER["fields"],
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [
                        {"name": "n", "type": "int"},
                        {
                            "name": "d",
                            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
                        },
                    ],
                },
            },
        },
    )
    first, second = registry.add("s", ORDER), registry.add("s", new)
    log = {
        P0: [
            avro(first, ORDER, {"id": 1, "note": None}),
            b"bad",
            avro(second, new, {"id": 2, "note": "n", "at": 1, "lines": [{"n": 1, "d": Decimal("1.50")}]}),
            None,
        ]
    }
    config = {
        "lake_decoder": "avro",
        "schema_registry_url": registry.url,
        "lake_schema_evolution": "add",
        "lake_flush_timeout": "120 s",
    }
    consumer, writer = writers(log, **config)
    consumer.assign(writer, P0)
    for count in (2, 2):
        writer.write(consumer.consume(count))
        writer.flush()
    writer.close()
    found = spark.table(f"{namespace}.orders").orderBy("offset").collect()
    assert [(r.offset, r.id, r.note) for r in found] == [(0, 1, None), (2, 2, "n"), (3, None, None)]
    assert found[1].lines[0].d == Decimal("1.50")
    assert spark.table(f"{namespace}.orders_dead_letter").count() == 1


@pytest.mark.spark
def test_an_unavailable_registry_is_retried(
    writers: Make, registry: Any, spark: Any, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No record is lost or becomes a dead letter, and the log has the reason of the wait."""
    number = registry.add("s", ORDER)
    registry.down = True
    config = {"lake_decoder": "avro", "schema_registry_url": registry.url, "lake_flush_timeout": "120 s"}
    consumer, writer = writers({P0: [avro(number, ORDER, {"id": 1, "note": None})] * 3}, **config)
    consumer.assign(writer, P0)

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "not now" in record.getMessage():
                registry.down = False

    listener = Listener()
    logging.getLogger("trimtab.lake").addHandler(listener)
    try:
        writer.write(consumer.consume(3))
        writer.close()
    finally:
        logging.getLogger("trimtab.lake").removeHandler(listener)
    assert spark.table(f"{namespace}.orders").count() == 3
    assert not spark.catalog.tableExists(f"{namespace}.orders_dead_letter")
    assert any("retrying, no record is lost" in line for line in caplog.messages)


@pytest.mark.spark
def test_a_schema_that_does_not_fit_its_table_halts_its_topic_alone(
    writers: Make, registry: Any, rows: Make, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The other topic is written on; the log says once why, a metric counts, close() raises the error."""
    text = fields({"name": "id", "type": "string"})
    good = avro(registry.add("s", ORDER), ORDER, {"id": 1, "note": None})
    bad = avro(registry.add("s", text), text, {"id": "x"})
    other, clicks = TopicPartition("orders", 1), TopicPartition("clicks", 0)
    log: dict[TopicPartition, list[bytes]] = {P0: [], other: [], clicks: []}
    config = {"lake_decoder": "avro", "schema_registry_url": registry.url, "lake_schema_evolution": "add"}
    metrics = LakeMetrics()
    consumer, writer = writers(log, metrics=metrics, **config)
    consumer.assign(writer, *log)
    for orders, others in ((good, good), (bad, good), (good, bad)):
        for partition, value in zip(log, (orders, others, good), strict=True):
            log[partition].append(value)
        writer.write(consumer.consume(10))
        with suppress(TableSchemaMismatchError):
            writer.flush()
    assert rows(f"{namespace}.clicks") == [("clicks", 0, n) for n in range(3)]
    assert rows(f"{namespace}.orders") == [("orders", n, 0) for n in range(2)]
    (error,) = (record.getMessage() for record in caplog.records if record.levelname == "ERROR")
    assert re.search(r"orders halted, which touches no other table: the schemas 1, 2 .*Field id", error)
    sample = partial(metrics.registry.get_sample_value, "trimtab_halted_partitions", {"topic": "orders"})
    assert sample() == 2
    with pytest.raises(TableSchemaMismatchError, match="Field id"):
        writer.close()
    consumer.revoke(writer, *log)
    assert sample() == 0
    assert consumer.committed == {P0: 1, other: 1, clicks: 3}
