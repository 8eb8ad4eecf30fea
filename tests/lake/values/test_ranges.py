"""Values outside the range of their type, by every decoder: no file holds one, every engine reads."""

import json
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from support.lake.read_by_others import read_rows
from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import TransformError

pytestmark = pytest.mark.spark

P0 = TopicPartition("orders", 0)
INFINITY = 2**31 - 1  # of PostgreSQL's DATE, as Debezium writes it
EVERY_FORMAT = pytest.mark.parametrize("lake", ["iceberg", "delta_arrow"], indirect=True)
INFINITE_DAY = "2147483647 days since 1970 are outside the years 1 to 9999 of a date"

LAST_DAY = date(9999, 12, 31)
LAST_TIME = datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
FIELDS = [
    {"name": "id", "type": "int"},
    {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
    {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
    {
        "name": "inner",
        "type": [
            "null",
            {"type": "record", "name": "In", "fields": [{"name": "price", "type": ["null", PRICE]}]},
        ],
    },
]
ROW = {"type": "record", "name": "Order", "fields": FIELDS}
# written without logical types, as nothing keeps a producer from writing such numbers
RAW_ROW = json.loads(json.dumps(ROW).replace("logicalType", "other"))
LAST_ROW = {"id": 0, "day": 2_932_896, "at": 253_402_300_799_999, "inner": {"price": (10**9 - 1).to_bytes(5)}}
OUTSIDE = [
    ({"day": INFINITY}, f"day: {INFINITE_DAY}"),
    ({"day": -(2**31)}, "day: -2147483648 days since 1970 are outside"),
    ({"at": 253_402_300_800_000}, "at: 253402300800000000 us since 1970 are outside the years 1 to 9999"),
    ({"at": 2**63 - 1}, "at: 9223372036854775807 ms since 1970 are outside the years 1 to 9999"),
    ({"inner": {"price": (10**9).to_bytes(5)}}, "inner.price: 10000000.00 has more digits than decimal(9,2)"),
    ({"inner": {"price": (10**40 + 1).to_bytes(20)}}, "has more digits than decimal(9,2)"),
]
LAST = {"day": LAST_DAY, "at": LAST_TIME, "inner": {"price": Decimal("9999999.99")}}


def encode(prefix: bytes, schema: Any, row: Any) -> bytes:
    """Return an Avro value in the wire format."""
    data = BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema), row)
    return prefix + data.getvalue()


@pytest.fixture
def ingest(
    writers: Callable[..., Any], lake: Any, namespace: str, warehouse: Path
) -> Callable[..., tuple[list[dict[str, Any]], list[str]]]:
    """Write values in one flush; return the rows as others read them, and the reasons of dead letters."""

    def run(values: list[bytes | None], **config: Any) -> Any:
        consumer, writer = writers({P0: values}, lake_flush_timeout="120 s", **config)
        consumer.assign(writer, P0)
        writer.write(consumer.consume(len(values)))
        writer.close()
        rows, letters = (lake.open_table(f"{namespace}.orders{end}") for end in ("", "_dead_letter"))
        reasons = [] if letters is None else read_rows(letters, warehouse, "offset")
        return read_rows(rows, warehouse), [row["error"] for row in reasons]

    return run


def values_of(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the decoded columns but the id."""
    return [{name: row[name] for name in LAST} for row in rows]


@EVERY_FORMAT
@pytest.mark.parametrize("policy", ["dead-letter", "null"])
def test_avro(ingest: Callable[..., Any], registry: Any, policy: str) -> None:
    """The ends of the ranges are kept; a decimal is not rounded to its digits."""
    prefix = b"\0" + registry.add("s", ROW).to_bytes(4)
    outside = [LAST_ROW | {"id": at} | change for at, (change, _) in enumerate(OUTSIDE, 1)]
    values = [encode(prefix, RAW_ROW, row) for row in [LAST_ROW, *outside]]
    settings = {"lake_decoder": "avro", "schema_registry_url": registry.url, "lake_out_of_range": policy}
    rows, reasons = ingest(values, **settings)
    if policy == "null":
        nulls = [LAST | dict.fromkeys(change) for change, _ in OUTSIDE]
        nulls = [row | ({} if row["inner"] else {"inner": {"price": None}}) for row in nulls]
        assert (values_of(rows), reasons) == ([LAST, *nulls], [])
    else:
        assert values_of(rows) == [LAST]
        assert [part in reason for (_, part), reason in zip(OUTSIDE, reasons, strict=True)] == [True] * len(
            OUTSIDE
        )


@EVERY_FORMAT
def test_changes_in_avro(ingest: Callable[..., Any], registry: Any) -> None:
    """Only what is written counts: an update mends a row, and a delete is applied."""
    envelope = {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", ROW]},
            {"name": "after", "type": ["null", "Order"]},
            {"name": "op", "type": "string"},
        ],
    }
    prefix = b"\0" + registry.add("s", envelope).to_bytes(4)
    raw = json.loads(json.dumps(envelope).replace("logicalType", "other"))
    far = LAST_ROW | {"day": INFINITY}
    changes = [
        {"op": "c", "before": None, "after": far},
        {"op": "u", "before": far, "after": LAST_ROW},
        {"op": "c", "before": None, "after": LAST_ROW | {"id": 1}},
        {"op": "d", "before": far | {"id": 1}, "after": None},
    ]
    settings = {
        "lake_decoder": "avro",
        "schema_registry_url": registry.url,
        "lake_write": "upsert",
        "lake_key": "id",
    }
    rows, reasons = ingest([encode(prefix, raw, change) for change in changes], **settings)
    assert values_of(rows) == [LAST]
    assert reasons == [f"day: {INFINITE_DAY}"]


@EVERY_FORMAT
def test_changes_in_json(ingest: Callable[..., Any]) -> None:
    """Only what is written counts, as with Avro: an update mends a row, and a delete is applied."""
    rows: dict[str, Any] = {name: {"id": 0, "n": n} for name, n in {"far": 3_000_000_000, "near": 7}.items()}
    changes = [
        {"op": "c", "after": rows["far"]},
        {"op": "u", "before": rows["far"], "after": rows["near"]},
        {"op": "c", "after": rows["near"] | {"id": 1}},
        {"op": "d", "before": rows["far"] | {"id": 1}},
    ]
    settings = {"lake_decoder": "json", "lake_schema": "id INT, n INT", "lake_write": "upsert"}
    found, reasons = ingest([json.dumps(change).encode() for change in changes], **settings, lake_key="id")
    assert [(row["id"], row["n"]) for row in found] == [(0, 7)]
    assert reasons == ["after.n: out of range of INT: 3000000000"]


@EVERY_FORMAT
@pytest.mark.parametrize("decoder", ["avro", "json"])
def test_a_key_outside_is_not_replaced_by_the_records(
    ingest: Callable[..., Any], registry: Any, fakes: Any, monkeypatch: pytest.MonkeyPatch, decoder: str
) -> None:
    """Another row would be overwritten: also with `null` its record is a dead letter."""
    monkeypatch.setattr(fakes.Message, "key", lambda _: b"1.00")
    row = {"type": "record", "name": "Row", "fields": [{"name": "price", "type": PRICE}, FIELDS[0]]}
    raw = json.loads(json.dumps(row).replace("logicalType", "other"))
    prefix = b"\0" + registry.add("s", row).to_bytes(4)
    settings: dict[str, Any] = {"lake_decoder": "avro", "schema_registry_url": registry.url}
    prices = enumerate([100, 10**9])
    records = [encode(prefix, raw, {"price": price.to_bytes(5), "id": at}) for at, price in prices]
    if decoder == "json":
        settings = {"lake_decoder": "json", "lake_schema": "price DECIMAL(9,2), id INT"}
        records = [b'{"price":"1.00","id":0}', b'{"price":"1e7","id":1}']
    upserts = {"lake_write": "upsert", "lake_changes": "keyed", "lake_key": "price"}
    found, reasons = ingest(records, **settings, **upserts, lake_out_of_range="null")
    assert [(row["price"], row["id"]) for row in found] == [(Decimal("1.00"), 0)]
    assert [reason.partition(":")[0] for reason in reasons] == ["price"]


@EVERY_FORMAT
@pytest.mark.parametrize("policy", ["dead-letter", "null"])
def test_postgres_infinity_in_json_changes(ingest: Callable[..., Any], policy: str) -> None:
    """Debezium's DATE is a number of days; in a key it is never null."""
    rows = [{"id": 0, "day": 2_932_896}, {"id": 1, "day": INFINITY}, {"id": 2, "day": -INFINITY}]
    values = [json.dumps({"op": "c", "before": None, "after": row}).encode() for row in rows]
    settings = {"lake_decoder": "json", "lake_schema": "id INT, day DATE", "lake_write": "upsert"}
    found, reasons = ingest(values, **settings, lake_key="id", lake_out_of_range=policy)
    if policy == "null":
        assert ([row["day"] for row in found], reasons) == ([LAST_DAY, None, None], [])
    else:
        assert [row["day"] for row in found] == [LAST_DAY]
        assert [text.partition(" days")[0] for text in reasons] == ["day: 2147483647", "day: -2147483647"]


@EVERY_FORMAT
@pytest.mark.parametrize("policy", ["dead-letter", "null"])
def test_json(ingest: Callable[..., Any], policy: str) -> None:
    """A number in milliseconds that is one in microseconds, and digits beyond the type's."""
    rows = [
        {"id": 0, "at": 253_402_300_799_999},
        {"id": 1, "at": 253_402_300_800_000},
        {"id": 2, "price": "1e9"},
        *(
            {"id": 3, "at": text}
            for text in ("infinity", "-infinity", "+10000-01-01T00:00:00Z", "-0001-01-01")
        ),
    ]
    columns = {"lake_decoder": "json", "lake_schema": "id INT, at TIMESTAMP, price DECIMAL(9,2)"}
    settings = columns | {"lake_timestamps": "epoch-millis", "lake_out_of_range": policy}
    found, reasons = ingest([json.dumps(row).encode() for row in rows], **settings)
    assert found[0]["at"] == LAST_TIME
    if policy == "null":
        assert ([(row["at"], row["price"]) for row in found[1:]], reasons) == ([(None, None)] * 6, [])
    else:
        assert len(found) == 1
        assert [reason.partition(":")[0] for reason in reasons] == ["at", "price", *["at"] * 4]
        assert reasons[2] == 'at: out of range of TIMESTAMP: "infinity"'


@EVERY_FORMAT
def test_a_key_outside_its_range(ingest: Callable[..., Any]) -> None:
    """It is a dead letter, also of a delete."""
    rows = [("c", 5), ("c", INFINITY), ("d", INFINITY)]
    values = [
        json.dumps({"op": op, ("before" if op == "d" else "after"): {"id": 1, "day": day}}).encode()
        for op, day in rows
    ]
    settings = {"lake_decoder": "json", "lake_schema": "id INT, day DATE", "lake_write": "upsert"}
    found, reasons = ingest(values, **settings, lake_key=["id", "day"], lake_out_of_range="null")
    assert [row["day"] for row in found] == [date(1970, 1, 6)]
    assert reasons == [f"day: {INFINITE_DAY}"] * 2


@EVERY_FORMAT
@pytest.mark.parametrize("policy", ["dead-letter", "null"])
def test_protobuf(ingest: Callable[..., Any], registry: Any, policy: str) -> None:
    """Google's Timestamp may hold any number of seconds."""
    file = FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=Field.TYPE_INT32, label=Field.LABEL_OPTIONAL)
    kind = {"type": Field.TYPE_MESSAGE, "type_name": ".google.protobuf.Timestamp"}
    order.field.add(name="at", number=2, label=Field.LABEL_REPEATED, **kind)
    pool = DescriptorPool()
    known = FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(known)
    pool.Add(known)
    pool.Add(file)
    message = GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    text = b64encode(file.SerializeToString()).decode()
    prefix = b"\0" + registry.add("s", text, "PROTOBUF").to_bytes(4) + b"\0"
    seconds = [253_402_300_799, 253_402_300_800, 2**62]
    values = []
    for id_, number in enumerate(seconds):
        row = message(id=id_)
        row.at.add(seconds=1)
        row.at.add(seconds=number)
        values.append(prefix + row.SerializeToString())
    settings = {"lake_decoder": "protobuf", "schema_registry_url": registry.url, "lake_out_of_range": policy}
    rows, reasons = ingest(values, **settings)
    first, last = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), LAST_TIME.replace(microsecond=0)
    if policy == "null":
        assert ([row["at"] for row in rows], reasons) == ([[first, last], [first, None], [first, None]], [])
    else:
        assert [row["at"] for row in rows] == [[first, last]]
        assert [text.split()[:2] for text in reasons] == [
            ["at:", "253402300800000000"],
            ["at:", str(2**62 * 10**9)],
        ]


@EVERY_FORMAT
def test_times_of_records(ingest: Callable[..., Any], fakes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer that writes microseconds as milliseconds: year 55,000."""
    monkeypatch.setattr(fakes.Message, "timestamp", lambda _: (1, 1_700_000_000_000_000))
    values: list[bytes | None] = [b"x"]
    with_id = {"lake_decoder": "json", "lake_schema": "id INT"}
    assert [row["timestamp"] for row in ingest([b'{"id": 1}', *values], **with_id)[0]] == [None]


# -- transforms ---------------------------------------------------------------------------------------

GOOD = {
    "day": "date'9999-12-31'",
    "at": "timestamp'9999-12-31 23:59:59.999999Z'",
    "local": "timestamp_ntz'0001-01-01 00:00:00'",
    "text": "'é'",
}
BAD = {
    "day": "date_from_unix_date(2932897)",
    "at": "timestamp_micros(-62135596800000001)",
    "local": "timestamp_ntz'9999-12-31 23:59:59.999999' + interval 1 second",
    "text": "cast(x'6fff' as string)",
}
PLACES = {
    "{}": "plain",
    "struct({} AS x, 1 AS y)": "inner",
    "array({0}, NULL)": "items",
    "map('k', {})": "map",
}


def select(values: dict[str, str]) -> Callable[[Any], Any]:
    """Return a transform to these values, in columns of their own and within others, as plain rows."""
    columns = [
        f"{place.format(value)} AS {name}_{kind}"
        for place, name in PLACES.items()
        for kind, value in values.items()
    ]
    return lambda df: df.selectExpr("offset AS id", *columns, "CAST(NULL AS STRUCT<x: DATE>) AS nothing")


@pytest.mark.parametrize("lake", ["iceberg", "delta"], indirect=True)
def test_values_of_a_transform_outside_their_ranges_are_null(ingest: Callable[..., Any], spark: Any) -> None:
    """Others, the ends of the ranges too, are kept, whatever the session's time zone."""
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        bad = select(BAD)
        (good,), _ = ingest([b"x"], lake_transform=select(GOOD), lake_out_of_range="null")
        (_, row), _ = ingest([b"x"] * 2, lake_transform=bad, lake_out_of_range="null")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    last = datetime(9999, 12, 31, 23, 59, 59, 999_999)  # noqa: DTZ001 - in UTC or none
    values = {"day": LAST_DAY, "at": last.replace(tzinfo=UTC), "local": datetime(1, 1, 1), "text": "é"}  # noqa: DTZ001
    for kind, value in values.items():
        assert [good[f"{place}_{kind}"] for place in ("plain", "items")] == [value, [value, None]]
        assert good[f"inner_{kind}"] == {"x": value, "y": 1}
        assert good[f"map_{kind}"] == [("k", value)]
        assert [row[f"{place}_{kind}"] for place in ("plain", "items")] == [None, [None, None]]
        assert row[f"inner_{kind}"] == {"x": None, "y": 1}
        assert row[f"map_{kind}"] == [("k", None)]
    assert good["nothing"] is None


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("lake", ["iceberg", "delta"], indirect=True)
def test_a_value_of_a_transform_outside_its_range_halts_its_table(
    writers: Callable[..., Any], kind: str
) -> None:
    """The error names the field: no engine could read the table."""
    consumer, writer = writers({P0: [b"x"]}, lake_transform=select({kind: BAD[kind]}))
    consumer.assign(writer, P0)
    writer.write(consumer.consume(1))
    with pytest.raises(TransformError, match=rf"plain_{kind}: .*(the years 1 to 9999|not UTF-8: 0x6FFF)"):
        writer.flush()
