"""What a table must become so that rows fit: columns added, types widened, nothing else.

The rules, the same for every table format:

1. A column that the rows have and the table lacks is added, optional, also inside structs, in the
   elements of arrays and in the values of maps.
2. A number's type is widened where every old value stays what it is: to a longer integer, to
   double, to a decimal of more digits and the same scale.
3. Nothing is dropped, narrowed, renamed or made required. What does not fit after that is
   TableMismatch when the rows are staged.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructField,
    StructType,
)

Path: TypeAlias = tuple[str, ...]
"""Names from the top to a field; "element" and "value" lead into arrays and maps."""

_WHOLE: Final = (ByteType, ShortType, IntegerType, LongType)
_REAL: Final = (FloatType, DoubleType)


@dataclass(frozen=True, slots=True)
class Change:
    """A column to add, or (`widen`) one whose type is to become `type`."""

    path: Path
    type: DataType
    widen: bool = False

    @property
    def name(self) -> str:
        """The column as in SQL, "address.zip"."""
        return ".".join(self.path)

    def __str__(self) -> str:
        return f"{self.name} {'becomes ' if self.widen else ''}{self.type.simpleString()}"


def changes(table: StructType, rows: StructType) -> tuple[Change, ...]:
    """Return what a table with these columns needs for these rows, in the rows' order."""
    return tuple(_struct((), table, rows))


def _struct(path: Path, table: StructType, rows: StructType) -> Iterator[Change]:
    have: dict[str, StructField] = {column.name.lower(): column for column in table}
    for column in rows:
        found = have.get(column.name.lower())
        if found is None:
            yield Change((*path, column.name), column.dataType)
        else:
            yield from _inside((*path, found.name), found.dataType, column.dataType)


def _inside(path: Path, table: DataType, rows: DataType) -> Iterator[Change]:
    if isinstance(table, StructType) and isinstance(rows, StructType):
        yield from _struct(path, table, rows)
    elif isinstance(table, ArrayType) and isinstance(rows, ArrayType):
        yield from _inside((*path, "element"), table.elementType, rows.elementType)
    elif isinstance(table, MapType) and isinstance(rows, MapType):
        yield from _inside((*path, "value"), table.valueType, rows.valueType)
    elif _wider(table, rows):
        yield Change(path, rows, widen=True)


def _wider(table: DataType, rows: DataType) -> bool:
    """Whether every value of the table's type is one of the rows' type, which has more."""
    for family in (_WHOLE, _REAL):
        if isinstance(table, family) and isinstance(rows, family):
            return family.index(type(table)) < family.index(type(rows))
    if isinstance(table, DecimalType) and isinstance(rows, DecimalType):
        return table.scale == rows.scale and table.precision < rows.precision
    return False
