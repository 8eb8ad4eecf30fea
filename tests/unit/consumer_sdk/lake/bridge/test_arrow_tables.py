"""Tables of a local folder, read without Spark."""

import json
import shutil
import sqlite3
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from trimtab.assignor.model import TopicPartition
from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.errors import CommittedOffsetsLostError, LakeUnavailableError, MissingExtraError
from trimtab.consumer_sdk.lake.bridge.arrow_tables import DeltaTableReader, IcebergTableReader
from trimtab.consumer_sdk.lake.bridge.table_snapshot import TableSnapshot

P, Q = TopicPartition("orders", 0), TopicPartition("orders", 1)


def commit(folder: Path, ids: list[int], next_offset: int, **more: Any) -> None:
    offsets = [Transaction("trimtab/a%2Fb/orders/0", next_offset)]
    rows = pa.table({"id": ids})
    properties = CommitProperties(app_transactions=offsets)
    write_deltalake(folder, rows, mode="append", commit_properties=properties, **more)


def test_a_lake_without_the_table_is_no_error(tmp_path: Path) -> None:
    """The sink may be creating its catalog or its first table."""
    file = tmp_path / "catalog.db"
    assert IcebergTableReader("lake.orders", file, "trimtab").read_snapshot("g", [P]) == TableSnapshot()
    sqlite3.connect(file).close()
    assert file.exists()
    assert IcebergTableReader("lake.orders", file, "trimtab").read_snapshot("g", [P]) == TableSnapshot()
    assert DeltaTableReader("lake.orders", tmp_path).read_snapshot("g", [P]) == TableSnapshot()


def test_offsets_and_rows_of_a_delta_table_are_of_one_version(tmp_path: Path) -> None:
    """A commit between the two is not read; the next read has it."""
    folder = tmp_path / "lake" / "orders"
    folder.mkdir(parents=True)
    commit(folder, [1, 2], 2)
    reader = DeltaTableReader("lake.orders", tmp_path)
    before = reader.read_snapshot("a/b", [P, Q])
    commit(folder, [3], 3)
    assert before.scan is not None
    assert (before.version, before.offsets.groups) == (0, {"a/b": {P: 2}})
    assert before.scan().column("id").to_pylist() == [1, 2]
    after = reader.read_snapshot("a/b", [P, Q])
    assert after.scan is not None
    assert (after.version, after.offsets.groups) == (1, {"a/b": {P: 3}})
    assert sorted(after.scan().column("id").to_pylist()) == [1, 2, 3]
    assert after.scan() is after.scan(), "the rows of a version are read once"


def test_a_delta_table_that_was_created_again_has_its_own_rows(tmp_path: Path) -> None:
    """Its versions have the numbers of the dropped one's."""
    folder = tmp_path / "lake" / "orders"
    reader = DeltaTableReader("lake.orders", tmp_path)
    for ids in ([1, 2], [3]):
        folder.mkdir(parents=True)
        commit(folder, ids, 2)
        snapshot = reader.read_snapshot("a/b", [P])
        assert snapshot.scan is not None
        assert snapshot.scan().column("id").to_pylist() == ids
        shutil.rmtree(folder)


def test_a_delta_table_that_may_forget_offsets_is_refused(tmp_path: Path) -> None:
    """Records of a forgotten partition would be added to their rows."""
    folder = tmp_path / "lake" / "orders"
    retention = {"delta.setTransactionRetentionDuration": "interval 1 days"}
    commit(folder, [1], 1, configuration=retention)
    with pytest.raises(CommittedOffsetsLostError, match="setTransactionRetentionDuration"):
        DeltaTableReader("lake.orders", tmp_path).read_snapshot("a/b", [P])


def test_a_delta_table_whose_files_are_gone_is_unavailable(tmp_path: Path) -> None:
    """VACUUM has deleted the version that was about to be read, or the log is damaged."""
    folder = tmp_path / "lake" / "orders"
    commit(folder, [1], 1)
    snapshot = DeltaTableReader("lake.orders", tmp_path).read_snapshot("a/b", [P])
    assert snapshot.scan is not None
    for file in folder.glob("*.parquet"):
        file.unlink()
    with pytest.raises(LakeUnavailableError, match=r"table lake\.orders: "):
        snapshot.scan()
    (folder / "_delta_log" / f"{0:020}.json").write_text("{")
    with pytest.raises(LakeUnavailableError, match=r"table lake\.orders: "):
        DeltaTableReader("lake.orders", tmp_path).read_snapshot("a/b", [P])


def test_a_delta_table_with_features_that_delta_rs_lacks_is_refused(tmp_path: Path) -> None:
    """Spark knows more of them."""
    folder = tmp_path / "lake" / "orders"
    commit(folder, [1], 1)
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["odd"],
        "writerFeatures": ["odd"],
    }
    (folder / "_delta_log" / f"{1:020}.json").write_text(json.dumps({"protocol": protocol}))
    with pytest.raises(SettingError, match="engine='spark'"):
        read_all(DeltaTableReader("lake.orders", tmp_path))


def read_all(reader: DeltaTableReader) -> Any:
    snapshot = reader.read_snapshot("a/b", [P])
    assert snapshot.scan is not None
    return snapshot.scan()


def test_a_library_that_is_missing_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The libraries are an extra."""
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(MissingExtraError, match=r"deltalake is not installed.*trimtab\[read\]"):
        DeltaTableReader("lake.orders", tmp_path)


class OvertakenReader(DeltaTableReader):
    """A reader whose background, which cannot be stopped, ends right after each scan of the foreground."""

    @contextmanager
    def _translate_errors(self) -> Generator[None]:
        with super()._translate_errors():
            yield
        self._scanned = "an older version", pa.table({"id": [0]})


def test_rows_of_an_older_version_do_not_come_with_newer_offsets(tmp_path: Path) -> None:
    """The load of a version that is no longer wanted may end at any time."""
    folder = tmp_path / "lake" / "orders"
    commit(folder, [1, 2], 2)
    snapshot = OvertakenReader("lake.orders", tmp_path).read_snapshot("a/b", [P])
    assert snapshot.scan is not None
    assert snapshot.scan().column("id").to_pylist() == [1, 2]
