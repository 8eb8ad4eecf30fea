"""Columns of a Delta table: creation, evolution, and casts of rows to its types.

Delta's transaction writes values in the types of the frame, so the rules of an INSERT are applied
here: a value takes the column's type if that never changes it (Spark's STRICT store assignment),
struct fields match by name, and everything else is TableSchemaMismatchError.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.schema import column_mapping
from trimtab.consumer_sdk.lake.schema.partition_spec import PARTITION_SETTING, PartitionField, PartitionSpec
from trimtab.consumer_sdk.lake.schema.schema_evolution import ColumnChange

GENERATION_PROPERTY: Final = "delta.generationExpression"
TYPE_WIDENING_PROPERTY: Final = "delta.enableTypeWidening"
_COMPUTED_PROPERTIES: Final = (GENERATION_PROPERTY, "delta.identity.start")
# Delta partitions by columns only: a time transform becomes a generated column. Of these expressions
# Delta derives partition filters from filters on the time itself.
_TIME_COLUMNS: Final[dict[str, tuple[DataType, str]]] = {
    "year": (IntegerType(), "YEAR({})"),
    "month": (StringType(), "DATE_FORMAT({}, 'yyyy-MM')"),
    "day": (DateType(), "CAST({} AS DATE)"),
    "hour": (StringType(), "DATE_FORMAT({}, 'yyyy-MM-dd-HH')"),
}


@dataclass(frozen=True, slots=True)
class DeltaSchema:
    """Columns of a table, and the names of its partition columns."""

    columns: StructType
    partition_columns: tuple[str, ...]

    def fits_table(self, later: "DeltaSchema") -> bool:
        """Return whether files staged with this schema fit the later one."""
        types = {column.name: column.dataType for column in later.columns}
        # Columns added since are no obstacle: readers take null for a column that a file lacks.
        kept = all(types.get(column.name) == column.dataType for column in self.columns)
        return kept and self.partition_columns == later.partition_columns


def read_schema(metadata: Any) -> DeltaSchema:
    """Return a table's schema; `metadata` is Delta's own object."""
    columns = StructType.fromJson(json.loads(str(metadata.schemaString())))
    names = metadata.partitionColumns()
    return DeltaSchema(columns, tuple(str(names.apply(n)) for n in range(names.size())))


def build_columns(rows: StructType, partition_spec: PartitionSpec) -> tuple[StructType, list[str]]:
    """Return a new table's columns, and the names of its partition columns. Raises SettingError."""
    # Optional: a later batch may lack a value of any column.
    columns = [StructField(c.name, column_mapping.make_optional(c.dataType), nullable=True) for c in rows]
    names: list[str] = []
    for part in partition_spec:
        if part.transform == "identity":
            names.append(part.column)
        else:
            columns.append(_generated_column(part))
            names.append(columns[-1].name)
    return StructType(columns), names


def build_alter_clauses(changes: Sequence[ColumnChange], metadata: Any) -> Iterator[str]:
    """Yield the ALTER TABLE clauses for these changes."""
    added = [f"{_quote_path(c.path)} {c.type.simpleString()}" for c in changes if not c.widens]
    if added:
        yield f"ADD COLUMNS ({', '.join(added)})"
    # Without the property, staging raises the mismatch: type widening raises the table's protocol
    # version, which is the owner's decision.
    if metadata.configuration().contains(TYPE_WIDENING_PROPERTY):
        for change in (c for c in changes if c.widens):
            yield f"ALTER COLUMN {_quote_path(change.path)} TYPE {change.type.simpleString()}"


def cast_to_table(table: str, frame: DataFrame, schema: DeltaSchema, java: Any) -> DataFrame:
    """Return the frame with the table's columns and types, by name. Raises TableSchemaMismatchError."""
    # Rows may lack these: Delta computes them.
    computed = {c.name.lower() for c in schema.columns if c.metadata.keys() & set(_COMPUTED_PROPERTIES)}
    rows = column_mapping.fill_missing_columns(table, frame, schema.columns, computed)
    have = {column.name.lower(): column for column in rows.schema}
    caster = _ColumnCaster(table, java)
    return rows.select(
        *(
            caster.cast((column.name,), sql.col(_quote_path((found.name,))), found.dataType, column)
            for column in schema.columns
            if (found := have.get(column.name.lower())) is not None
        )
    )


@dataclass(frozen=True, slots=True)
class _ColumnCaster:
    table: str
    java: Any  # the JVM's packages

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
        if not self._is_upcast(have, want):
            raise self._build_mismatch(path, have.simpleString(), want.simpleString())
        return value.cast(want)

    def _cast_struct(
        self, path: tuple[str, ...], value: Column, have: StructType, want: StructType
    ) -> Column:
        found = {field.name.lower(): field for field in have}
        if extra := found.keys() - {field.name.lower() for field in want}:
            raise self._build_mismatch((*path, min(extra)), "a field", "missing")
        fields = [
            sql.lit(None).cast(field.dataType).alias(field.name)
            if (known := found.get(field.name.lower())) is None
            else self.cast((*path, field.name), value.getField(known.name), known.dataType, field)
            for field in want
        ]
        # Without the condition, a null struct would become a struct of nulls.
        return sql.when(value.isNotNull(), sql.struct(*fields))

    def _is_upcast(self, have: DataType, want: DataType) -> bool:
        parse = self.java.org.apache.spark.sql.types.DataType.fromJson
        cast = self.java.org.apache.spark.sql.catalyst.expressions.Cast
        return bool(cast.canUpCast(parse(have.json()), parse(want.json())))

    def _build_mismatch(self, path: tuple[str, ...], have: str, want: str) -> TableSchemaMismatchError:
        return TableSchemaMismatchError(
            f"table {self.table} does not fit the rows: {'.'.join(path)} is {have} in the rows and "
            f"{want} in the table"
        )


def _generated_column(part: PartitionField) -> StructField:
    found = _TIME_COLUMNS.get(part.transform)
    if found is None:
        raise SettingError(
            f"{PARTITION_SETTING}: Delta cannot partition by {part}; write a column, or "
            "year, month, day, hour(column)"
        )
    kind, expression = found
    metadata = {GENERATION_PROPERTY: expression.format(_quote_path((part.column,)))}
    return StructField(f"{part.column}_{part.transform}", kind, nullable=True, metadata=metadata)


def _quote_path(path: Sequence[str]) -> str:
    return ".".join("`" + name.replace("`", "``") + "`" for name in path)


def quote_sql(value: str) -> str:
    """Return text as a literal of Spark SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
