"""Arrow schemas of JSON changes, from the columns of a row; Spark, which parses DDL, is left out."""

from typing import Any

import pyarrow as pa
import pytest

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.lake.changes import json_change_schemas
from trimtab.consumer_sdk.lake.changes.change_settings import DEBEZIUM, KEYED, ChangeMapping
from trimtab.consumer_sdk.lake.changes.json_change_schemas import (
    build_value_schema,
    create_json_change_decoder,
)

ROW = pa.schema([("id", pa.int64()), ("op", pa.string())])
STRUCT = pa.struct(list(ROW))


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The columns that any DDL means."""
    given: dict[str, Any] = {}

    def parse(ddl: str) -> Any:
        assert ddl == "DDL"
        return pa.schema(list(given.items()))

    monkeypatch.setattr(json_change_schemas, "parse_json_schema", parse)
    return given


def mapping(row: str | None) -> ChangeMapping:
    return ChangeMapping("op", frozenset("I"), frozenset("D"), row)


@pytest.mark.parametrize(
    ("form", "schema"),
    [
        (KEYED, ROW),
        (DEBEZIUM, pa.schema([("op", pa.string()), ("before", STRUCT), ("after", STRUCT)])),
        (mapping("data"), pa.schema([("op", pa.string()), ("data", STRUCT)])),
        (mapping(None), pa.schema([("op", pa.string()), ("id", pa.int64())])),
    ],
)
def test_values_have_the_columns_of_their_format(form: Any, schema: Any) -> None:
    """A column of the row that is the operation is there once."""
    assert build_value_schema(ROW, form) == schema


@pytest.mark.parametrize(("form", "numbers"), [(DEBEZIUM, True), (KEYED, False), (mapping(None), False)])
def test_dates_are_numbers_in_debeziums_values_only(
    form: Any, numbers: object, columns: dict[str, Any]
) -> None:
    """Those of other formats are text; the key's schema has its columns alone, in their order."""
    columns |= {"id": pa.int64(), "region": pa.string(), "day": pa.date32()}
    decoder = create_json_change_decoder("DDL", form, ("region", "id"), {})
    assert decoder.dates_are_numbers is numbers
    assert decoder.key_schema.names == ["region", "id"]
    assert decoder.value_schema == build_value_schema(
        pa.schema([("id", pa.int64()), ("region", pa.string()), ("day", pa.date32())]), form
    )


@pytest.mark.parametrize(
    "kind", [pa.int32(), pa.int64(), pa.string(), pa.date32(), pa.timestamp("us", "UTC"), pa.decimal128(9, 2)]
)
def test_a_key_may_be_of_these_types(kind: Any, columns: dict[str, Any]) -> None:
    """Integers, text, times and decimals."""
    columns["id"] = kind
    assert create_json_change_decoder("DDL", DEBEZIUM, ("id",), {}).key_schema.names == ["id"]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.float64(), r"lake\.key: column id is double, which cannot be a key"),
        (pa.float32(), r"lake\.key: column id is float, which cannot be a key"),
        (pa.struct([("a", pa.int64())]), r"lake\.key: column id is struct.*, which cannot be"),
    ],
)
def test_a_type_without_equality_is_no_key(kind: Any, text: str, columns: dict[str, Any]) -> None:
    """The error names column and type; such a column beside the key is allowed."""
    columns |= {"id": kind, "nr": pa.int64()}
    with pytest.raises(SettingError, match=text):
        create_json_change_decoder("DDL", DEBEZIUM, ("id",), {})
    assert create_json_change_decoder("DDL", DEBEZIUM, ("nr",), {})


def test_a_key_column_that_no_row_has_is_named(columns: dict[str, Any]) -> None:
    """Before anything is read."""
    columns["id"] = pa.int64()
    with pytest.raises(SettingError, match=r"lake\.key: lake\.schema 'DDL' has no column 'nr'"):
        create_json_change_decoder("DDL", DEBEZIUM, ("id", "nr"), {})


@pytest.mark.parametrize(
    ("form", "row", "path"),
    [
        (KEYED, '{"id":%s,"n":%s}', ""),
        (mapping(None), '{"op":"I","id":%s,"n":%s}', ""),
        (mapping("data"), '{"op":"I","data":{"id":%s,"n":%s}}', "data."),
        (DEBEZIUM, '{"op":"c","after":{"id":%s,"n":%s}}', "after."),
        (DEBEZIUM, '{"op":"d","before":{"id":%s,"n":%s}}', "before."),
    ],
)
def test_a_key_out_of_range_is_never_null(form: Any, row: str, path: str, columns: dict[str, Any]) -> None:
    """The record's key would take its place: another row would be overwritten."""
    columns |= {"id": pa.int32(), "n": pa.int32()}
    decoder = create_json_change_decoder("DDL", form, ("id",), {}, nulls_outside=True)
    outside = row % (1, 3_000_000_000), row % (3_000_000_000, 1)
    for wrapped in ("%s", '{"schema":{"type":"struct"},"payload":%s}'):
        values = pa.array([(wrapped % value).encode() for value in outside])
        decoded = decoder.decode_values(pa.table({"value": values}))
        assert decoded.rows.num_rows == 1
        assert decoded.dead_letters is not None
        assert [letter["error"].removeprefix("payload.") for letter in decoded.dead_letters.to_pylist()] == [
            f"{path}id: out of range of INT: 3000000000"
        ]
    keys, errors = decoder.decode_keys(pa.array([b'{"id":3000000000}']))
    assert (keys.null_count, errors) == (1, {0: "id: out of range of INT: 3000000000"})


def test_rules_of_timestamps_are_those_of_the_rows_columns(columns: dict[str, Any]) -> None:
    """Wherever a format has the row; also in Connect's wrapping, and in the record key."""
    columns |= {"id": pa.timestamp("us"), "at": pa.timestamp("us", "UTC")}
    rules = {"id": "epoch-millis", "at": "epoch-seconds"}
    time = pa.scalar(5_000_000, pa.timestamp("us"))
    for form, value in {
        DEBEZIUM: '{"op":"c","after":{"id":5000,"at":5}}',
        KEYED: '{"id":5000,"at":5}',
        mapping("data"): '{"op":"I","data":{"id":5000,"at":5}}',
    }.items():
        decoder = create_json_change_decoder("DDL", form, ("id",), rules)
        wrapped = f'{{"schema":{{"type":"struct"}},"payload":{value}}}'
        records = pa.table({"value": pa.array([value.encode(), wrapped.encode()])})
        decoded = decoder.decode_values(records)
        assert decoded.dead_letters is None
        row = decoded.rows.column(decoded.rows.num_columns - 1)
        rows = row if form == KEYED else row.combine_chunks().field("at")
        assert rows.cast(pa.int64()).to_pylist() == [5_000_000, 5_000_000]
        keys, errors = decoder.decode_keys(pa.array([b'{"id":5000}']))
        assert (keys.field(0)[0], errors) == (time, {})
