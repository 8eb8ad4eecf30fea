"""A writer that is killed after it staged the same rows three times and committed the first attempt.

`python -m object_store.staged_attempts WRITE FOLDER TABLE SETTINGS` prints the files of each attempt in JSON:
WRITE is `append` or `upsert`, FOLDER is where the store keeps the objects of the table's namespace, SETTINGS
are JSON. An attempt of upserts has a file of deletion vectors, too.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from trimtab.consumer_sdk.lake.changes.keyed_changes import KeyedChanges
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.model.interfaces import LakeTable, StagedChanges, StagedFiles
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets
from trimtab.consumer_sdk.lake.options.settings import parse_session_config
from trimtab.consumer_sdk.lake.session.factory import open_lake

PLACES: Final = [(0, 1), (0, 2)]
COMMITTED: Final = "committed"
ATTEMPTS: Final = (COMMITTED, "crashed", "in-progress")
_FILES: Final = (".parquet", ".puffin", ".bin")  # data files, and deletion vectors of Iceberg and of Delta


class AttemptInterruptedError(Exception):
    """An attempt ended before its commit."""


class InterruptedOldRows:
    """Writes the deletion vectors of a commit, which is then not made."""

    def __init__(self, old_rows: Any) -> None:
        self._old_rows = old_rows

    def start_commit(self, target: Any, files: Any) -> Any:
        """Do what Iceberg's table asks for."""
        self._old_rows.start_commit(target, files)
        raise AttemptInterruptedError

    def build_actions(self, transaction: Any) -> Any:
        """Do what Delta's table asks for."""
        self._old_rows.build_actions(transaction)
        raise AttemptInterruptedError


def stage_attempts(folder: Path, stage: Callable[[str], None]) -> dict[str, list[str]]:
    """Return the files of each attempt."""
    files = dict[str, list[str]]()
    known = list_files(folder)
    for attempt in ATTEMPTS:
        stage(attempt)
        found = list_files(folder)
        files[attempt], known = sorted(found - known), found
    return files


def list_files(folder: Path) -> set[str]:
    """Return the data files and deletion vectors in a folder."""
    return {str(file) for file in folder.rglob("*") if file.name.endswith(_FILES)}


def make_appends(lake: SparkLake, name: str) -> Callable[[str], None]:
    """Return the attempt to append rows to a table, which is created."""
    rows = lake.to_frame(make_rows())
    table = lake.create_table(name, rows)

    def stage(attempt: str) -> None:
        staged = table.stage_rows(rows, attempt)
        if attempt == COMMITTED:
            commit(table, staged)

    return stage


def make_upserts(lake: SparkLake, name: str) -> Callable[[str], None]:
    """Return the attempt to replace a row of a table, which is created and filled."""
    rows = make_rows()
    table = lake.create_table(name, KeyedChanges(rows, rows.select(["id"]), ("id",)))
    commit(table, table.stage_rows(KeyedChanges(rows, rows.select(["id"]), ("id",)), "first"))
    changed = rows.slice(0, 1)

    def stage(attempt: str) -> None:
        staged = table.stage_rows(KeyedChanges(changed, changed.select(["id"]), ("id",)), attempt)
        if attempt == COMMITTED:
            commit(table, staged)
            return
        assert isinstance(staged, StagedChanges)
        with suppress(AttemptInterruptedError):
            commit(table, replace(staged, old_rows=InterruptedOldRows(staged.old_rows)))

    return stage


def make_rows() -> pa.Table:
    """Return the rows of an attempt."""
    partitions, offsets = zip(*PLACES, strict=True)
    return pa.table({"id": [1, 2], "partition": partitions, "offset": offsets})


def commit(table: LakeTable, staged: StagedFiles) -> None:
    """Commit files without offsets."""
    table.commit(staged, CommittedOffsets(), table.read_offsets())


def main(write: str, folder: str, name: str, settings: str) -> None:
    """Print the files of each attempt."""
    lake = open_lake(parse_session_config(json.loads(settings)))
    stage = make_upserts(lake, name) if write == "upsert" else make_appends(lake, name)
    print(json.dumps(stage_attempts(Path(folder), stage)), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
    os.kill(os.getpid(), signal.SIGKILL)
