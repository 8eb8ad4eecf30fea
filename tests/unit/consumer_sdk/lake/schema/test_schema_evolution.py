"""Schema evolution: columns are added and widened, never narrowed or dropped."""

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
    struct = StructType()
    for name, kind in kinds.items():
        struct.add(name, kind)
    return struct


def describe_changes(table: StructType, rows: StructType) -> list[str]:
    """Return the changes as text."""
    return list(map(str, find_column_changes(table, rows)))


def test_missing_column_is_added() -> None:
    """Missing columns are added in the rows' order; case does not matter."""
    table = columns(a=LongType(), removed=StringType())
    rows = columns(new=StringType(), A=LongType(), other=DoubleType())
    assert describe_changes(table, rows) == ["new string", "other double"]


def test_nested_field_is_added() -> None:
    """Fields inside maps, arrays and structs are added at their path."""

    def deep(**kinds: DataType) -> StructType:
        return columns(c=MapType(StringType(), ArrayType(columns(**kinds))))

    table, rows = deep(x=IntegerType()), deep(x=LongType(), y=StringType())
    assert describe_changes(table, rows) == ["c.value.element.x becomes bigint", "c.value.element.y string"]


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (IntegerType(), LongType()),
        (ShortType(), IntegerType()),
        (FloatType(), DoubleType()),
        (DecimalType(9, 2), DecimalType(12, 2)),
    ],
)
def test_number_is_widened_and_never_narrowed(narrow: DataType, wide: DataType) -> None:
    """A longer type widens the column, a shorter one changes nothing."""
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
def test_other_type_changes_nothing(table: DataType, rows: DataType) -> None:
    """A type that would change old values is left to the error at staging."""
    assert find_column_changes(columns(c=table), columns(c=rows)) == ()
