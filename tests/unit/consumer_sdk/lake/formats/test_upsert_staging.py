"""Staging of changes on a table that only lists its columns."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.changes.keyed_changes import KeyedChanges
from trimtab.consumer_sdk.lake.formats.upsert_staging import stage_changes
from trimtab.consumer_sdk.lake.model.interfaces import StagedChanges

POSITIONS = ["topic", "partition", "offset", "timestamp"]
CHANGES = KeyedChanges(
    pa.table({"id": pa.array([], pa.int64())}), pa.table({"topic": ["t"], "id": [1]}), ("topic", "id")
)


@dataclass
class FakeTable:
    """A table of these columns that has no rows."""

    columns: list[str]
    name: str = "lake.orders"

    def find_old_rows(self, changes: KeyedChanges, attempt: str) -> "FakeTable":
        del attempt
        if not set(changes.key_columns) <= {*self.columns}:
            raise TableSchemaMismatchError("the key column id is missing")
        return self

    def search(self) -> None: ...

    def list_columns(self) -> list[str]:
        return self.columns

    def evolve_schema(self, changes: KeyedChanges) -> None:
        self.columns = [*self.columns, *changes.schema.names]


@pytest.mark.parametrize("more", [[], ["__deleted"]])
def test_a_table_without_columns_of_rows_gets_those_of_its_first_changes(more: list[str]) -> None:
    """A batch of dead letters, whose columns nobody knew, has made it; `lake.schema.evolution` is `fail`."""
    table: Any = FakeTable([*POSITIONS, *more])
    staged = stage_changes(table, CHANGES, "a", print)
    assert isinstance(staged, StagedChanges)
    assert staged.old_rows is table
    assert table.columns == [*POSITIONS, *more, "id"]


def test_a_table_of_other_rows_does_not_get_the_key_columns() -> None:
    """The setting is wrong, or the table is another one."""
    table: Any = FakeTable([*POSITIONS, "name"])
    with pytest.raises(TableSchemaMismatchError, match="id is missing"):
        stage_changes(table, CHANGES, "a", print)
    assert table.columns == [*POSITIONS, "name"]
