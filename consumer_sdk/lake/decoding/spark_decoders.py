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
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD, column_name

DEAD_LETTER: Final = (*RECORD, "error")
_PARSED: Final = "__trimtab_parsed"
_CORRUPT: Final = "__trimtab_corrupt"
_NO_JSON: Final = "not one JSON value"
_ERROR: Final = "__trimtab_error"


@dataclass(frozen=True, slots=True)
class Decoded:
    """Rows that fit and rows that do not; `bad` is None where nothing can fail."""

    good: DataFrame
    bad: DataFrame | None


def decode(records: DataFrame, ddl: str | None) -> Decoded:
    """Split records by whether their values fit a schema (None: raw).

    Raises SettingError for bad DDL.
    """
    if ddl is None:
        return Decoded(records, None)
    schema = json_schema(ddl)
    text = sql.col("value").cast("string")
    parsed = records.withColumn(_PARSED, _parsed(text, schema)).withColumn(
        _ERROR, _verdict(text, ddl)
    )
    good = parsed.where(sql.col(_ERROR).isNull())
    return Decoded(
        good.select(*RECORD, *(_column(name) for name in schema.names)),
        parsed.where(sql.col(_ERROR).isNotNull())
        .withColumn("error", sql.col(_ERROR))
        .select(*DEAD_LETTER),
    )


def json_schema(ddl: str) -> StructType:
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


def _parsed(text: Column, schema: StructType) -> Column:
    """Return the parsed value, computed once a row.

    Spark copies a deterministic expression into every filter and column that uses it, and parsing
    is what a flush spends its time on (measured: 4 times faster so). spark_partition_id(), which
    Spark does not copy, is never negative.
    """
    with_corrupt = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parsed = sql.from_json(text, with_corrupt, options)
    return sql.when(sql.spark_partition_id() >= 0, parsed)


def _verdict(text: Column, ddl: str) -> Column:
    """Return the reason why a value does not fit, null where it does."""
    one = _one_value(text)
    plain = sql.instr(text, "}") == sql.length(sql.rtrim(text))
    short = ddl if len(ddl) <= 200 else f"{ddl[:200]}…"  # noqa: PLR2004 - for reading only
    fits = sql.when(~_unfit(), sql.lit(None))
    return (
        sql.when(sql.col("value").isNull(), sql.lit(None))
        .when(~sql.is_valid_utf8(text), sql.lit("not UTF-8"))
        .when(sql.ltrim(text).startswith("{") & (plain | one), fits.otherwise(_why(one, short)))
        .otherwise(sql.when(one, sql.lit("not a JSON object")).otherwise(sql.lit(_NO_JSON)))
    )


def _one_value(text: Column) -> Column:
    """Return whether a text is one JSON value and nothing else.

    from_json stops reading after the first value, and json_array_length after the first array. A
    text that adds one element to an array has lengths 1 and 2 below; one that closes the array
    itself has the same length twice. It is asked only where the first "}" is not the last sign
    of the text: nothing can come after a flat object.
    """

    def length(end: str) -> Column:
        return sql.json_array_length(sql.concat(sql.lit("["), text, sql.lit(end)))

    return sql.coalesce((length("]") == 1) & (length(",0]") == 2), sql.lit(False))  # noqa: FBT003, PLR2004 - SQL


def _why(one: Column, ddl: str) -> Column:
    told = sql.lit(f"does not fit the schema {ddl}")
    return sql.when(one, told).otherwise(sql.lit(_NO_JSON))


def _unfit() -> Column:
    return sql.col(_PARSED).isNull() | sql.col(f"{_PARSED}.{_CORRUPT}").isNotNull()


def _column(name: str) -> Column:
    return sql.col(_PARSED).getField(name).alias(column_name(name))
