"""Columns of a Delta table: creation and evolution."""

import json
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.model.interfaces import Frame
from trimtab.consumer_sdk.lake.model.partition_spec import PARTITION_SETTING, PartitionField, PartitionSpec
from trimtab.consumer_sdk.lake.schema.column_mapping import (
    NOTHING_WRITTEN,
    ColumnTypeMismatchError,
    make_optional,
    quote_path,
    spark_schema_of,
)
from trimtab.consumer_sdk.lake.schema.schema_evolution import ColumnChange, find_column_changes

GENERATION_PROPERTY: Final = "delta.generationExpression"
TYPE_WIDENING_PROPERTY: Final = "delta.enableTypeWidening"
_REFUSED_CHARACTERS: Final = frozenset(" ,;{}()\n\t=")  # by Delta, unless a table maps its columns
_COMPUTED_PROPERTIES: Final = (GENERATION_PROPERTY, "delta.identity.start")
# Delta partitions by columns only: a time transform becomes a generated column. Of these expressions
# Delta derives partition filters from filters on the time itself, in the time zone of the reader's session.
# It would miss rows that a session of another zone has written, so those of an instant (below) are in UTC.
_TIME_COLUMNS: Final[dict[str, tuple[DataType, str]]] = {
    "year": (IntegerType(), "YEAR({})"),
    "month": (StringType(), "DATE_FORMAT({}, 'yyyy-MM')"),
    "day": (DateType(), "CAST({} AS DATE)"),
    "hour": (StringType(), "DATE_FORMAT({}, 'yyyy-MM-dd-HH')"),
}
_UTC_DAY: Final = "DATE_ADD(DATE'1970-01-01', CAST(FLOOR(CAST({0} AS BIGINT) / 86400) AS INT))"
_UTC_HOUR: Final = "LPAD(CAST(PMOD(FLOOR(CAST({0} AS BIGINT) / 3600), 24) AS STRING), 2, '0')"
_INSTANT_EXPRESSIONS: Final = {
    "year": f"YEAR({_UTC_DAY})",
    "month": f"SUBSTRING(CAST({_UTC_DAY} AS STRING), 1, 7)",
    "day": _UTC_DAY,
    "hour": f"CONCAT(CAST({_UTC_DAY} AS STRING), '-', {_UTC_HOUR})",
}


@dataclass(frozen=True, slots=True)
class DeltaSchema:
    """Columns of a table, and the names of its partition columns."""

    columns: StructType
    partition_columns: tuple[str, ...]

    def list_partition_fields(self) -> list[StructField]:
        """Return the partition columns; SQL ignores the case of their names."""
        names = {name.lower() for name in self.partition_columns}
        return [column for column in self.columns if column.name.lower() in names]

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
    """Return a new table's columns, and the names of its partition columns.

    Raises SettingError, and TableSchemaMismatchError for a name that Delta would refuse without telling it.
    """
    for name in _list_names(rows):
        if not _REFUSED_CHARACTERS.isdisjoint(name):
            raise TableSchemaMismatchError(
                f"Delta takes no column named {name!r}, with a space, a tab, a new line or one of ,;{{}}()=: "
                f"rename it where it is produced, or in a transform (lake.transform). {NOTHING_WRITTEN}"
            )
    # Optional: a later batch may lack a value of any column.
    columns = [StructField(c.name, make_optional(c.dataType), nullable=True) for c in rows]
    names: list[str] = []
    for part in partition_spec:
        if part.transform == "identity":
            names.append(part.column)
        else:
            instants = {c.name.lower() for c in rows if isinstance(c.dataType, TimestampType)}
            columns.append(_generated_column(part, is_instant=part.column.lower() in instants))
            names.append(columns[-1].name)
    return StructType(columns), names


def _list_names(kind: DataType) -> Iterator[str]:
    if isinstance(kind, StructType):
        for field in kind:
            yield field.name
            yield from _list_names(field.dataType)
    for inner in ("elementType", "keyType", "valueType"):
        yield from _list_names(getattr(kind, inner)) if hasattr(kind, inner) else ()


def build_alter_clauses(changes: Sequence[ColumnChange], metadata: Any) -> Iterator[str]:
    """Yield the ALTER TABLE clauses for these changes."""
    added = [f"{quote_path(c.path)} {_to_sql(c.type)}" for c in changes if not c.widens]
    if added:
        yield f"ADD COLUMNS ({', '.join(added)})"
    # Without the property, staging raises the mismatch: type widening raises the table's protocol
    # version, which is the owner's decision.
    if metadata.configuration().contains(TYPE_WIDENING_PROPERTY):
        for change in (c for c in changes if c.widens):
            yield f"ALTER COLUMN {quote_path(change.path)} TYPE {_to_sql(change.type)}"


def find_computed_columns(columns: StructType) -> set[str]:
    """Return the names, in lower case, of the columns that Delta computes: rows may lack them."""
    return {c.name.lower() for c in columns if c.metadata.keys() & set(_COMPUTED_PROPERTIES)}


@contextmanager
def explain_widening(table: str, log: Any, rows: Frame) -> Generator[None]:
    """Name the statement that lets the table widen its types, if that would help; `log` is Delta's own."""
    try:
        yield
    except ColumnTypeMismatchError as error:
        metadata = log.unsafeVolatileSnapshot().metadata()
        changes = find_column_changes(read_schema(metadata).columns, spark_schema_of(rows))
        allowed = metadata.configuration().contains(TYPE_WIDENING_PROPERTY)
        if allowed or not any(change.widens for change in changes):
            raise
        raise TableSchemaMismatchError(
            f"{error.fault}, and a Delta table has to allow wider types: ALTER TABLE {table} SET "
            f"TBLPROPERTIES ('{TYPE_WIDENING_PROPERTY}' = 'true'), with lake.schema.evolution=add. "
            f"{NOTHING_WRITTEN}"
        ) from None


def _generated_column(part: PartitionField, *, is_instant: bool) -> StructField:
    found = _TIME_COLUMNS.get(part.transform)
    if found is None:
        raise SettingError(
            f"{PARTITION_SETTING}: Delta cannot partition by {part}; write a column, or "
            "year, month, day, hour(column)"
        )
    kind, expression = found
    expression = _INSTANT_EXPRESSIONS[part.transform] if is_instant else expression
    metadata = {GENERATION_PROPERTY: expression.format(quote_path((part.column,)))}
    return StructField(f"{part.column}_{part.transform}", kind, nullable=True, metadata=metadata)


def _to_sql(kind: DataType) -> str:
    """Return a type as in SQL, with quoted names and whatever `spark.sql.timestampType` is."""
    if isinstance(kind, StructType):
        return f"STRUCT<{', '.join(f'{quote_path((f.name,))}: {_to_sql(f.dataType)}' for f in kind)}>"
    if isinstance(kind, ArrayType):
        return f"ARRAY<{_to_sql(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"MAP<{_to_sql(kind.keyType)}, {_to_sql(kind.valueType)}>"
    return "TIMESTAMP_LTZ" if isinstance(kind, TimestampType) else kind.simpleString()


def quote_sql(value: str) -> str:
    """Return text as a literal of Spark SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
