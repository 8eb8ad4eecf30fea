"""Ranges of decoded values: at any depth, and nothing but what is outside them changes."""

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.consumer_sdk.lake.decoding.value_ranges import ValueRanges

DAY_0, DAY_N = -719_162, 2_932_896
MICRO_0, MICRO_N = -62_135_596_800_000_000, 253_402_300_799_999_999
NULLS, STRICT = ValueRanges(nulls=True), ValueRanges()


def days(*numbers: int | None) -> Any:
    """Return dates by their days since 1970."""
    return pa.array(numbers, pa.int32()).view(pa.date32())


def check(ranges: ValueRanges, values: Any, required: tuple[str, ...] = ()) -> tuple[Any, dict[int, str]]:
    """Check one column `c`."""
    rows, reasons = ranges.check_columns(pa.table({"c": values}), ["c"], required)
    return rows.column("c").combine_chunks(), reasons


@pytest.mark.parametrize(
    ("values", "ends"),
    [
        (days(DAY_0, DAY_N), (date.min, date.max)),
        (
            pa.array([MICRO_0, MICRO_N], pa.timestamp("us", "UTC")),
            (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)),
        ),
    ],
)
def test_the_ends_of_the_ranges_are_those_of_python(values: Any, ends: tuple[Any, Any]) -> None:
    """They pass, and the numbers beside them do not."""
    assert tuple(values.to_pylist()) == ends
    assert check(STRICT, values) == (values, {})
    width = pa.int32() if pa.types.is_date32(values.type) else pa.int64()
    low, high = values.view(width).to_pylist()
    beside = pa.array([low - 1, None, high + 1], width).view(values.type)
    limited, reasons = check(NULLS, beside, ("c",))
    assert limited.null_count == 3
    assert reasons.keys() == {0, 2}


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_every_unit_of_times(unit: str) -> None:
    """Seconds reach far beyond; nanoseconds stay inside by themselves."""
    values = pa.array([2**62, 0], pa.timestamp(unit))
    expected = {} if unit == "ns" else {0: f"c: {2**62} {unit} since 1970 are outside the years 1 to 9999"}
    assert {
        at: text.removesuffix(" of a timestamp") for at, text in check(STRICT, values)[1].items()
    } == expected


def test_a_reason_names_field_value_and_type() -> None:
    """Also of a field within lists, maps and structs; a record has one reason."""
    inner = pa.struct([("day", pa.date32()), ("n", pa.int64())])
    kind = pa.struct([("rows", pa.list_(inner)), ("by_name", pa.map_(pa.string(), pa.date32()))])
    entries = days(2**31 - 1, 5, -(2**31))
    rows = pa.StructArray.from_arrays([entries, pa.array([1, 2, 3])], fields=list(inner))
    lists = pa.ListArray.from_arrays([0, 2, 2, 2], rows[:2], mask=pa.array([False, False, True]))
    maps = pa.MapArray.from_arrays([0, 0, 1, 2], ["a", "b"], entries[1:])
    values = pa.StructArray.from_arrays([lists, maps], fields=list(kind))
    limited, reasons = check(STRICT, values)
    assert reasons == {
        0: "c.rows.day: 2147483647 days since 1970 are outside the years 1 to 9999 of a date",
        2: "c.by_name.value: -2147483648 days since 1970 are outside the years 1 to 9999 of a date",
    }
    assert limited.type == kind
    assert limited.to_pylist() == [
        {"rows": [{"day": None, "n": 1}, {"day": date(1970, 1, 6), "n": 2}], "by_name": []},
        {"rows": [], "by_name": [("a", date(1970, 1, 6))]},
        {"rows": None, "by_name": [("b", None)]},
    ]


def test_a_key_is_never_made_null() -> None:
    """Its record is a dead letter: a row without its key would be another row."""
    assert check(NULLS, days(2**31 - 1, 0)) == (days(None, 0), {})
    assert check(NULLS, days(2**31 - 1, 0), ("c",))[1].keys() == {0}


@given(st.lists(st.lists(st.none() | st.integers(-(2**31), 2**31 - 1)) | st.none()), st.integers(0, 3))
def test_other_values_stay(lists: list[list[int | None] | None], skip: int) -> None:
    """Of lists in a slice of an array, with nulls at each level: like a check of one value at a time."""
    values = pa.array(lists, pa.list_(pa.int32())).cast(pa.list_(pa.int32()))
    dates = values.view(pa.list_(pa.date32()))[skip:]
    limited, reasons = check(STRICT, dates)
    outside = [
        some is not None and any(d is not None and not DAY_0 <= d <= DAY_N for d in some) for some in lists
    ]
    assert [at in reasons for at in range(len(dates))] == outside[skip:]
    expected = [
        some and [d if d is not None and DAY_0 <= d <= DAY_N else None for d in some] for some in lists[skip:]
    ]
    assert limited.view(pa.list_(pa.int32())).to_pylist() == expected
