"""JSON is the same rows and dead letters appended and upserted, in each format, by each file writer."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from json_values import COLUMNS, list_values

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.lake.decoding.json_decoder import JsonDecoder, parse_json_schema
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
    decoded = JsonDecoder(parse_json_schema(TYPES)).decode_batch(records)
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
    written = table.select([name for name in table.column_names if name not in ("key", "value", "headers")])
    names = {name for name in RECORD_SCHEMA.names if name not in written.column_names}
    for name in names:
        written = written.append_column(name, pa.nulls(written.num_rows))
    assert index_rows(written) == {at: row for at, row in rows.items() if at not in keyless}
    assert len(rows) > len(values) / 8
    assert len(reasons) > len(values) / 4
