"""Schema evolution: column changes that make rows fit a table.

Rules, equal for every table format:

1. A column missing in the table is added as optional, also inside structs, array elements and map
   values.
2. A number's type is widened if that changes no value: to a longer integer, to double, to a decimal
   of more digits and equal scale.
3. Nothing is dropped, narrowed, renamed or made required. Any remaining mismatch is
   TableSchemaMismatchError when the rows are staged.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from pyspark.sql import types
from pyspark.sql.types import DataType, StructType

ColumnPath: TypeAlias = tuple[str, ...]  # "element" and "value" lead into arrays and maps

_INTEGER_TYPES: Final = (types.ByteType, types.ShortType, types.IntegerType, types.LongType)
_FLOAT_TYPES: Final = (types.FloatType, types.DoubleType)


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """A column to add, or to change to `type` (`widens`)."""

    path: ColumnPath
    type: DataType
    widens: bool = False

    @property
    def name(self) -> str:
        """The column as in SQL, "address.zip"."""
        return ".".join(self.path)

    def __str__(self) -> str:
        return f"{self.name} {'becomes ' if self.widens else ''}{self.type.simpleString()}"


def find_column_changes(table: StructType, rows: StructType) -> tuple[ColumnChange, ...]:
    """Return the changes that a table needs for these rows, in the rows' order."""
    return tuple(_compare_structs((), table, rows))


def _compare_structs(path: ColumnPath, table: StructType, rows: StructType) -> Iterator[ColumnChange]:
    have: dict[str, types.StructField] = {column.name.lower(): column for column in table}
    for column in rows:
        existing = have.get(column.name.lower())
        if existing is None:
            yield ColumnChange((*path, column.name), column.dataType)
        else:
            yield from _compare_types((*path, existing.name), existing.dataType, column.dataType)


def _compare_types(path: ColumnPath, table: DataType, rows: DataType) -> Iterator[ColumnChange]:
    if isinstance(table, StructType) and isinstance(rows, StructType):
        yield from _compare_structs(path, table, rows)
    elif isinstance(table, types.ArrayType) and isinstance(rows, types.ArrayType):
        yield from _compare_types((*path, "element"), table.elementType, rows.elementType)
    elif isinstance(table, types.MapType) and isinstance(rows, types.MapType):
        yield from _compare_types((*path, "value"), table.valueType, rows.valueType)
    elif _is_wider(table, rows):
        yield ColumnChange(path, rows, widens=True)


def _is_wider(table: DataType, rows: DataType) -> bool:
    for family in (_INTEGER_TYPES, _FLOAT_TYPES):
        if isinstance(table, family) and isinstance(rows, family):
            return family.index(type(table)) < family.index(type(rows))
    if isinstance(table, types.DecimalType) and isinstance(rows, types.DecimalType):
        # Iceberg cannot change a scale
        return table.scale == rows.scale and table.precision < rows.precision
    return False
