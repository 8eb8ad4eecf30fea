"""Arrow schemas of JSON changes, from the columns of a row; Spark, which parses DDL, is left out."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    CalendarIntervalType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

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
def columns(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, DataType]]:
    """The columns that any DDL means."""
    given: dict[str, DataType] = {}

    def parse(ddl: str) -> StructType:
        assert ddl == "DDL"
        return StructType([StructField(name, kind) for name, kind in given.items()])

    monkeypatch.setattr(json_change_schemas, "parse_json_schema", parse)
    return given  # type: ignore[return-value]


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
    form: Any, numbers: object, columns: dict[str, DataType]
) -> None:
    """Those of other formats are text; the key's schema has its columns alone, in their order."""
    columns |= {"id": LongType(), "region": StringType(), "day": DateType()}
    decoder = create_json_change_decoder("DDL", form, ("region", "id"))
    assert decoder.dates_are_numbers is numbers
    assert decoder.key_schema.names == ["region", "id"]
    assert decoder.value_schema == build_value_schema(
        pa.schema([("id", pa.int64()), ("region", pa.string()), ("day", pa.date32())]), form
    )


@pytest.mark.parametrize(
    "kind", [IntegerType(), LongType(), StringType(), DateType(), TimestampType(), DecimalType(9, 2)]
)
def test_a_key_may_be_of_these_types(kind: DataType, columns: dict[str, DataType]) -> None:
    """Integers, text, times and decimals."""
    columns["id"] = kind
    assert create_json_change_decoder("DDL", DEBEZIUM, ("id",)).key_schema.names == ["id"]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (DoubleType(), r"lake\.key: column id is double, which cannot be a key"),
        (FloatType(), r"lake\.key: column id is float, which cannot be a key"),
        (StructType([StructField("a", LongType())]), r"lake\.key: column id is struct.*, which cannot be"),
    ],
)
def test_a_type_without_equality_is_no_key(kind: DataType, text: str, columns: dict[str, DataType]) -> None:
    """The error names column and type; such a column beside the key is allowed."""
    columns |= {"id": kind, "nr": LongType()}
    with pytest.raises(SettingError, match=text):
        create_json_change_decoder("DDL", DEBEZIUM, ("id",))
    assert create_json_change_decoder("DDL", DEBEZIUM, ("nr",))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (BinaryType(), "column c is binary, which JSON changes do not have"),
        (MapType(StringType(), LongType()), "column c is map"),
        (StructType([StructField("x", LongType()), StructField("m", BinaryType())]), "column m is binary"),
    ],
)
def test_a_type_that_json_has_not_is_refused(kind: DataType, text: str, columns: dict[str, DataType]) -> None:
    """Also within a struct."""
    columns |= {"id": LongType(), "c": kind}
    with pytest.raises(SettingError, match=text):
        create_json_change_decoder("DDL", DEBEZIUM, ("id",))


def test_a_key_column_that_no_row_has_is_named(columns: dict[str, DataType]) -> None:
    """Before anything is read."""
    columns["id"] = LongType()
    with pytest.raises(SettingError, match=r"lake\.key: lake\.schema 'DDL' has no column 'nr'"):
        create_json_change_decoder("DDL", DEBEZIUM, ("id", "nr"))


def test_a_type_that_arrow_has_not_is_refused(columns: dict[str, DataType]) -> None:
    """With what Spark says."""
    columns |= {"id": LongType(), "v": CalendarIntervalType()}
    with pytest.raises(SettingError, match=r"lake\.schema: 'DDL' has a type that changes cannot have"):
        create_json_change_decoder("DDL", DEBEZIUM, ("id",))
