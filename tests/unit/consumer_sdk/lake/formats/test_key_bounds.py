"""Data files that their bounds rule out."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.consumer_sdk.lake.formats.delta import deletion_vectors
from trimtab.consumer_sdk.lake.formats.iceberg import arrow_files
from trimtab.consumer_sdk.lake.formats.key_bounds import KeyRanges, decode_bound

STAMP = datetime(2026, 11, 27, 3, 0, 0, 5, tzinfo=UTC)
MICROSECONDS = 1795748400000005


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), st.lists(st.integers(), min_size=1))
def test_a_file_with_one_of_the_keys_is_never_ruled_out(keys: list[int], rows: list[int]) -> None:
    """And one is ruled out if all keys are below or above it, or between two of its rows' bounds."""
    ranges = KeyRanges(pa.table({"id": pa.array(keys, pa.int64())}))
    bounds = min(rows), max(rows)
    expected = any(bounds[0] <= key <= bounds[1] for key in keys)
    assert ranges.may_be_in({"id": bounds}) == expected


@given(st.lists(st.text(), min_size=1), st.text(), st.text())
def test_texts_compare_as_their_bytes(keys: list[str], one: str, other: str) -> None:
    """The order of Parquet's statistics, which is that of Python's texts."""
    lower, upper = sorted((one, other))
    ranges = KeyRanges(pa.table({"id": pa.array(keys, pa.string())}))
    expected = any(lower <= key <= upper for key in keys)
    assert ranges.may_be_in({"id": (lower.encode(), upper.encode())}) == expected


def test_each_column_of_the_key_may_rule_a_file_out() -> None:
    """A table of several topics has files of one topic."""
    ranges = KeyRanges(pa.table({"topic": ["a", "a"], "id": [1, 9]}))
    assert ranges.may_be_in({"topic": (b"a", b"b"), "id": (5, 20)})
    assert not ranges.may_be_in({"topic": (b"b", b"c"), "id": (5, 20)})
    assert not ranges.may_be_in({"topic": (b"a", b"b"), "id": (2, 8)})
    assert ranges.may_be_in({})


@pytest.mark.parametrize(
    ("kind", "value", "bound"),
    [
        (pa.int64(), (-5).to_bytes(8, "little", signed=True), -5),
        (pa.int64(), (7).to_bytes(4, "little"), 7),  # written while the column was an int
        (pa.int32(), (7).to_bytes(4, "little"), 7),
        (pa.string(), "ü".encode(), "ü".encode()),
        (pa.binary(), b"\xff", b"\xff"),
        (pa.date32(), (20_784).to_bytes(4, "little"), 20_784),
        (pa.timestamp("us", "UTC"), MICROSECONDS.to_bytes(8, "little"), MICROSECONDS),
        (pa.timestamp("us"), (20_784).to_bytes(4, "little"), None),  # written while it was a date
        (pa.decimal128(9, 2), b"\x05", None),
        (pa.bool_(), b"\x01", None),
    ],
)
def test_bounds_of_iceberg(kind: Any, value: bytes, bound: Any) -> None:
    """None: the file may have every key."""
    assert decode_bound(kind, value) == bound


@pytest.mark.parametrize(
    ("kind", "value", "number"),
    [(pa.date32(), date(2026, 11, 27), 20_784), (pa.timestamp("us", "UTC"), STAMP, MICROSECONDS)],
)
def test_times_are_compared_with_bounds_as_numbers(kind: Any, value: Any, number: int) -> None:
    """In the units of Iceberg's bounds."""
    ranges = KeyRanges(pa.table({"at": pa.array([value], kind)}))
    assert ranges.may_be_in({"at": (number, number)})
    assert not ranges.may_be_in({"at": (number + 1, number + 5)})


def test_a_type_without_comparable_bounds_rules_nothing_out() -> None:
    """Delta's log has decimals as numbers of JSON."""
    ranges = KeyRanges(pa.table({"n": pa.array([Decimal("1.5")], pa.decimal128(9, 2))}))
    assert ranges.may_be_in({"n": (7, 9)})


def test_iceberg_metadata_name_columns_by_id() -> None:
    """A file without bounds of a column, or with one of them, has none."""
    schema = pa.schema([pa.field(name, pa.int64(), metadata={b"PARQUET:field_id": n}) for n, name in NAMES])
    file = {
        "lower-bounds": {"keys": [1, 3], "values": ["0100000000000000", "05000000"]},
        "upper-bounds": {"keys": [1, 2], "values": ["0900000000000000", "05000000"]},
    }
    assert arrow_files.read_bounds(file, schema) == {"id": (1, 9)}
    assert arrow_files.read_bounds({}, schema) == {}


@pytest.mark.parametrize(("groups", "bounds"), [([4], {"id": (b"a", b"b")}), ([4, 900], {}), (None, {})])
def test_iceberg_bounds_of_texts_count_for_one_row_group(groups: list[int] | None, bounds: Any) -> None:
    """A group with a text of 5,000 bytes has no bounds, and Iceberg's are those of the others."""
    schema = pa.schema([pa.field("id", pa.string(), metadata={b"PARQUET:field_id": b"1"})])
    sides = {"lower-bounds": {"keys": [1], "values": ["61"]}, "upper-bounds": {"keys": [1], "values": ["62"]}}
    assert arrow_files.read_bounds({**sides, "split-offsets": groups}, schema) == bounds


NAMES = [(b"1", "id"), (b"2", "a"), (b"3", "b")]


def test_delta_statistics_name_columns_as_files_do() -> None:
    """Times are texts there, and a truncated text has no maximum."""
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", pa.date32()), ("no", pa.string())])
    add = {
        "stats": '{"minValues": {"col-1": 1, "name": "a", "at": "2026-01-01", "no": "a"}, '
        '"maxValues": {"col-1": 9, "name": "ü", "at": "2026-01-02"}}'
    }
    columns = ("col-1", "name", "at", "no")
    expected = {"id": (1, 9), "name": (b"a", "ü".encode())}
    assert deletion_vectors.read_bounds(add, schema, columns) == expected
    assert deletion_vectors.read_bounds({"stats": None}, schema, columns) == {}


@pytest.mark.parametrize(
    "stats",
    [
        '{"minValues": {"id": "a"}, "maxValues": {"id": "aaaa\ufffd"}}',  # less than "aaaa" and an emoji
        '{"minValues": {"id": "\\ud800"}, "maxValues": {"id": "b"}}',
        '{"minValues": {"id": "a"}, "maxV',
        '{"minValues": 1, "maxValues": 2}',
        "[]",
        "1",
        "null",
    ],
)
def test_odd_delta_statistics_rule_nothing_out(stats: str) -> None:
    """Any program may have written them."""
    assert not deletion_vectors.read_bounds({"stats": stats}, pa.schema([("id", pa.string())]), ["id"])
