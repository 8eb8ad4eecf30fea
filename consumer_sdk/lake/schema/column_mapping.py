"""Rows into a table's columns: what is missing is null, what cannot be is a named error.

The same for every table format, so that a table does not take from one what it refuses from the
other.
"""

from collections.abc import Collection
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from trimtab.common.errors import TrimtabError
from trimtab.consumer_sdk.errors import TableMismatch
from trimtab.consumer_sdk.lake.ports import Frame
from trimtab.consumer_sdk.lake.spark.session import jvm as java


def fitted(
    table: str, frame: DataFrame, wanted: StructType, computed: Collection[str] = ()
) -> DataFrame:
    """Return the frame with the table's optional columns that it lacks, as nulls.

    `wanted` are the table's columns; those of `computed` (lower case) are filled by the table.
    Raises TableMismatch for a column that the table lacks, or one that it requires.
    """
    missing = lacking(table, frame.schema, wanted, computed)
    return frame.withColumns({c.name: sql.lit(None).cast(c.dataType) for c in missing})


def lacking(
    table: str, rows: StructType, wanted: StructType, computed: Collection[str] = ()
) -> list[StructField]:
    """Return the table's optional columns that rows lack. Raises TableMismatch, as `fitted`."""
    have = {column.name.lower() for column in rows}
    known = {column.name.lower() for column in wanted}
    extra = [column for column in rows if column.name.lower() not in known]
    missing = [c for c in wanted if c.name.lower() not in {*have, *computed}]
    required = [column.name for column in missing if not column.nullable]
    if extra or required:
        raise _mismatch(table, extra, required)
    return missing


def columns(rows: Frame) -> StructType:
    """Return the columns of a frame or of an Arrow table, in Spark's types."""
    return rows.schema if isinstance(rows, DataFrame) else from_arrow_schema(rows.schema)


def explained(error: TrimtabError) -> TrimtabError:
    """Return a mismatch with what can be done about it; any other error as it is."""
    if not isinstance(error, TableMismatch):
        return error
    return TableMismatch(
        f"{error}. Change the column's type in the table or in a transform "
        "(lake.transform), or let the topic go to another "
        "table (lake.tables). Nothing was written and no offset moved"
    )


def all_nullable(spark: SparkSession, schema: StructType) -> Any:
    """Return the schema for the JVM with every column optional: a later batch may lack a value."""
    return java(spark).org.apache.spark.sql.types.DataType.fromJson(optional(schema).json())


def optional(kind: DataType) -> DataType:
    """Return the type with everything in it optional: fields, elements of arrays, map values."""
    if isinstance(kind, StructType):
        return StructType([StructField(f.name, optional(f.dataType), nullable=True) for f in kind])
    if isinstance(kind, ArrayType):
        return ArrayType(optional(kind.elementType), containsNull=True)
    if isinstance(kind, MapType):
        return MapType(kind.keyType, optional(kind.valueType), valueContainsNull=True)
    return kind


def _mismatch(table: str, extra: list[StructField], required: list[str]) -> TableMismatch:
    add = ", ".join(f"{column.name} {column.dataType.simpleString()}" for column in extra)
    told = [
        f"it has no column for {add} "
        f"(lake.evolve=add lets the sink add it; or ALTER TABLE {table} ADD COLUMNS ({add}), "
        "or leave it out in a transform)"
        if extra
        else "",
        f"its columns {', '.join(required)} are required and the rows do not have them "
        f"(make them optional: ALTER TABLE {table} ALTER COLUMN {required[0]} DROP NOT NULL, "
        "or add them in a transform)"
        if required
        else "",
    ]
    return TableMismatch(
        f"table {table} does not fit the rows: {'; '.join(filter(None, told))}. "
        "Nothing was written and no offset moved"
    )
