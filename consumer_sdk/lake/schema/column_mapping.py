"""Maps rows to a table's columns, equally for every table format.

Missing optional columns become null; any other mismatch is TableSchemaMismatchError.
"""

from collections.abc import Collection
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from trimtab.common.errors import TrimtabError
from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.interfaces import Frame
from trimtab.consumer_sdk.lake.spark.session import java_packages as java


def fill_missing_columns(
    table: str, frame: DataFrame, table_columns: StructType, generated: Collection[str] = ()
) -> DataFrame:
    """Return the frame with nulls for missing optional columns, except those in `generated`.

    Raises TableSchemaMismatchError for a column missing in the table, or a required one missing in
    the frame.
    """
    missing = find_missing_columns(table, frame.schema, table_columns, generated)
    return frame.withColumns({c.name: sql.lit(None).cast(c.dataType) for c in missing})


def find_missing_columns(
    table: str, rows: StructType, table_columns: StructType, generated: Collection[str] = ()
) -> list[StructField]:
    """Return the table's optional columns that rows lack; raises like `fill_missing_columns`."""
    have = {column.name.lower() for column in rows}
    known = {column.name.lower() for column in table_columns}
    extra = [column for column in rows if column.name.lower() not in known]
    # generated columns are lower case; the table computes them
    missing = [c for c in table_columns if c.name.lower() not in {*have, *generated}]
    required = [column.name for column in missing if not column.nullable]
    if extra or required:
        raise _build_mismatch(table, extra, required)
    return missing


def spark_schema_of(rows: Frame) -> StructType:
    """Return the columns of a frame or of an Arrow table, in Spark's types."""
    if isinstance(rows, DataFrame):
        return rows.schema
    return from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)


def explain_mismatch(error: TrimtabError) -> TrimtabError:
    """Return a mismatch with advice, any other error unchanged."""
    if not isinstance(error, TableSchemaMismatchError):
        return error
    return TableSchemaMismatchError(
        f"{error}. Change the column's type in the table or in a transform (lake.transform), or "
        "write the topic to another table (lake.tables). Nothing was written and no offset moved"
    )


def to_nullable_schema(spark: SparkSession, schema: StructType) -> Any:
    """Return the schema as a JVM object with every column optional."""
    # a later batch may lack a value of any column
    return java(spark).org.apache.spark.sql.types.DataType.fromJson(make_optional(schema).json())


def make_optional(kind: DataType) -> DataType:
    """Return the type with optional fields, array elements and map values."""
    if isinstance(kind, StructType):
        return StructType([StructField(f.name, make_optional(f.dataType), nullable=True) for f in kind])
    if isinstance(kind, ArrayType):
        return ArrayType(make_optional(kind.elementType), containsNull=True)
    if isinstance(kind, MapType):
        return MapType(kind.keyType, make_optional(kind.valueType), valueContainsNull=True)
    return kind


def _build_mismatch(table: str, extra: list[StructField], required: list[str]) -> TableSchemaMismatchError:
    faults: list[str] = []
    if extra:
        add = ", ".join(f"{column.name} {column.dataType.simpleString()}" for column in extra)
        faults.append(
            f"it has no column for {add} (lake.schema.evolution=add lets the sink add it; or ALTER TABLE "
            f"{table} ADD COLUMNS ({add}), or leave it out in a transform)"
        )
    if required:
        faults.append(
            f"its columns {', '.join(required)} are required and the rows do not have them (make them "
            f"optional: ALTER TABLE {table} ALTER COLUMN {required[0]} DROP NOT NULL, or add them in a "
            "transform)"
        )
    return TableSchemaMismatchError(
        f"table {table} does not fit the rows: {'; '.join(faults)}. Nothing was written and no offset moved"
    )
