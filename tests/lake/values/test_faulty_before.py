"""Values that their type cannot hold in columns that a change does not write: they cost no record.

Keys count always. With soft deletes, the row of a delete and that of a changed key are written.
"""

import json
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from io import BytesIO
from typing import Any

import fastavro
import pytest
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from support.lake.change_records import ChangeRecord, build_records
from trimtab.consumer_sdk.lake.options.settings import parse_lake_config
from trimtab.consumer_sdk.lake.projection.topic_projections import TopicProjections

pytestmark = pytest.mark.spark

Encode = Callable[[dict[str, Any]], bytes]
ENVELOPE = ("op", "before", "after")
MAPPING = {"op": "op", "upsert": "u", "delete": "d", "row": "after"}
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}


def encode_json(_: Any) -> tuple[Encode, dict[str, Any]]:
    """Return an encoder of changes, in whose rows `x` is a fault of the type, and the settings."""

    def encode(change: dict[str, Any]) -> bytes:
        rows = {
            side: {"id": row["id"], "n": "x" if row["x"] else 7}
            for side, row in change.items()
            if side != "op"
        }
        return json.dumps({"op": change["op"], **rows}).encode()

    return encode, {"lake.decoder": "json", "lake.schema": "id INT, n INT"}


def encode_avro(registry: Any) -> tuple[Encode, dict[str, Any]]:
    """Return the same of Avro: a decimal with more digits than it has."""
    fields = [{"name": "id", "type": "int"}, {"name": "n", "type": ["null", PRICE]}]
    row = {"type": "record", "name": "Row", "fields": fields}
    sides = [{"name": name, "type": ["null", kind]} for name, kind in (("before", row), ("after", "Row"))]
    schema = {"type": "record", "name": "Envelope", "fields": [{"name": "op", "type": "string"}, *sides]}
    prefix = b"\0" + registry.add("v", schema).to_bytes(4)
    raw = fastavro.parse_schema(json.loads(json.dumps(schema).replace("logicalType", "other")))

    def encode(change: dict[str, Any]) -> bytes:
        data, whole = BytesIO(), dict.fromkeys(ENVELOPE) | change
        for side in ENVELOPE[1:]:
            if whole[side]:
                whole[side] = {"id": whole[side]["id"], "n": (10**6 if whole[side]["x"] else 1).to_bytes(5)}
        fastavro.schemaless_writer(data, raw, whole)
        return prefix + data.getvalue()

    return encode, {"lake.decoder": "avro", "schema.registry.url": registry.url}


def encode_protobuf(registry: Any, seconds: int = 2**62, nanos: int = 0) -> tuple[Encode, dict[str, Any]]:
    """Return the same of Protobuf: a time beyond 64 bits, or of a part of a microsecond."""
    file = FileDescriptorProto(name="v.proto", package="v", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    messages = {
        "Envelope": {"op": Field.TYPE_STRING, "before": ".v.Row", "after": ".v.Row"},
        "Row": {"id": Field.TYPE_INT32, "n": ".google.protobuf.Timestamp"},
    }
    for name, fields in messages.items():
        added = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields.items(), 1):
            one = added.field.add(name=field, number=number, label=Field.LABEL_OPTIONAL)
            if isinstance(kind, str):
                one.type, one.type_name = Field.TYPE_MESSAGE, kind
            else:
                one.type = kind
    pool, known = DescriptorPool(), FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(known)
    pool.Add(known)
    pool.Add(file)
    prefix = (
        b"\0"
        + registry.add("v", b64encode(file.SerializeToString()).decode(), "PROTOBUF").to_bytes(4)
        + b"\0"
    )
    kind = GetMessageClass(pool.FindMessageTypeByName("v.Envelope"))

    def encode(change: dict[str, Any]) -> bytes:
        value = kind(op=change["op"])
        for side in change.keys() - {"op"}:
            row = getattr(value, side)
            row.id = change[side]["id"]
            row.n.seconds, row.n.nanos = (seconds, nanos) if change[side]["x"] else (7, 0)
        return prefix + bytes(value.SerializeToString())

    return encode, {"lake.decoder": "protobuf", "schema.registry.url": registry.url}


encode_nanos = partial(encode_protobuf, seconds=7, nanos=1)


def row(number: int, fault: int = 0) -> dict[str, int]:
    return {"id": number, "x": fault}


@pytest.mark.parametrize("delete", ["hard", "soft"])
@pytest.mark.parametrize("form", ["debezium", MAPPING], ids=["debezium", "mapping"])
@pytest.mark.parametrize("encoding", [encode_json, encode_avro, encode_protobuf, encode_nanos])
def test_a_fault_counts_only_where_it_is_written(
    spark: Any, registry: Any, encoding: Callable[..., Any], form: Any, delete: str
) -> None:
    """The same for every format of values."""
    del spark
    encode, settings = encoding(registry)
    changes = {
        "plain": {"op": "u", "before": row(1), "after": row(1)},
        "before": {"op": "u", "before": row(2, 1), "after": row(2)},
        "after": {"op": "u", "before": row(3), "after": row(3, 1)},
        "both": {"op": "u", "before": row(4, 1), "after": row(4, 1)},
        "moved": {"op": "u", "before": row(5, 1), "after": row(6)},
        "deleted": {"op": "d", "before": row(7, 1)},
    }
    if form is MAPPING:  # which reads `after` alone
        changes |= {"deleted": {"op": "d", "after": row(7, 1)}}
        changes = {name: {side: change[side] for side in ("op", "after")} for name, change in changes.items()}
    base = {"group.id": "g", "enable.auto.commit": False, "lake.warehouse": "lake", "lake.write": "upsert"}
    config = parse_lake_config(
        base | settings | {"lake.key": "id", "lake.changes": form, "lake.delete": delete}
    )
    projection: Any = TopicProjections(config).projection_for("lake.orders", "orders")
    records = [ChangeRecord(None, encode(change)) for change in changes.values()]
    result, letters = projection.read_changes(build_records(records))
    lost = [list(changes)[row["offset"]] for row in letters.to_pylist()]
    expected = ["after", "both"]
    if delete == "soft":
        expected += ["moved", "deleted"] if form == "debezium" else ["deleted"]
    assert sorted(lost) == sorted(expected)
    assert sorted(result.upserts.column("id").to_pylist()) == [1, 2, *([] if "moved" in lost else [6])]
    touched = {1, 2} | (set() if "moved" in lost else {6, 5} if form == "debezium" else {6})
    assert {*result.touched_keys.column("id").to_pylist()} == touched | (set() if "deleted" in lost else {7})
    assert all(row["field"].split(".")[0] in ("before", "after") for row in letters.to_pylist())
