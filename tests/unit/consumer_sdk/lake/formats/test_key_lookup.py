"""Positions of rows by key, in Parquet files that pyarrow writes."""

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trimtab.consumer_sdk.errors import LakeUnavailableError, TableSchemaMismatchError
from trimtab.consumer_sdk.lake.formats.key_lookup import JavaFile, find_rows


@pytest.fixture
def data_file(tmp_path: Path) -> str:
    """Return a file of three row groups; row 4 has no key."""
    path = str(tmp_path / "data.parquet")
    rows = pa.table({"id": pa.array([5, 1, 4, 2, None, 1, 9], pa.int32()), "value": ["x"] * 7})
    pq.write_table(rows, path, row_group_size=3)
    return path


def by_name(keys: Any) -> Any:
    return lambda schema: keys.column_names if set(keys.column_names) <= set(schema.names) else None


def test_positions_count_from_the_start_of_the_file(data_file: str) -> None:
    """Row groups are no files of their own; the file is older than the widening to long."""
    keys = pa.table({"id": pa.array([1, 9, 77], pa.int64())})
    assert find_rows(data_file, keys, by_name(keys)).tolist() == [1, 5, 6]


def test_a_row_without_a_key_is_never_found(data_file: str) -> None:
    """Null equals nothing, not even null."""
    keys = pa.table({"id": pa.array([None], pa.int64())})
    assert find_rows(data_file, keys, by_name(keys)).tolist() == []


def test_a_file_without_the_column_has_no_keys(data_file: str) -> None:
    """It is older than the column."""
    keys = pa.table({"other": [1]})
    assert find_rows(data_file, keys, by_name(keys)).tolist() == []


def test_an_unreadable_file_is_retried(tmp_path: Path) -> None:
    """A compaction and an expiry may have deleted it meanwhile."""
    keys = pa.table({"id": [1]})
    with pytest.raises(LakeUnavailableError, match=r"gone\.parquet: its keys cannot be read"):
        find_rows(str(tmp_path / "gone.parquet"), keys, by_name(keys))


def test_a_file_that_stays_unreadable_halts_its_partitions(tmp_path: Path, data_file: str) -> None:
    """A damaged file, or a key of another type: to try again would not help."""
    damaged = tmp_path / "damaged.parquet"
    damaged.write_bytes(b"no Parquet at all")
    keys = pa.table({"id": [1]})
    advice = "cannot be compared with those of the changes: .*Restore the file if it is damaged"
    with pytest.raises(TableSchemaMismatchError, match=rf"damaged\.parquet: its keys {advice}"):
        find_rows(str(damaged), keys, by_name(keys))
    for kind in (pa.int8(), pa.list_(pa.int32())):
        others = pa.table({"value": pa.array([None], kind)})
        with pytest.raises(TableSchemaMismatchError, match=advice):
            find_rows(data_file, others, by_name(others))


class FakeStream:
    """A seekable input stream of Java."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)
        self.closed = False
        self.bytes_read = 0

    def getPos(self) -> int:  # noqa: N802 - Java's name
        return self._data.tell()

    def seek(self, at: int) -> None:
        self._data.seek(at)

    def readNBytes(self, count: int) -> bytes:  # noqa: N802 - as above
        self.bytes_read += count
        return self._data.read(count)

    def close(self) -> None:
        self.closed = True


def test_of_an_object_only_the_key_columns_are_read(tmp_path: Path) -> None:
    """The rest of a file in an object store is not transferred."""
    path = tmp_path / "data.parquet"
    ids = list(range(10_000))
    pq.write_table(pa.table({"id": ids, "value": [f"{n:0100}" for n in ids]}), path, compression="none")
    stream = FakeStream(path.read_bytes())
    keys = pa.table({"id": [3, 999]})
    with JavaFile("s3://b/data.parquet", stream, path.stat().st_size) as file:
        assert find_rows(file, keys, by_name(keys)).tolist() == [3, 999]
    assert stream.closed
    assert stream.bytes_read < path.stat().st_size / 4
