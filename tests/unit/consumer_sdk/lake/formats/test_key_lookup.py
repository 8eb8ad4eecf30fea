"""Positions of rows by key, in Parquet files that pyarrow writes."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trimtab.consumer_sdk.errors import LakeUnavailableError, TableSchemaMismatchError
from trimtab.consumer_sdk.lake.formats import key_lookup
from trimtab.consumer_sdk.lake.formats.key_cache import FileKeys, KeyCache
from trimtab.consumer_sdk.lake.formats.key_lookup import (
    JavaFile,
    KeySearch,
    SearchedFile,
    load_keys,
    match_keys,
)


@pytest.fixture
def data_file(tmp_path: Path) -> str:
    """Return a file of three row groups; row 4 has no key."""
    path = str(tmp_path / "data.parquet")
    rows = pa.table({"id": pa.array([5, 1, 4, 2, None, 1, 9], pa.int32()), "value": ["x"] * 7})
    pq.write_table(rows, path, row_group_size=3)
    return path


def by_name(keys: Any) -> Any:
    return lambda schema: keys.column_names if set(keys.column_names) <= set(schema.names) else None


def find_rows(source: Any, keys: Any, key_names: Any) -> Any:
    loaded = load_keys(source, keys, key_names)
    assert isinstance(loaded, FileKeys)
    return match_keys([(source, loaded)], keys)[0]


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
    with JavaFile("s3://b/data.parquet", stream, path.stat().st_size, FakeStream.readNBytes) as file:
        assert find_rows(file, keys, by_name(keys)).tolist() == [3, 999]
    assert stream.closed
    assert stream.bytes_read < path.stat().st_size / 4


def test_a_cut_connection_is_no_damaged_file(tmp_path: Path) -> None:
    """The next try may read all of it; a file that cannot be read as Parquet would halt the table."""
    path = tmp_path / "data.parquet"
    ids = list(range(10_000))
    pq.write_table(pa.table({"id": ids, "value": [f"{n:0100}" for n in ids]}), path, compression="none")
    size = path.stat().st_size
    assert size > key_lookup.WHOLE_FILE_BYTES
    keys = pa.table({"id": [3]})
    stream = FakeStream(path.read_bytes()[: size - 100])
    file = JavaFile("s3://b/data.parquet", stream, size, FakeStream.readNBytes)
    with file, pytest.raises(LakeUnavailableError, match="bytes arrived"):
        find_rows(file, keys, by_name(keys))


def make_file(folder: Path, name: str, ids: list[int], keys: Any, opened: list[str]) -> SearchedFile:
    """Return a small object of a store."""
    path = folder / name
    pq.write_table(pa.table({"id": ids}), path)

    def open_stream() -> FakeStream:
        opened.append(name)
        return FakeStream(path.read_bytes())

    return SearchedFile(f"s3://b/{name}", path.stat().st_size, open_stream, keys, by_name(keys), name)


def test_files_are_matched_together_and_read_once(tmp_path: Path) -> None:
    """The second search finds the keys in the cache; a file that was dropped from it is read again."""
    opened: list[str] = []
    keys = pa.table({"id": [2, 5, 8]})
    files = [make_file(tmp_path, f"{n}", list(range(n, n + 3)), keys, opened) for n in range(9)]
    search = KeySearch("t", KeyCache(), FakeStream.readNBytes)
    expected = [[row for row in range(3) if n + row in (2, 5, 8)] for n in range(9)]
    for _ in range(2):
        assert [rows.tolist() for rows in search.find_rows(files)] == expected
    assert sorted(opened) == [file.location[-1] for file in files]
    search.cache.retain("t", set())
    search.find_rows(files[:1])
    assert opened[-1] == "0"


def test_an_object_of_a_megabyte_is_read_by_one_request(tmp_path: Path) -> None:
    """Not one for its footer and more for its columns."""
    keys = pa.table({"id": [2]})
    file = make_file(tmp_path, "a", [1, 2], keys, [])
    reads: list[int] = []

    def read_bytes(stream: FakeStream, count: int) -> bytes:
        reads.append(count)
        return stream.readNBytes(count)

    (found,) = KeySearch("t", KeyCache(), read_bytes).find_rows([file])
    assert found.tolist() == [1]
    assert reads == [file.size]


def test_keys_of_many_rows_are_read_by_row_group_and_not_kept(
    data_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their memory would have no bound."""
    monkeypatch.setattr(key_lookup, "_KEPT_ROWS", 6)
    keys = pa.table({"id": pa.array([1, 9, 77], pa.int64())})
    file = SearchedFile(f"file:{data_file}", 1, lambda: None, keys, by_name(keys), "a")
    search = KeySearch("t", KeyCache(), FakeStream.readNBytes)
    assert [rows.tolist() for rows in search.find_rows([file])] == [[1, 5, 6]]
    assert search.cache.memory_bytes == 0


def test_rows_of_files_without_the_column_and_of_partitions_by_key(data_file: str) -> None:
    """None of the first; all of the second, whose keys have no further column."""
    keys = pa.table({"id": pa.array([9], pa.int64())})
    plain = load_keys(data_file, keys, by_name(keys))
    older = FileKeys(5, None)
    found = [rows.tolist() for rows in match_keys([("a", older), ("b", plain), ("c", older)], keys)]
    assert found == [[], [6], []]
    whole = [("a", FileKeys(3, pa.table({}))), ("b", FileKeys(1, pa.table({})))]
    found = [rows.tolist() for rows in match_keys(whole, keys.drop_columns(["id"]))]
    assert found == [[0, 1, 2], [0]]


def test_windows_bound_the_memory(tmp_path: Path) -> None:
    """A file larger than a window has one of its own."""
    keys = pa.table({"id": [1]})
    files = [make_file(tmp_path, f"{n}", [0, n], keys, []) for n in range(5)]
    sized = [
        replace(file, size=size) for file, size in zip(files, (9 << 20, 7 << 20, 1, 40 << 20, 1), strict=True)
    ]
    assert [len(window) for window in key_lookup.split_by_size(sized, lambda file: file.size, 16 << 20)] == [
        2,
        1,
        1,
        1,
    ]
