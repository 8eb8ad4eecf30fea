"""Decodes JSON values into typed columns with Spark.

1. A JSON value fits if it is valid UTF-8 and a single JSON object, and every field has the schema's
   type. Fields outside the schema are dropped, missing ones are null. Huge decimals do not fit
   (`decimal_numbers`).
2. A record without a value (a tombstone) has null in every decoded column.
3. Any other value becomes a dead letter with the record's coordinates and the reason.
4. A decoded column with the name of a record column, or of one that readers add, is called value_<name>.
"""

from dataclasses import dataclass
from typing import Final, cast

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import StringType, StructField, StructType

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.lake.decoding.decimal_numbers import find_huge_decimal
from trimtab.consumer_sdk.lake.interfaces import Records
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_COLUMNS, column_name

DEAD_LETTER_COLUMNS: Final = (*RECORD_COLUMNS, "error")
_PARSED_COLUMN: Final = "__trimtab_parsed"
_CORRUPT_COLUMN: Final = "__trimtab_corrupt"
_NOT_JSON_REASON: Final = "not one JSON value"
_ERROR_COLUMN: Final = "__trimtab_error"


@dataclass(frozen=True, slots=True)
class DecodedFrames:
    """Decoded rows and dead letters."""

    rows: DataFrame
    dead_letters: DataFrame | None  # None: nothing can fail


def build_frame(spark: SparkSession, records: Records) -> DataFrame:
    """Return a frame of these records in one partition."""
    return spark.createDataFrame(records).coalesce(1)  # a flush writes one file per partition


def decode_values(records: DataFrame, ddl: str, *, finds_huge: bool = True) -> DecodedFrames:
    """Decode records with a schema. Raises SettingError for invalid DDL.

    `finds_huge`: whether the values may have huge decimals, which takes as long as parsing to find.
    """
    schema = parse_json_schema(ddl)
    text = sql.col("value").cast("string")
    parsed = records.withColumn(_PARSED_COLUMN, _parse_once(text, schema, finds_huge=finds_huge))
    parsed = parsed.withColumn(_ERROR_COLUMN, _rejection_reason(text, ddl))
    error = sql.col(_ERROR_COLUMN)
    fields = [sql.col(_PARSED_COLUMN).getField(n).alias(column_name(n)) for n in schema.names]
    rows = parsed.where(error.isNull()).select(*RECORD_COLUMNS, *fields)
    letters = parsed.where(error.isNotNull()).withColumn("error", error)
    return DecodedFrames(rows, letters.select(*DEAD_LETTER_COLUMNS))


def parse_json_schema(ddl: str) -> StructType:
    """Return the schema of a DDL text. Raises SettingError."""
    try:
        schema = cast("StructType", StructType.fromDDL(ddl))
    except (PySparkException, Py4JJavaError, ValueError) as error:  # not a JVM that has died
        line = str(error).strip().splitlines()[0]
        raise SettingError(
            f'lake.schema: {ddl!r} is not a list of Spark SQL columns like "id BIGINT, name STRING": {line}'
        ) from error
    names = [column_name(name).lower() for name in schema.names]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SettingError(f"lake.schema: {ddl!r} has two columns {twice[0]!r}; rename one")
    return schema


def _parse_once(text: Column, schema: StructType, *, finds_huge: bool) -> Column:
    with_corrupt = StructType([*schema.fields, StructField(_CORRUPT_COLUMN, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT_COLUMN}
    parsed = sql.from_json(text, with_corrupt, options)
    huge = find_huge_decimal(text, schema, _CORRUPT_COLUMN) if finds_huge else None
    parsed = parsed if huge is None else sql.when(huge, sql.lit(None)).otherwise(parsed)
    # Spark copies a deterministic expression into every filter and column that uses it, and parsing
    # dominates a flush: computed once it is 4 times faster (measured). spark_partition_id() is never
    # negative, and Spark does not copy it.
    return sql.when(sql.spark_partition_id() >= 0, parsed)


def _rejection_reason(text: Column, ddl: str) -> Column:
    """Return the reason why a value does not fit, or null."""
    one = _is_single_value(text)
    # the first "}" ends the text, as in every flat object: it is one value, without the slower check
    plain = sql.instr(text, "}") == sql.length(sql.rtrim(text))
    short = ddl if len(ddl) <= 200 else f"{ddl[:200]}…"  # noqa: PLR2004 - a line's length
    fits = sql.when(~_is_unparsed(), sql.lit(None))
    return (
        sql.when(sql.col("value").isNull(), sql.lit(None))
        .when(~sql.is_valid_utf8(text), sql.lit("not UTF-8"))
        .when(sql.ltrim(text).startswith("{") & (plain | one), fits.otherwise(_misfit_reason(one, short)))
        .otherwise(sql.when(one, sql.lit("not a JSON object")).otherwise(sql.lit(_NOT_JSON_REASON)))
    )


def _is_single_value(text: Column) -> Column:
    # from_json stops after the first value, and json_array_length after the first array. One value in
    # brackets gives lengths 1 and 2 below; a text that closes the array itself gives equal lengths.
    def length(end: str) -> Column:
        return sql.json_array_length(sql.concat(sql.lit("["), text, sql.lit(end)))

    return sql.coalesce((length("]") == 1) & (length(",0]") == 2), sql.lit(False))  # noqa: FBT003, PLR2004 - SQL


def _misfit_reason(single_value: Column, ddl: str) -> Column:
    reason = sql.lit(f"does not fit the schema {ddl}")
    return sql.when(single_value, reason).otherwise(sql.lit(_NOT_JSON_REASON))


def _is_unparsed() -> Column:
    return sql.col(_PARSED_COLUMN).isNull() | sql.col(f"{_PARSED_COLUMN}.{_CORRUPT_COLUMN}").isNotNull()
