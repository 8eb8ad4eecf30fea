"""Schema evolution: column changes that make rows fit a table.

Rules, equal for every table format:

1. A column missing in the table is added as optional, also inside structs, array elements and map
   values.
2. A number's type is widened if that changes no value: to a longer integer, to double, to a decimal
   of more digits and equal scale.
3. A value is written into a column of another type only if every value of its type is exact there, in every
   session: no number is rounded, and no time read in the session's zone (`keeps_values`).
4. Nothing is dropped, narrowed, renamed or made required. Any remaining mismatch is
   TableSchemaMismatchError when the rows are staged.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pyspark.sql import types
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DataType, StructType

ColumnPath: TypeAlias = tuple[str, ...]  # "element" and "value" lead into arrays and maps
TypeCheck: TypeAlias = Callable[[DataType, DataType], bool]  # whether values of one type fit the other

_INTEGER_TYPES: Final = (types.ByteType, types.ShortType, types.IntegerType, types.LongType)
_FLOAT_TYPES: Final = (types.FloatType, types.DoubleType)
# Decimal digits: of the longest integers of a type, and those that a float keeps of every number.
_INTEGER_DIGITS: Final[dict[type[DataType], int]] = dict(zip(_INTEGER_TYPES, (3, 5, 10, 19), strict=True))
_KEPT_DIGITS: Final[dict[type[DataType], int]] = {
    **_INTEGER_DIGITS,
    **dict(zip(_FLOAT_TYPES, (6, 15), strict=True)),
}
_NESTED_TYPES: Final = (types.StructType, types.ArrayType, types.MapType)


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


def keeps_values(have: DataType, want: DataType) -> bool:
    """Return whether every value of a plain type is exact in another one, in every session."""
    if isinstance(have, _NESTED_TYPES):
        return False
    if isinstance(have, types.NullType) or type(have) is type(want) is not types.DecimalType:
        return True
    if isinstance(want, types.StringType):
        return not isinstance(have, types.BinaryType | types.TimestampType)
    digits = _INTEGER_DIGITS.get(type(have))
    if isinstance(want, types.DecimalType):
        if isinstance(have, types.DecimalType):
            digits = have.precision - have.scale if have.scale <= want.scale else None
        return digits is not None and digits <= want.precision - want.scale
    if digits is not None:
        return digits <= _KEPT_DIGITS.get(type(want), 0)
    return (type(have), type(want)) in (_FLOAT_TYPES, (types.DateType, types.TimestampNTZType))


def find_misfits(
    have: DataType, want: DataType | None, fits: TypeCheck = keeps_values, path: ColumnPath = ()
) -> Iterator[tuple[ColumnPath, DataType, DataType | None]]:
    """Yield the plain types within `have` that do not fit those of `want`, None for no such field."""
    if have == want:
        return
    if isinstance(have, StructType) and isinstance(want, StructType):
        types_by_name = {field.name: field.dataType for field in want}
        for field in have:
            yield from find_misfits(field.dataType, types_by_name.get(field.name), fits, (*path, field.name))
    elif isinstance(have, types.ArrayType) and isinstance(want, types.ArrayType):
        yield from find_misfits(have.elementType, want.elementType, fits, (*path, "element"))
    elif isinstance(have, types.MapType) and isinstance(want, types.MapType):
        yield from find_misfits(have.keyType, want.keyType, fits, (*path, "key"))
        yield from find_misfits(have.valueType, want.valueType, fits, (*path, "value"))
    elif want is None or not fits(have, want):
        yield path, have, want


def check_values_kept(parts: Iterable[Any], joined: Any, fits: TypeCheck = keeps_values) -> None:
    """Raise TypeError if columns, Spark's or Arrow's, would change values of those that they are made of."""
    for part in parts:
        for path, have, want in find_misfits(_to_spark_columns(part), _to_spark_columns(joined), fits):
            if want is not None:  # a name of another case, else
                names = ".".join(path), have.simpleString(), want.simpleString()
                raise TypeError("{} is {}, and {} would change its values".format(*names))


def _to_spark_columns(schema: Any) -> StructType:
    if isinstance(schema, StructType):
        return schema
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


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
