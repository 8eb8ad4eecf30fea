"""Maps rows to a table's columns, equally for every table format.

Missing optional columns become null, a value takes the column's type if that never changes it
(`keeps_values`, whatever the session's policy), and struct fields match by name. Any other mismatch is
TableSchemaMismatchError.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from trimtab.common.errors import TrimtabError
from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.model.interfaces import Frame
from trimtab.consumer_sdk.lake.schema.schema_evolution import keeps_values
from trimtab.consumer_sdk.lake.spark.gateway import java_packages

NOTHING_WRITTEN: Final = "Nothing was written and no offset moved"
_TYPE_ADVICE: Final = (
    "Change the column's type in the table or in a transform (lake.transform), or write the topic to another "
    f"table (lake.tables). {NOTHING_WRITTEN}"
)


class ColumnTypeMismatchError(TableSchemaMismatchError):
    """A column of the rows whose values the table's type would change; `fault` is without advice."""

    def __init__(self, table: str, path: Sequence[str], have: str, want: str) -> None:
        where = f"table {table} does not fit the rows: {'.'.join(path)}"
        self.fault = f"{where} is {have} in the rows and {want} in the table"
        super().__init__(f"{self.fault}. {_TYPE_ADVICE}")


def cast_to_table(
    table: str, frame: DataFrame, columns: StructType, computed: Collection[str] = ()
) -> DataFrame:
    """Return the frame with the table's columns and types, by name, except those in `computed`.

    Raises TableSchemaMismatchError for a column missing in the table, a required one missing in the
    frame, and other types.
    """
    missing = find_missing_columns(table, frame.schema, columns, computed)
    rows = frame.withColumns({c.name: sql.lit(None).cast(c.dataType) for c in missing})
    have = {column.name.lower(): column for column in rows.schema}
    caster = _ColumnCaster(table)
    return rows.select(
        *(
            caster.cast((column.name,), sql.col(quote_path((found.name,))), found.dataType, column)
            for column in columns
            if (found := have.get(column.name.lower())) is not None
        )
    )


def find_missing_columns(
    table: str, rows: StructType, table_columns: StructType, generated: Collection[str] = ()
) -> list[StructField]:
    """Return the table's optional columns that rows lack; raises like `cast_to_table`."""
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
    return TableSchemaMismatchError(f"{error}. {_TYPE_ADVICE}")


def to_nullable_schema(spark: SparkSession, schema: StructType) -> Any:
    """Return the schema as a JVM object with every column optional."""
    # a later batch may lack a value of any column
    return java_packages(spark).org.apache.spark.sql.types.DataType.fromJson(make_optional(schema).json())


def make_optional(kind: DataType) -> DataType:
    """Return the type with optional fields, array elements and map values."""
    if isinstance(kind, StructType):
        return StructType([StructField(f.name, make_optional(f.dataType), nullable=True) for f in kind])
    if isinstance(kind, ArrayType):
        return ArrayType(make_optional(kind.elementType), containsNull=True)
    if isinstance(kind, MapType):
        return MapType(kind.keyType, make_optional(kind.valueType), valueContainsNull=True)
    return kind


@dataclass(frozen=True, slots=True)
class _ColumnCaster:
    table: str

    def cast(self, path: tuple[str, ...], value: Column, have: DataType, want: StructField) -> Column:
        return self._cast_value(path, value, have, want.dataType).alias(want.name)

    def _cast_value(self, path: tuple[str, ...], value: Column, have: DataType, want: DataType) -> Column:
        if have.simpleString() == want.simpleString():  # the types themselves also compare nullability
            return value
        if isinstance(have, StructType) and isinstance(want, StructType):
            return self._cast_struct(path, value, have, want)
        if isinstance(have, ArrayType) and isinstance(want, ArrayType):
            types = have.elementType, want.elementType
            return sql.transform(value, lambda v: self._cast_value((*path, "element"), v, *types))
        if isinstance(have, MapType) and isinstance(want, MapType) and have.keyType == want.keyType:
            types = have.valueType, want.valueType
            return sql.transform_values(value, lambda _, v: self._cast_value((*path, "value"), v, *types))
        if not keeps_values(have, want):
            raise ColumnTypeMismatchError(self.table, path, have.simpleString(), want.simpleString())
        return value.cast(want)

    def _cast_struct(
        self, path: tuple[str, ...], value: Column, have: StructType, want: StructType
    ) -> Column:
        found = {field.name.lower(): field for field in have}
        if extra := found.keys() - {field.name.lower() for field in want}:
            raise ColumnTypeMismatchError(self.table, (*path, min(extra)), "a field", "missing")
        fields = [
            sql.lit(None).cast(field.dataType).alias(field.name)
            if (known := found.get(field.name.lower())) is None
            else self.cast((*path, field.name), value.getField(known.name), known.dataType, field)
            for field in want
        ]
        # Without the condition, a null struct would become a struct of nulls.
        return sql.when(value.isNotNull(), sql.struct(*fields))


def quote_path(path: Sequence[str]) -> str:
    """Return the name of a column as in SQL."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in path)


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
        f"table {table} does not fit the rows: {'; '.join(faults)}. {NOTHING_WRITTEN}"
    )
