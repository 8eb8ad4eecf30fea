"""Staging of keyed changes, equally for every table format."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Protocol

from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.changes.change_rows import POSITION_COLUMNS, lacks_row_columns
from trimtab.consumer_sdk.lake.changes.keyed_changes import KeyedChanges
from trimtab.consumer_sdk.lake.model.interfaces import Frame, LakeTable, Records, StagedChanges, StagedFiles
from trimtab.consumer_sdk.lake.spark import jvm_errors


class OldRows(Protocol):
    """Rows of changed keys in a table."""

    # Looks the keys up in the current snapshot. Raises LakeUnavailableError, exceptions of the JVM.
    def search(self) -> None: ...  # noqa: D102

    # Deletes the deletion vectors of all tries but the last; failures are logged only.
    def delete_earlier_vectors(self) -> None: ...  # noqa: D102


class KeyedTable(LakeTable, Protocol):
    """A table that finds rows by key."""

    # Raises TableSchemaMismatchError, exceptions of the JVM.
    def find_old_rows(self, changes: KeyedChanges, attempt: str) -> OldRows: ...  # noqa: D102

    # The names of the columns as of the last refresh. Raises exceptions of the JVM.
    def list_columns(self) -> list[str]: ...  # noqa: D102


def stage_changes(
    table: KeyedTable, changes: KeyedChanges, attempt: str, to_frame: Callable[[Records], Frame]
) -> StagedFiles:
    """Write the upserts as data files and find the rows that they replace, before the commit's race."""
    if not changes.touched_keys.num_rows:
        return StagedFiles(attempt)
    with jvm_errors.translate_errors(f"table {table.name}: keys of changes"):
        old_rows = _find_old_rows(table, changes, attempt)
    staged = StagedFiles(attempt)
    if changes.upserts.num_rows:  # Spark would write a file without rows
        staged = table.stage_rows(to_frame(changes.upserts), attempt)
    try:
        with jvm_errors.translate_errors(f"table {table.name}: rows of changed keys"):
            old_rows.search()
    except BaseException:
        table.delete_staged_files(staged)
        raise
    return StagedChanges(attempt, staged.files, staged.rows, staged.bytes, old_rows=old_rows)


def _find_old_rows(table: KeyedTable, changes: KeyedChanges, attempt: str) -> OldRows:
    try:
        old_rows = table.find_old_rows(changes, attempt)
        if not (_is_truncation(changes) and changes.upserts.num_rows and _lacks_columns(table)):
            return old_rows
    except TableSchemaMismatchError:
        if not _lacks_columns(table):
            raise
    table.evolve_schema(changes)
    return table.find_old_rows(changes, attempt)


def _is_truncation(changes: KeyedChanges) -> bool:
    return {*changes.key_columns} <= {*POSITION_COLUMNS}  # so every table has its key


def _lacks_columns(table: KeyedTable) -> bool:
    return lacks_row_columns(table.list_columns())


@contextmanager
def discard_lost_vectors(staged: StagedFiles) -> Generator[None, None, None]:
    """After a commit, delete the deletion vectors of earlier tries: the fence lets only one of them land.

    Not after a lost race: a client that repeats an unanswered request may lose the race against itself.
    """
    yield
    if isinstance(staged, StagedChanges):
        staged.old_rows.delete_earlier_vectors()
