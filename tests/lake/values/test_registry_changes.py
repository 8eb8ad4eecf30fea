"""Changes whose values and keys are in a schema registry's format, as by Debezium with its converters."""

from base64 import b64encode
from collections.abc import Callable
from io import BytesIO
from typing import Any

import fastavro
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from support.lake.change_records import ChangeRecord, apply_changes, build_records
from trimtab.consumer_sdk.lake.options.settings import parse_lake_config
from trimtab.consumer_sdk.lake.projection.keyed_projection import KeyedProjection
from trimtab.consumer_sdk.lake.projection.topic_projections import TopicProjections

Encode = Callable[[dict[str, Any]], bytes]
A1, B1, A2 = ({"id": at, "name": name} for at, name in ((1, "a"), (1, "b"), (2, "a")))
ONE, TWO = ("orders", 1), ("orders", 2)


def avro_encoder(registry: Any, subject: str, schema: dict[str, Any]) -> Encode:
    """Register a schema; return the encoder of its values."""
    prefix = b"\0" + registry.add(subject, schema).to_bytes(4)
    parsed = fastavro.parse_schema(schema)

    def encode(row: dict[str, Any]) -> bytes:
        data = BytesIO()
        fastavro.schemaless_writer(data, parsed, row)
        return prefix + data.getvalue()

    return encode


def encode_avro(registry: Any) -> tuple[Encode, Encode]:
    """Return the encoders of Debezium's keys and envelopes; the key's id is shorter than the row's."""
    row = {
        "type": "record",
        "name": "Value",
        "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}],
    }
    envelope = {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", row]},
            {"name": "after", "type": ["null", "Value"]},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"]},
        ],
    }
    key = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
    return avro_encoder(registry, "k", key), avro_encoder(registry, "v", envelope)


def encode_protobuf(registry: Any) -> tuple[Encode, Encode]:
    """Return the encoders of Debezium's keys and envelopes."""
    file = FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    messages = {
        "Envelope": [("before", ".shop.Value"), ("after", ".shop.Value"), ("op", Field.TYPE_STRING)],
        "Value": [("id", Field.TYPE_INT64), ("name", Field.TYPE_STRING)],
        "Key": [("id", Field.TYPE_INT64)],
    }
    for name, fields in messages.items():
        added = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields, 1):
            one = added.field.add(name=field, number=number, label=Field.LABEL_OPTIONAL)
            if isinstance(kind, str):
                one.type, one.type_name = Field.TYPE_MESSAGE, kind
            else:
                one.type = kind
    pool = DescriptorPool()
    pool.Add(file)
    text = b64encode(file.SerializeToString()).decode()
    prefix = b"\0" + registry.add("s", text, "PROTOBUF").to_bytes(4)

    def encoder(name: str, path: bytes) -> Encode:
        kind = GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}"))

        def encode(row: dict[str, Any]) -> bytes:
            known = {field: value for field, value in row.items() if value is not None and field != "ts_ms"}
            data: bytes = kind(**known).SerializeToString()
            return prefix + path + data

        return encode

    return encoder("Key", b"\x02\x04"), encoder("Envelope", b"\x00")  # the message's index, both zigzag


@pytest.mark.parametrize(("decoder", "encode"), [("avro", encode_avro), ("protobuf", encode_protobuf)])
def test_debezium_changes_in_a_registrys_format(registry: Any, decoder: str, encode: Any) -> None:
    """Upserts, deletes, changed keys and tombstones, whose keys are decoded as the values are."""
    encode_key, encode_envelope = encode(registry)

    def change(op: str, before: Any = None, after: Any = None) -> ChangeRecord:
        envelope = {"before": before, "after": after, "op": op, "ts_ms": 1}
        return ChangeRecord(encode_key({"id": (after or before)["id"]}), encode_envelope(envelope))

    projection = create_projection(registry, decoder)
    changes = [change("c", None, A1), change("r", None, A2), change("u", A1, B1)]
    rows = apply(projection, {}, *changes)
    assert rows == {ONE: B1, TWO: A2}
    assert apply(projection, rows, change("d", B1)) == {TWO: A2}
    assert apply(projection, rows, ChangeRecord(encode_key({"id": 1}), None)) == {TWO: A2}
    moved = {"id": 3, "name": "a"}
    assert apply(projection, rows, change("u", A2, moved)) == {ONE: B1, ("orders", 3): moved}
    _, letters = projection.read_changes(
        build_records([ChangeRecord(b"\0\0\0\0\x63x", None), *changes, ChangeRecord(None, b"junk")])
    )
    assert letters is not None
    assert [row["offset"] for row in letters.to_pylist()] == [4, 0]


def test_heartbeats_alone_have_no_columns(registry: Any) -> None:
    """A batch of them changes nothing."""
    heartbeat = {"type": "record", "name": "Heartbeat", "fields": [{"name": "ts_ms", "type": "long"}]}
    record = ChangeRecord(None, avro_encoder(registry, "h", heartbeat)({"ts_ms": 5}))
    changes, letters = create_projection(registry, "avro").read_changes(build_records([record]))
    assert (changes.upserts.num_rows, changes.touched_keys.num_rows, letters) == (0, 0, None)


def create_projection(registry: Any, decoder: str) -> KeyedProjection:
    """Return the projection of these settings."""
    config = {
        "group.id": "g",
        "enable.auto.commit": False,
        "lake.warehouse": "lake",
        "lake.decoder": decoder,
        "schema.registry.url": registry.url,
        "lake.write": "upsert",
        "lake.key": "id",
    }
    projection = TopicProjections(parse_lake_config(config)).projection_for("lake.orders", "orders")
    assert isinstance(projection, KeyedProjection)
    return projection


def apply(projection: KeyedProjection, rows: dict[Any, Any], *records: ChangeRecord) -> dict[Any, Any]:
    """Return the rows by id after these records."""
    changes, letters = projection.read_changes(build_records(records))
    assert letters is None
    after = apply_changes(rows, changes)
    return {key: {name: row[name] for name in ("id", "name")} for key, row in after.items()}
