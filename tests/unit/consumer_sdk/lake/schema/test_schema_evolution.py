"""What a table must become for rows to fit: added and widened, never less than it was."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from trimtab.consumer_sdk.lake.schema.schema_evolution import find_column_changes


def columns(**kinds: DataType) -> StructType:
    """Return columns by name."""
    made = StructType()
    for name, kind in kinds.items():
        made.add(name, kind)
    return made


def needed(table: StructType, rows: StructType) -> list[str]:
    """Return the changes as text."""
    return list(map(str, find_column_changes(table, rows)))


def test_a_column_that_the_table_lacks_is_added() -> None:
    """In the rows' order; what only the table has stays, and letters' case does not matter."""
    table = columns(a=LongType(), gone=StringType())
    rows = columns(new=StringType(), A=LongType(), other=DoubleType())
    assert needed(table, rows) == ["new string", "other double"]


def test_fields_inside_are_added_where_they_are() -> None:
    """The path leads through maps, arrays and structs."""

    def deep(**kinds: DataType) -> StructType:
        return columns(c=MapType(StringType(), ArrayType(columns(**kinds))))

    table, rows = deep(x=IntegerType()), deep(x=LongType(), y=StringType())
    assert needed(table, rows) == ["c.value.element.x becomes bigint", "c.value.element.y string"]


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (IntegerType(), LongType()),
        (ShortType(), IntegerType()),
        (FloatType(), DoubleType()),
        (DecimalType(9, 2), DecimalType(12, 2)),
    ],
)
def test_a_number_is_widened_and_never_narrowed(narrow: DataType, wide: DataType) -> None:
    """Every old value stays what it is; the way back changes nothing."""
    (change,) = find_column_changes(columns(n=narrow), columns(n=wide))
    assert (change.name, change.type, change.widens) == ("n", wide, True)
    assert find_column_changes(columns(n=wide), columns(n=narrow)) == ()


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        (StringType(), LongType()),
        (LongType(), DoubleType()),
        (LongType(), StringType()),
        (DecimalType(9, 2), DecimalType(12, 4)),
        (columns(x=LongType()), StringType()),
        (ArrayType(LongType()), StringType()),
    ],
)
def test_what_is_of_another_kind_is_left_to_the_writer(table: DataType, rows: DataType) -> None:
    """No change could keep the old values, so none is proposed; staging names the misfit."""
    assert find_column_changes(columns(c=table), columns(c=rows)) == ()
