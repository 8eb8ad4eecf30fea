"""Values to typed columns, in Spark.

`raw` leaves the record as it is, `json` adds a schema's columns.

A JSON value fits when it is valid UTF-8, is one JSON object and nothing else, and every field can
be read as the schema's type; fields that the schema does not name are left out, missing ones are
null. A record without a value (a tombstone) has null in every decoded column. Whatever does not fit
becomes a dead letter, with the record's coordinates and the reason, and its partition goes on.
Where a decoded column has the name of a record column, it is called value_<name>.
"""

from dataclasses import dataclass
from typing import Final, cast

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import StringType, StructField, StructType

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_COLUMNS, column_name

DEAD_LETTER_COLUMNS: Final = (*RECORD_COLUMNS, "error")
_PARSED_COLUMN: Final = "__trimtab_parsed"
_CORRUPT_COLUMN: Final = "__trimtab_corrupt"
_NOT_JSON_REASON: Final = "not one JSON value"
_ERROR_COLUMN: Final = "__trimtab_error"


@dataclass(frozen=True, slots=True)
class DecodedFrames:
    """Rows that fit and rows that do not; `dead_letters` is None where nothing can fail."""

    rows: DataFrame
    dead_letters: DataFrame | None


def decode_values(records: DataFrame, ddl: str | None) -> DecodedFrames:
    """Split records by whether their values fit a schema (None: raw).

    Raises SettingError for bad DDL.
    """
    if ddl is None:
        return DecodedFrames(records, None)
    schema = parse_json_schema(ddl)
    text = sql.col("value").cast("string")
    parsed = records.withColumn(_PARSED_COLUMN, _parse_once(text, schema)).withColumn(
        _ERROR_COLUMN, _rejection_reason(text, ddl)
    )
    good = parsed.where(sql.col(_ERROR_COLUMN).isNull())
    return DecodedFrames(
        good.select(*RECORD_COLUMNS, *(_parsed_field(name) for name in schema.names)),
        parsed.where(sql.col(_ERROR_COLUMN).isNotNull())
        .withColumn("error", sql.col(_ERROR_COLUMN))
        .select(*DEAD_LETTER_COLUMNS),
    )


def parse_json_schema(ddl: str) -> StructType:
    """Return the schema of a DDL text. Raises SettingError."""
    try:
        schema = cast("StructType", StructType.fromDDL(ddl))
    except (PySparkException, Py4JError, ValueError) as error:
        line = str(error).strip().splitlines()[0]
        raise SettingError(
            f"lake.schema: {ddl!r} is not a list of columns of Spark SQL: {line}; write "
            'it like "id BIGINT, name STRING"'
        ) from error
    names = [column_name(name).lower() for name in schema.names]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SettingError(f"lake.schema: the column {twice[0]!r} comes twice in {ddl!r}")
    return schema


def _parse_once(text: Column, schema: StructType) -> Column:
    """Return the parsed value, computed once a row.

    Spark copies a deterministic expression into every filter and column that uses it, and parsing
    is what a flush spends its time on (measured: 4 times faster so). spark_partition_id(), which
    Spark does not copy, is never negative.
    """
    with_corrupt = StructType([*schema.fields, StructField(_CORRUPT_COLUMN, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT_COLUMN}
    parsed = sql.from_json(text, with_corrupt, options)
    return sql.when(sql.spark_partition_id() >= 0, parsed)


def _rejection_reason(text: Column, ddl: str) -> Column:
    """Return the reason why a value does not fit, null where it does."""
    one = _is_single_value(text)
    plain = sql.instr(text, "}") == sql.length(sql.rtrim(text))
    short = ddl if len(ddl) <= 200 else f"{ddl[:200]}…"  # noqa: PLR2004 - for reading only
    fits = sql.when(~_is_unparsed(), sql.lit(None))
    return (
        sql.when(sql.col("value").isNull(), sql.lit(None))
        .when(~sql.is_valid_utf8(text), sql.lit("not UTF-8"))
        .when(sql.ltrim(text).startswith("{") & (plain | one), fits.otherwise(_misfit_reason(one, short)))
        .otherwise(sql.when(one, sql.lit("not a JSON object")).otherwise(sql.lit(_NOT_JSON_REASON)))
    )


def _is_single_value(text: Column) -> Column:
    """Return whether a text is one JSON value and nothing else.

    from_json stops reading after the first value, and json_array_length after the first array. A
    text that adds one element to an array has lengths 1 and 2 below; one that closes the array
    itself has the same length twice. It is asked only where the first "}" is not the last sign
    of the text: nothing can come after a flat object.
    """

    def length(end: str) -> Column:
        return sql.json_array_length(sql.concat(sql.lit("["), text, sql.lit(end)))

    return sql.coalesce((length("]") == 1) & (length(",0]") == 2), sql.lit(False))  # noqa: FBT003, PLR2004 - SQL


def _misfit_reason(single_value: Column, ddl: str) -> Column:
    told = sql.lit(f"does not fit the schema {ddl}")
    return sql.when(single_value, told).otherwise(sql.lit(_NOT_JSON_REASON))


def _is_unparsed() -> Column:
    return sql.col(_PARSED_COLUMN).isNull() | sql.col(f"{_PARSED_COLUMN}.{_CORRUPT_COLUMN}").isNotNull()


def _parsed_field(name: str) -> Column:
    return sql.col(_PARSED_COLUMN).getField(name).alias(column_name(name))
