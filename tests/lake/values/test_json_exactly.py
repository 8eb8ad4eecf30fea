"""JSON is the same rows and dead letters appended and upserted, in each format, by each file writer."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from support.lake.json_values import COLUMNS, list_values
from trimtab.assignor.model import TopicPartition
from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.lake.decoding.json_decoder import JsonDecoder, parse_json_schema
from trimtab.consumer_sdk.lake.decoding.value_ranges import STRICT_RANGES
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.projection.topic_decoders import TopicDecoders
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_SCHEMA

pytestmark = pytest.mark.spark

P0 = TopicPartition("orders", 0)
TYPES = f"nr BIGINT, {COLUMNS}, b BINARY, m MAP<STRING, INT>, local TIMESTAMP_NTZ"
MORE = [
    b'{"b":"AAEC","m":{"k":1,"l":null},"LOCAL":"2024-05-06T07:08:09.5"}',
    b'{"m":{"k":1,"k":2}}',
    b'{"b":"A"}',
]
UPSERT = {"lake_write": "upsert", "lake_changes": "keyed", "lake_key": "nr"}


def list_numbered() -> list[bytes]:
    """Hostile values and good ones, each with a number of its own where it is an object."""
    values = [*filter(None, list_values()[::16]), *MORE]
    return [
        b'{"nr":%d,%s' % (at, value[1:]) if value[:1] == b"{" and len(value) > 2 else value
        for at, value in enumerate(values)
    ]


def decode(values: list[bytes]) -> tuple[dict[int, Any], dict[int, str]]:
    """Return the decoded columns and the reasons of dead letters by offset."""
    columns = {"offset": range(len(values)), "value": pa.array(values, pa.binary())}
    records = pa.concat_tables([RECORD_SCHEMA.empty_table(), pa.table(columns)], promote_options="default")
    decoded = STRICT_RANGES.check_records(JsonDecoder(parse_json_schema(TYPES)).decode_batch(records))
    letters = decoded.dead_letters
    reasons = dict(zip(*(letters.column(name).to_pylist() for name in ("offset", "error")), strict=True))
    return index_rows(decoded.rows), reasons


def index_rows(table: Any) -> dict[int, Any]:
    """Return the decoded columns as text, which tells 0.0 from -0.0."""
    rows = table.drop_columns([name for name in RECORD_SCHEMA.names if name != "offset"]).to_pylist()
    return {row.pop("offset"): repr(sorted(row.items())) for row in rows}


@pytest.mark.parametrize("settings", [{}, UPSERT], ids=["append", "upsert"])
@pytest.mark.parametrize("lake", ["iceberg", "iceberg_arrow", "delta", "delta_arrow"], indirect=True)
def test_every_way_into_a_table_is_exact(
    writers: Callable[..., Any],
    spark: Any,
    namespace: str,
    request: pytest.FixtureRequest,
    settings: dict[str, Any],
) -> None:
    """Of values that each try another rule; the session's time zone changes nothing."""
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    request.addfinalizer(lambda: spark.conf.set("spark.sql.session.timeZone", "UTC"))
    values = list_numbered()
    json = {"lake_decoder": "json", "lake_schema": TYPES, "lake_flush_timeout": "200 s"}
    consumer, writer = writers({P0: values}, **json, **settings)
    consumer.assign(writer, P0)
    writer.write(consumer.consume(len(values)))
    writer.close()
    rows, reasons = decode(values)
    table, letters = (spark.table(f"{namespace}.orders{end}").toArrow() for end in ("", "_dead_letter"))
    found = dict(zip(*(letters.column(name).to_pylist() for name in ("offset", "error")), strict=True))
    keyless = {at for at, reason in found.items() if reason.startswith("record key") and settings}
    assert {at: reason for at, reason in found.items() if at not in keyless} == reasons
    fields = letters.column("field").to_pylist()
    assert None in fields
    assert {"p", "a[0]", "s.z.p", "m.k"} <= {*fields}
    written = table.select([name for name in table.column_names if name not in ("key", "value", "headers")])
    names = {name for name in RECORD_SCHEMA.names if name not in written.column_names}
    for name in names:
        written = written.append_column(name, pa.nulls(written.num_rows))
    assert index_rows(written) == {at: row for at, row in rows.items() if at not in keyless}
    assert len(rows) > len(values) / 8
    assert len(reasons) > len(values) / 4


@pytest.mark.parametrize("lake", ["iceberg", "delta_arrow"], indirect=True)
def test_numbers_are_times_by_the_setting(writers: Callable[..., Any], spark: Any, namespace: str) -> None:
    """Of one column; in a column without a rule they are dead letters. So they are in changes."""
    columns = {"lake_decoder": "json", "lake_schema": "id BIGINT, ms TIMESTAMP, s STRUCT<at: TIMESTAMP_NTZ>"}
    rules = {"lake_timestamps": {"ms": "epoch-millis", "S.at": "epoch-seconds"}}
    rows = [
        b'{"id":0,"ms":1704067200123,"s":{"at":1.5}}',
        b'{"id":1,"ms":1e-4}',
        b'{"id":2,"ms":"2024-01-01"}',
    ]
    changes = [b'{"op":"c","after":%s}' % row for row in rows]
    debezium = {"lake_write": "upsert", "lake_key": "id", "lake_table": namespace + ".changed_{topic}"}
    for values, more, table in ((rows, {}, "orders"), (changes, debezium, "changed_orders")):
        consumer, writer = writers({P0: values}, **columns, **rules, **more)
        consumer.assign(writer, P0)
        writer.write(consumer.consume(len(values)))
        writer.close()
        (row,) = spark.table(f"{namespace}.{table}").selectExpr("unix_micros(ms)", "string(s.at)").collect()
        assert tuple(row) == (1704067200_123_000, "1970-01-01 00:00:01.5")
        letters = spark.table(f"{namespace}.{table}_dead_letter").orderBy("offset").collect()
        assert [letter.field.removeprefix("after.") for letter in letters] == ["ms", "ms"]


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ({"id": "epoch-millis"}, "lake.timestamps: lake.schema has no timestamp 'id'"),
        ({"tss": "epoch-millis"}, "did you mean .ts."),
    ],
)
def test_a_rule_for_no_timestamp_is_refused(
    lake: SparkLake, config: Callable[..., Any], rules: dict[str, str], text: str
) -> None:
    """Before the group is joined."""
    assert lake.spark
    settings = config(lake_decoder="json", lake_schema="id BIGINT, ts TIMESTAMP", lake_timestamps=rules)
    with pytest.raises(SettingError, match=text):
        TopicDecoders(settings)


@pytest.mark.parametrize("ddl", ["t timestamp", "s STRUCT<t:Timestamp NOT NULL>", "a ARRAY<TIMESTAMP>"])
def test_a_type_that_depends_on_the_session_is_refused(
    spark: Any, request: pytest.FixtureRequest, ddl: str
) -> None:
    """Times with a zone would be dead letters in one session, and rows in another."""
    assert parse_json_schema(ddl)
    spark.createDataFrame([(1,)], "n INT")  # makes it the session of this thread, on which the JVM parses
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    request.addfinalizer(lambda: spark.conf.unset("spark.sql.timestampType"))
    with pytest.raises(SettingError, match=r"by spark\.sql\.timestampType a TIMESTAMP .* has no time zone"):
        parse_json_schema(ddl)
    plain = parse_json_schema("timestamp BIGINT, s STRUCT<timestamp: INT>, t TIMESTAMP_LTZ, n TIMESTAMP_NTZ")
    assert plain.types == [
        pa.int64(),
        pa.struct([("timestamp", pa.int32())]),
        pa.timestamp("us", "UTC"),
        pa.timestamp("us"),
    ]


UNREADABLE = [
    ("v VARIANT", "column v is variant"),
    ("s STRUCT<c: VARCHAR(3)>", r"column s.c is varchar\(3\)"),
    ("a ARRAY<INTERVAL DAY>", "column a.element is interval day"),
    ("m MAP<INT, INT>", "column m is map<int,int>"),
    ("s STRUCT<a: INT, A: INT>", "has two columns 'a'"),
    ("id INT, ID INT", "has two columns 'id'"),
    ("s INT, `\N{LATIN SMALL LETTER LONG S}` INT", "has two columns 's'"),
    ("`K` INT, `\N{KELVIN SIGN}` INT", "has two columns 'k'"),
    ("s STRUCT<``: INT>", "has a column without a name"),
    ("id WHATEVER", "is not a list of Spark SQL columns"),
]


@pytest.mark.parametrize(("columns", "text"), UNREADABLE)
def test_a_schema_that_json_is_not_read_into_is_refused(iceberg: SparkLake, columns: str, text: str) -> None:
    """By column and type."""
    assert iceberg.spark
    with pytest.raises(SettingError, match=f"lake.schema: .*{text}"):
        parse_json_schema(columns)
