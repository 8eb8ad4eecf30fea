"""Partition columns whose values Delta keeps exactly.

Spark writes each value as the name of a folder, and Delta's writer reads it back from there:

1. An empty text is null, and so is Spark's own name for null; a text with NUL is no name.
2. A timestamp is in the session's time zone: where clocks are set back, two times have one name.
3. Bytes are taken for text.
"""

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import BinaryType, StringType, TimestampType

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.formats.delta.columns import DeltaSchema, find_computed_columns
from trimtab.consumer_sdk.lake.model.partition_spec import (
    PARTITION_SETTING,
    UNSTORABLE_REASON,
    UNSTORABLE_TEXTS,
)
from trimtab.consumer_sdk.lake.schema.column_mapping import NOTHING_WRITTEN, cast_to_table, quote_path
from trimtab.consumer_sdk.lake.spark.gateway import java_packages


def check_rule(schema: DeltaSchema, spark: SparkSession) -> None:
    """Raise SettingError for a partition column of a new table whose values cannot be kept exactly."""
    if (problem := _find_inexact_column(schema, spark)) is not None:
        raise SettingError(f"{PARTITION_SETTING}: {problem}")


def cast_rows(table: str, frame: DataFrame, schema: DeltaSchema, spark: SparkSession) -> DataFrame:
    """Return the rows in the table's types; their evaluation fails at a text that no partition can have.

    Raises TableSchemaMismatchError, also for a partition column whose values cannot be kept exactly.
    """
    if (problem := _find_inexact_column(schema, spark)) is not None:
        raise TableSchemaMismatchError(
            f"table {table} is partitioned by values that Delta would change: {problem}. {NOTHING_WRITTEN}"
        )
    computed = find_computed_columns(schema.columns)
    rows = cast_to_table(table, frame, schema.columns, computed)
    for column in schema.list_partition_fields():
        if isinstance(column.dataType, StringType) and column.name.lower() not in computed:
            value = sql.col(quote_path((column.name,)))
            reason = sql.concat(sql.lit(f"{column.name}: '"), value, sql.lit(f"' {UNSTORABLE_REASON}"))
            bad = value.isin(*UNSTORABLE_TEXTS) | value.contains("\0")
            rows = rows.withColumn(column.name, sql.when(bad, sql.raise_error(reason)).otherwise(value))
    return rows


def _find_inexact_column(schema: DeltaSchema, spark: SparkSession) -> str | None:
    """Return which partition column cannot be kept exactly, why, and what to do; None for none."""
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    for column in schema.list_partition_fields():
        if isinstance(column.dataType, BinaryType):
            return f"{column.name} is binary, and Delta takes the bytes of a partition for text: omit it"
        if isinstance(column.dataType, TimestampType) and not _is_fixed_offset(zone, java_packages(spark)):
            return (
                f"{column.name} is a timestamp, and {zone}, the session's time zone, has some hours twice: "
                f"write day({column.name}), or set spark.sql.session.timeZone=UTC"
            )
    return None


def _is_fixed_offset(zone: str, root: Any) -> bool:
    found = root.org.apache.spark.sql.catalyst.util.DateTimeUtils.getZoneId(zone)
    return bool(found.getRules().isFixedOffset())
