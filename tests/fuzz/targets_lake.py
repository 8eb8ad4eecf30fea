"""Decoders of the lake: offsets of tables, values of a schema registry, names, rows, dead letters."""

import json
import struct
from base64 import b64encode
from functools import cache
from types import SimpleNamespace
from typing import Any, Final

import pyarrow as pa
from google.protobuf.struct_pb2 import Struct
from google.protobuf.type_pb2 import Type

from support.lake.hostile_json import GOOD, HOSTILE
from trimtab.assignor.model import TopicPartition
from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.errors import CommittedOffsetsLostError, TableSchemaMismatchError
from trimtab.consumer_sdk.lake.decoding import wire_format
from trimtab.consumer_sdk.lake.decoding.avro import create_avro_reader
from trimtab.consumer_sdk.lake.decoding.json_columns import read_objects
from trimtab.consumer_sdk.lake.decoding.protobuf import create_protobuf_reader
from trimtab.consumer_sdk.lake.decoding.registry_decoders import RegistryDecoder
from trimtab.consumer_sdk.lake.decoding.schema_registry import RegisteredSchema
from trimtab.consumer_sdk.lake.decoding.value_reader import UnusableSchemaError
from trimtab.consumer_sdk.lake.formats.delta.offset_transactions import (
    parse_attempt,
    parse_offset_transactions,
)
from trimtab.consumer_sdk.lake.model.partition_spec import parse_partitioning
from trimtab.consumer_sdk.lake.model.table_names import TableNames, check_table_name, to_sql_identifier
from trimtab.consumer_sdk.lake.offsets.offset_gaps import OffsetGap, TableGaps
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_SCHEMA, build_record_batch
from trimtab.consumer_sdk.lake.tables.dead_letters import build_replay_headers

P: Final = TopicPartition("orders", 7)
AVRO: Final = {
    "type": "record",
    "name": "order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string", "double"]}},
        {"name": "more", "type": {"type": "map", "values": ["null", "order"]}},
        {"name": "kind", "type": {"type": "enum", "name": "kind", "symbols": ["a", "b"]}},
    ],
}
AVRO_VALUE: Final = b"\x0e\x80\xd0\xc8\x9d\xf7\x5f\x04\x01\x02\x02\x02\x02x\x00\x00\x02"
EMPTY_ITEMS: Final = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "null"}]}
ENDLESS: Final = AVRO | {"fields": [{"name": "tags", "type": {"type": "array", "items": EMPTY_ITEMS}}]}
PROTOBUF_VALUE: Final = Type(name="t", oneofs=["a", "b"], edition="x").SerializeToString()
OFFSETS: Final = CommittedOffsets({"g": {P: 4711, TopicPartition("a.b", 0): 0}, "ü": {P: 2**63 - 1}})
JSON_SCHEMA: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("n", pa.int8()),
        ("d", pa.float64()),
        ("f", pa.float32()),
        ("name", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("p", pa.decimal128(9, 2)),
        ("b", pa.binary()),
        ("t", pa.bool_()),
        ("m", pa.map_(pa.string(), pa.int32())),
        ("a", pa.list_(pa.struct([("x", pa.int32())]))),
        ("s", pa.struct([("y", pa.timestamp("us"))])),
    ]
)
SEEDS: Final = {
    "offsets": [OFFSETS.encode().encode()],
    "gaps": [TableGaps().with_group_gaps("g", {P: [OffsetGap(0, 3), OffsetGap(7, 9)]}).encode().encode()],
    "delta_transactions": [
        b"SetTransaction(trimtab/g%2F/orders/7,4711,Some(17))\nSetTransaction(app,1,None)"
    ],
    "delta_attempt": [b'{"commitInfo":{"timestamp":1,"userMetadata":"trimtab-1"}}', b'{"commitInfo":null}'],
    "wire_prefix": [b"\0\0\0\0\1", b"\0\0\0\0\1\0x", b"\0\0\0\0\1\4\2\4x"],
    "json_values": [GOOD, *HOSTILE[:60]],
    "avro_schema": [json.dumps(AVRO).encode(), json.dumps(ENDLESS).encode()],
    "protobuf_schema": [
        b64encode(Type.DESCRIPTOR.file.serialized_pb),
        b64encode(Struct.DESCRIPTOR.file.serialized_pb),
    ],
    "avro_values": [b"\0\0\0\0\1" + AVRO_VALUE, b"\0\0\0\0\3\xfe\xff\xff\xff\x0f\0"],
    "protobuf_values": [b"\0\0\0\0\2\0" + PROTOBUF_VALUE],
    "table_names": [
        b"shop.orders-v2",
        b"2024",
        b"lake.{topic}",
        b'{"lake.a": "day(timestamp), bucket(3, b)"}',
    ],
    "records": [struct.pack(">qq", 1, 1_700_000_000_000) + b"key|value|header"],
    "dead_letters": [struct.pack(">qq", 1, 1_700_000_000_000) + b"orders|reason|header"],
}


def offsets(data: bytes) -> None:
    """Property trimtab.offsets; what is read is written again as it was."""
    try:
        found = CommittedOffsets.decode(_to_text(data), "t")
    except CommittedOffsetsLostError:
        return
    assert CommittedOffsets.decode(found.encode(), "t") == found
    assert all(0 <= offset < 2**63 for group in found.groups.values() for offset in group.values())


def gaps(data: bytes) -> None:
    """Property trimtab.gaps."""
    try:
        found = TableGaps.decode(_to_text(data), "t")
    except CommittedOffsetsLostError:
        return
    assert TableGaps.decode(found.encode(), "t") == found


def delta_transactions(data: bytes) -> None:
    """Offsets in the `txn` actions of a Delta table, each of Trimtab's is read or refused."""
    text = _to_text(data)
    try:
        found = parse_offset_transactions(text, "t")
    except CommittedOffsetsLostError:
        return
    assert found or not text.startswith("SetTransaction(trimtab/")


def delta_attempt(data: bytes) -> None:
    """The first action of a Delta commit, which any program may have written."""
    parse_attempt(_to_text(data))


def wire_prefix(data: bytes) -> None:
    """Prefixes of the registry's serializers; a prefix is part of its value, and parses."""
    for read in (wire_format.read_avro_prefix, wire_format.read_protobuf_prefix):
        try:
            prefix = read(data)
        except wire_format.WireFormatError:
            continue
        assert data.startswith(prefix)
        assert wire_format.parse_schema_header(prefix).schema_id == int.from_bytes(data[1:5])


def avro_schema(data: bytes) -> None:
    """A schema of the registry: its records are read, or dead letters with a reason."""
    try:
        reader = create_avro_reader(_to_text(data), {})
    except UnusableSchemaError:
        return
    assert len(reader.schema) > 0


def protobuf_schema(data: bytes) -> None:
    """A descriptor of the registry."""
    try:
        create_protobuf_reader(_to_text(data), {}, (0,))
    except UnusableSchemaError:
        return


def json_values(data: bytes) -> None:
    """Each value is a row or has a reason; those beside it are rows, also in the same buffer."""
    rows, refused = read_objects(pa.array([GOOD, data, GOOD]), JSON_SCHEMA, {"*": "epoch-millis"})
    rows.validate(full=True)
    assert refused.keys() <= {1}
    assert rows[0] == rows[2]
    assert rows[1].is_valid == (not refused)


def avro_values(data: bytes) -> None:
    """Each record is a row or a dead letter with a reason."""
    _decode_with_registry("avro", data)


def protobuf_values(data: bytes) -> None:
    """Each record is a row or a dead letter with a reason."""
    _decode_with_registry("protobuf", data)


def table_names(data: bytes) -> None:
    """Topics, names of tables and rules of partitions."""
    text = _to_text(data)
    try:
        names = TableNames(text if "{topic}" in text else "lake.{topic}", {"a": "lake.b"})
        names.check_collisions([text, "a", "a.b"])
        check_table_name(names.table_for(text), "lake.table") if text else None
        to_sql_identifier(text)
        parse_partitioning(_to_json(text))
    except SettingError:
        return


def records(data: bytes) -> None:
    """Timestamps, keys and headers of a record, as the broker stores them."""
    _build_records(data)


def dead_letters(data: bytes) -> None:
    """Rows of a dead-letter table become headers of a replay."""
    (row,) = _build_records(data).drop_columns("timestamp").to_pylist()
    row |= {"timestamp": None, "error": _to_text(data[16:]), "headers": dict(row["headers"])}
    headers = build_replay_headers(_Row(row))  # headers are a map, as Spark reads them
    assert all(isinstance(name, str) and isinstance(value, bytes | None) for name, value in headers)


def _build_records(data: bytes) -> Any:
    kind, milliseconds = struct.unpack(">qq", data[:16].ljust(16, b"\0"))
    key, value, header = [*data[16:].split(b"|", 2), b"", b""][:3]
    message = SimpleNamespace(
        offset=lambda: max(0, kind),
        timestamp=lambda: (kind % 3, milliseconds),
        key=lambda: key or None,
        value=lambda: value,
        headers=lambda: [(header.decode(errors="replace"), value), ("trimtab.replay.topic", None)],
    )
    message_list: Any = [message]
    return build_record_batch(P, message_list)


class _Row(dict[str, Any]):
    """A Spark row: its columns are attributes, too."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


class _Registry:
    """A registry of three schemas."""

    def fetch_schema(self, schema_id: int, form: str | None = None) -> RegisteredSchema:
        if schema_id == 2 and form is not None:
            return RegisteredSchema("PROTOBUF", b64encode(Type.DESCRIPTOR.file.serialized_pb).decode())
        schemas = {1: AVRO, 3: ENDLESS, 4: 7}
        if schema_id not in schemas:
            raise UnusableSchemaError("the schema registry does not know it")
        return RegisteredSchema("AVRO", json.dumps(schemas[schema_id]))


@cache
def _decoder(kind: str) -> RegistryDecoder:
    registry: Any = _Registry()
    return RegistryDecoder(registry, kind)


def _decode_with_registry(kind: str, data: bytes) -> None:
    # a good record and one without a value beside it: they must come out
    good = SEEDS[f"{kind}_values"][0]
    rows = [{"topic": "t", "partition": 0, "offset": n, "value": v} for n, v in enumerate((good, data, None))]
    try:
        decoded = _decoder(kind).decode_batch(pa.Table.from_pylist(rows, RECORD_SCHEMA))
    except TableSchemaMismatchError:
        return
    letters = [] if decoded.dead_letters is None else decoded.dead_letters.to_pylist()
    offsets_out = [*decoded.rows.column("offset").to_pylist(), *(letter["offset"] for letter in letters)]
    assert sorted(offsets_out) == [0, 1, 2]
    assert [letter["offset"] for letter in letters if not letter["error"]] == []
    assert {letter["offset"] for letter in letters} <= {1}


def _to_text(data: bytes) -> str:
    return data.decode(errors="replace")


def _to_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
