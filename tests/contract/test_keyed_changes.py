"""Contract of upserts: after each commit a table equals a replay of the changes in plain Python."""

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyiceberg.table import StaticTable

from support.lake.change_records import build_projection, build_records, change
from support.lake.slow_on_delta import slow_on_delta
from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import SystemClock
from trimtab.consumer_sdk.errors import CommitConflictError, TableSchemaMismatchError
from trimtab.consumer_sdk.lake.changes.change_rows import KeyRules
from trimtab.consumer_sdk.lake.changes.keyed_changes import KeyedChanges
from trimtab.consumer_sdk.lake.commits.compaction_hold import HOLD_PROPERTY, parse_hold
from trimtab.consumer_sdk.lake.commits.fenced_commit import CommitSucceeded, commit_fenced
from trimtab.consumer_sdk.lake.commits.maintenance import compact_table
from trimtab.consumer_sdk.lake.commits.retry import RetryBackoff
from trimtab.consumer_sdk.lake.formats import key_lookup
from trimtab.consumer_sdk.lake.formats.delta import deletion_vectors
from trimtab.consumer_sdk.lake.formats.delta.deletion_vectors import DeltaOldRows
from trimtab.consumer_sdk.lake.formats.iceberg import row_delta
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.model.interfaces import LakeTable, StagedFiles
from trimtab.consumer_sdk.lake.model.partition_spec import PartitionField
from trimtab.consumer_sdk.lake.offsets.table_offsets import OffsetSpan
from trimtab.consumer_sdk.lake.session.factory import create_maintenance
from trimtab.consumer_sdk.lake.spark.gateway import py4j_gateway

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
Row = tuple[Any, ...]
_ATTEMPTS = itertools.count()
SLOW_ON_DELTA = slow_on_delta("iceberg_arrow", "delta_arrow", "formats")
BACKOFF = RetryBackoff(random.Random(7))  # noqa: S311 - jitter


@pytest.fixture(params=["iceberg_arrow", "delta_arrow"])
def formats(request: pytest.FixtureRequest) -> Any:
    """Return the lake of each format."""
    return request.getfixturevalue(request.param)


@dataclass
class Replica:
    """One writer of an upsert table, and the rows that the table must have."""

    lake: SparkLake
    table: LakeTable
    schema: Any = SCHEMA
    key_columns: tuple[str, ...] = ("id",)
    partition: int = 0
    rows: dict[Row, Row] = field(default_factory=dict)

    def stage(self, *upserts: Row, deletes: Sequence[Row] = ()) -> StagedFiles:
        """Stage rows to insert or update, and keys to delete."""
        changes = self.changes(upserts, deletes)
        keys = changes.touched_keys.to_pylist()
        self.rows = {
            k: row for k, row in self.rows.items() if dict(zip(self.key_columns, k, strict=True)) not in keys
        }
        self.rows |= {self.key_of(row): row for row in upserts}
        return self.table.stage_rows(changes, f"attempt-{self.partition}-{next(_ATTEMPTS)}")

    def changes(self, upserts: Sequence[Row], deletes: Sequence[Row] = ()) -> KeyedChanges:
        rows = [dict(zip(self.schema.names, row, strict=False)) for row in upserts]
        keys = [*map(self.key_of, upserts), *deletes]
        touched = [dict(zip(self.key_columns, key, strict=True)) for key in keys]
        key_schema = pa.schema([self.schema.field(name) for name in self.key_columns])
        return KeyedChanges(
            pa.Table.from_pylist(rows, schema=self.schema),
            pa.Table.from_pylist(touched, schema=key_schema),
            self.key_columns,
        )

    def commit(self, staged: StagedFiles) -> None:
        """Commit with the next offset of this writer's partition."""
        current = self.table.read_offsets()
        where = TopicPartition("t", self.partition)
        offset = current.offsets.next_offset("g", where)
        span = {where: OffsetSpan(offset, offset or 0, (offset or 0) + 1)}
        self.table.commit(staged, current.offsets.advanced_by("g", span), current)

    def commit_fenced(self, staged: StagedFiles) -> None:
        """Commit as the sink does: after lost races once more, and held up by compactions."""
        where = TopicPartition("t", self.partition)
        offset = self.table.read_offsets().offsets.next_offset("g", where)
        spans = {where: OffsetSpan(offset, offset or 0, (offset or 0) + 1)}
        staged = replace(staged, begun_at=SystemClock.monotonic())
        outcome = commit_fenced(self.table, staged, "g", spans, BACKOFF, SystemClock.monotonic)
        assert isinstance(outcome, CommitSucceeded)

    def write(self, *upserts: Row, deletes: Sequence[Row] = ()) -> None:
        self.commit(self.stage(*upserts, deletes=deletes))

    def read(self) -> list[Row]:
        """Return the table's rows, read by Spark."""
        self.lake.spark.catalog.refreshTable(self.table.name)
        return sorted(map(tuple, self.lake.spark.table(self.table.name).collect()))

    def check(self) -> None:
        assert self.read() == sorted(self.rows.values())

    def key_of(self, row: Row) -> Row:
        """Return a row's key."""
        by_name = dict(zip(self.schema.names, row, strict=False))
        return tuple(by_name[name] for name in self.key_columns)


@pytest.fixture
def replica(formats: SparkLake, namespace: str) -> Callable[..., Replica]:
    """Open a writer of this test's table, which is created with the first one."""

    def make(schema: Any = SCHEMA, key: Sequence[str] = ("id",), partition: int = 0, by: str = "") -> Replica:
        empty = KeyedChanges(schema.empty_table(), schema.empty_table().select(list(key)), tuple(key))
        table = formats.create_table(f"{namespace}.t", empty, (PartitionField("identity", by),) if by else ())
        return Replica(formats, table, schema, tuple(key), partition)

    return make


def compact(lake: SparkLake, table: str) -> None:
    """Rewrite all data files, as `trimtab tables compact` does once they are small enough."""
    if type(lake).__name__ == "DeltaLake":
        lake.spark.sql(f"OPTIMIZE {table}")
    else:
        options = "map('rewrite-all', 'true')"
        catalog = lake.catalog_name  # type: ignore[attr-defined]
        lake.spark.sql(f"CALL {catalog}.system.rewrite_data_files(table => '{table}', options => {options})")


def test_inserts_updates_and_deletes_leave_one_row_for_each_key(replica: Callable[..., Replica]) -> None:
    """An update replaces the row, a delete drops it, and a key may come back."""
    writer = replica()
    writer.write((1, "a"), (2, "b"), (3, "c"))
    writer.write((2, "B"), (4, "d"), deletes=[(3,)])
    writer.check()
    writer.write((3, "again"), (2, "BB"), deletes=[(1,)])
    writer.check()


def test_readers_without_spark_see_the_same_rows(replica: Callable[..., Replica], warehouse: Path) -> None:
    """pyiceberg and delta-rs apply the deletion vectors, merged ones, too."""
    writer = replica()
    for n in range(3):
        writer.write(*((key, f"{n}") for key in range(n, 20)), deletes=[(50 + n,), (n - 1,)])
    columns = read_without_spark(writer, warehouse)
    assert sorted(zip(columns["id"].to_pylist(), columns["name"].to_pylist(), strict=True)) == writer.read()
    writer.check()


@SLOW_ON_DELTA
def test_a_truncate_empties_the_table(replica: Callable[..., Replica]) -> None:
    """`lake.truncate: apply`: rows of earlier batches go, and those behind it in its own batch stay."""
    projection = build_projection(rules=KeyRules(("id",), applies_truncations=True))
    rows = [{"id": n, "name": "a", "n": n} for n in range(4)]
    batches = [
        [change("c", None, row) for row in rows[:3]],
        [change("u", rows[0], {**rows[0], "name": "b"}), change("t"), change("c", None, rows[3])],
        [change("c", None, rows[0])],
        [change("t")],
    ]
    changes = [
        projection.read_changes(build_records(batch, first=10 * n))[0] for n, batch in enumerate(batches)
    ]
    writer = replica(changes[0].schema, changes[0].key_columns)
    for batch, expected in zip(changes, ([0, 1, 2], [3], [0, 3], []), strict=True):
        writer.commit(writer.table.stage_rows(batch, f"truncate-{next(_ATTEMPTS)}"))
        assert sorted(row[-3] for row in writer.read()) == expected


def read_without_spark(writer: Replica, warehouse: Path) -> Any:
    if type(writer.lake).__name__ == "DeltaLake":
        found = DeltaTable(warehouse / writer.table.name.replace(".", "/"))
        return pa.table(QueryBuilder().register("t", found).execute("SELECT * FROM t").read_all())
    metadata = writer.table.java_table.operations().current()  # type: ignore[attr-defined]
    return StaticTable.from_metadata(str(metadata.metadataFileLocation())).scan().to_arrow()


@SLOW_ON_DELTA
def test_a_delete_of_a_missing_key_moves_the_offsets(replica: Callable[..., Replica]) -> None:
    """Nothing is there to delete, in a table without rows and in one with rows."""
    writer = replica()
    writer.write(deletes=[(7,)])
    writer.write((1, "a"))
    writer.write(deletes=[(7,)])
    writer.check()
    assert writer.table.read_offsets().offsets.next_offset("g", TopicPartition("t", 0)) == 3


@SLOW_ON_DELTA
def test_a_batch_applied_twice_leaves_the_table_as_it_is(replica: Callable[..., Replica]) -> None:
    """A replayed insert does not double its row."""
    writer = replica()
    for _ in range(2):
        writer.write((1, "a"), (2, "b"), deletes=[(3,)])
        writer.check()


def test_one_data_file_and_one_vector_file_a_batch(replica: Callable[..., Replica], warehouse: Path) -> None:
    """Several touched data files share a file of deletion vectors; dead rows touch none."""
    writer = replica()
    for n in range(3):
        writer.write((n, "a"), (9, f"{n}"))
    before = list_files(warehouse, writer.table.name)
    writer.write((0, "b"), (1, "b"), (2, "b"))
    added = list_files(warehouse, writer.table.name) - before
    assert sorted(name.rpartition(".")[2] for name in added) in (["parquet", "puffin"], ["bin", "parquet"])
    writer.check()


def test_vectors_that_take_too_much_memory_are_written_by_parts(
    replica: Callable[..., Replica], warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part has a file of its own; a later try deletes those of the one before."""
    for module in (row_delta, deletion_vectors):
        monkeypatch.setattr(module, "VECTOR_WINDOW_BYTES", 0)
    mine, theirs = replica(), replica(partition=1)
    for n in range(3):
        mine.write((n, "a"), (10 + n, "old"))
    before = list_files(warehouse, mine.table.name)
    staged = mine.stage((0, "b"), (1, "b"), (2, "b"))
    theirs.write((20, "x"))
    interrupt_commit(monkeypatch, staged, lambda: theirs.write((21, "y")))
    with pytest.raises(CommitConflictError):
        mine.commit(staged)
    mine.commit(staged)
    added = list_files(warehouse, mine.table.name) - before
    assert len([name for name in added if not name.endswith(".parquet")]) == 3
    mine.write((0, "c"), (1, "c"), (10, "new"), deletes=[(2,)])  # merged with the vectors of three files
    mine.rows |= theirs.rows
    mine.check()


def list_files(warehouse: Path, table: str) -> set[str]:
    found = (warehouse / table.replace(".", "/")).rglob("*")
    kinds = (".parquet", ".puffin", ".bin")
    return {f.name for f in found if f.name.endswith(kinds) and "_delta_log" not in f.parts}


def test_a_data_file_is_read_once_and_only_if_it_may_have_a_key(
    replica: Callable[..., Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its keys are kept for the next flush, and its bounds rule it out for others."""
    loaded: list[str] = []
    load = key_lookup.load_keys

    def load_and_note(source: Any, *arguments: Any) -> Any:
        loaded.append(str(source))
        return load(source, *arguments)

    monkeypatch.setattr(key_lookup, "load_keys", load_and_note)
    writer = replica()
    writer.write((1, "a"), (3, "c"))
    writer.write((10, "k"), (30, "m"))
    assert loaded == []
    writer.write((2, "b"), deletes=[(40,)])
    assert len(loaded) == 1  # of the first file alone
    for name in ("x", "y"):
        writer.write((3, name), (30, name), (50, name))
    writer.check()
    # the first two files, and of each later flush's at most the one before
    assert len(loaded) == len({*loaded}) <= 5
    compact(writer.lake, writer.table.name)
    writer.write((1, "z"), deletes=[(30,)])
    writer.check()


@pytest.mark.parametrize("formats", ["delta_arrow"], indirect=True)
def test_a_deletion_vector_is_read_once_and_only_if_another_program_wrote_it(
    replica: Callable[..., Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer's own are kept as they are written; those of another process are read at the first flush."""
    loaded: list[str] = []
    load = DeltaOldRows._read_vector

    def load_and_note(old_rows: DeltaOldRows, add: dict[str, Any]) -> Any:
        loaded.append(add["path"])
        return load(old_rows, add)

    monkeypatch.setattr(DeltaOldRows, "_read_vector", load_and_note)
    writer = replica()
    for row in range(3):
        writer.write(*((row * 10 + n, "old") for n in range(4)))
    for name in ("a", "b", "c"):
        writer.write((0, name), (10, name), (20, name))
    assert loaded == []
    writer.check()
    writer.lake.spark.sql(f"DELETE FROM {writer.table.name} WHERE id IN (1, 11)")  # noqa: S608
    del writer.rows[1,], writer.rows[11,]
    for name in ("x", "y"):
        writer.write((2, name), (12, name), (22, name))
        assert len(loaded) == len({*loaded}) == 2
    writer.check()


def test_a_lost_race_uses_the_positions_again(replica: Callable[..., Replica]) -> None:
    """A writer of another partition commits between staging and commit; so does one by hand."""
    mine, theirs = replica(), replica(partition=1)
    mine.write((1, "a"), (2, "b"))
    staged = mine.stage((1, "A"), (5, "e"))
    theirs.write((10, "x"), (11, "y"))
    theirs.write((10, "X"))
    mine.commit(staged)
    mine.rows |= theirs.rows
    mine.check()


def test_another_writer_inside_the_commit_is_a_conflict(
    replica: Callable[..., Replica], monkeypatch: pytest.MonkeyPatch, warehouse: Path
) -> None:
    """The next try, with the same data file, is exact, and deletes the vectors of the refused one."""
    mine, theirs = replica(), replica(partition=1)
    mine.write((1, "a"), (2, "b"))
    theirs.write((10, "x"))
    staged = mine.stage((1, "A"), deletes=[(2,)])
    interrupt_commit(monkeypatch, staged, lambda: theirs.write((10, "X")))
    with pytest.raises(CommitConflictError):
        mine.commit(staged)
    mine.commit(staged)
    mine.rows |= theirs.rows
    mine.check()
    vectors = [n for n in list_files(warehouse, mine.table.name) if not n.endswith(".parquet")]
    assert len(vectors) == 2  # one of each writer


def test_a_compaction_before_the_commit(replica: Callable[..., Replica]) -> None:
    """The data file of a staged position is gone: its rows are found in the new one."""
    writer = replica()
    writer.write((1, "a"), (2, "b"))
    writer.write((2, "B"), (3, "c"))
    staged = writer.stage((1, "A"), deletes=[(3,)])
    compact(writer.lake, writer.table.name)
    writer.commit(staged)
    writer.check()


def test_a_compaction_inside_the_commit(
    replica: Callable[..., Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vector for a data file that is gone is refused; the next try is exact."""
    writer = replica()
    writer.write((1, "a"), (2, "b"))
    writer.write((2, "B"), (3, "c"))
    staged = writer.stage((1, "A"), deletes=[(3,)])
    interrupt_commit(monkeypatch, staged, lambda: compact(writer.lake, writer.table.name))
    with pytest.raises(CommitConflictError):
        writer.commit(staged)
    writer.commit(staged)
    writer.check()


@SLOW_ON_DELTA
def test_a_compaction_ends_beside_a_writer_that_never_pauses(replica: Callable[..., Replica]) -> None:
    """It loses some races and then holds the writer up: every change is there, and nothing of the hold."""
    writer = replica()
    for n in range(6):  # Iceberg rewrites five small files and more
        writer.write(*((key, f"{n}") for key in range(n, 40)))
    ended, failed = Event(), list[BaseException]()

    def write_until_ended() -> None:
        try:
            while not ended.is_set():
                writer.commit_fenced(writer.stage(*((key, f"{next(_ATTEMPTS)}") for key in range(40))))
        except BaseException as error:  # noqa: BLE001 - looked at below
            failed.append(error)

    writing = Thread(target=write_until_ended)
    writing.start()
    try:
        done = compact_table(create_maintenance(writer.lake), writer.table.name, None, BACKOFF)
    finally:
        ended.set()
        writing.join()
    assert (failed, done.old_files > 0) == ([], True)
    assert writer.table.read_property(HOLD_PROPERTY) is None
    writer.check()


@SLOW_ON_DELTA
def test_a_hold_that_was_left_behind_is_removed_by_the_next_commit(replica: Callable[..., Replica]) -> None:
    """Its compaction was killed: each batch would wait again."""
    writer = replica()
    writer.write((1, "a"))
    maintenance = create_maintenance(writer.lake)
    maintenance.set_hold(writer.table.name, 0.1)
    writer.table.read_offsets()
    assert parse_hold(writer.table.read_property(HOLD_PROPERTY)) == 0.1
    writer.commit_fenced(writer.stage((1, "b")))
    assert writer.table.read_property(HOLD_PROPERTY) is None
    writer.check()


def interrupt_commit(monkeypatch: pytest.MonkeyPatch, staged: Any, action: Callable[[], None]) -> None:
    """Act once after the positions of a commit are settled, before it lands."""
    rows = type(staged.old_rows)
    original, pending = rows._write_vectors, [action]

    def interrupted(self: Any, *arguments: Any) -> Any:
        written = original(self, *arguments)
        if self is staged.old_rows and pending:
            pending.pop()()
        return written

    monkeypatch.setattr(rows, "_write_vectors", interrupted)


@SLOW_ON_DELTA
def test_two_changes_of_a_key_from_two_partitions_leave_one_row(replica: Callable[..., Replica]) -> None:
    """The rows of another writer that landed in between are looked up, too."""
    mine, theirs = replica(), replica(partition=1)
    staged = mine.stage((1, "mine"))
    theirs.write((1, "theirs"))
    mine.commit(staged)
    mine.check()


@SLOW_ON_DELTA
def test_a_column_added_between_staging_and_commit(replica: Callable[..., Replica]) -> None:
    """The staged rows have null in it."""
    writer = replica()
    writer.write((1, "a"), (2, "b"))
    staged = writer.stage((1, "A"))
    writer.lake.spark.sql(f"ALTER TABLE {writer.table.name} ADD COLUMNS (later STRING)")
    writer.commit(staged)
    assert writer.read() == [(1, "A", None), (2, "b", None)]


def test_compound_keys_of_many_types(replica: Callable[..., Replica]) -> None:
    """Only rows equal in every key column are replaced."""
    schema = pa.schema(
        [("region", pa.string()), ("n", pa.decimal128(9, 2)), ("at", pa.date32()), ("v", pa.int32())]
    )
    writer = replica(schema, ("region", "n", "at"))
    day = pa.scalar(20_000, pa.date32()).as_py()
    one, two = Decimal("1.00"), Decimal("2.00")
    writer.write(("eu", one, day, 1), ("eu", two, day, 2), ("us", one, day, 3))
    writer.write(("eu", one, day, 10), deletes=[("us", one, day), ("us", two, day)])
    writer.check()


@SLOW_ON_DELTA
def test_string_keys(replica: Callable[..., Replica]) -> None:
    """The empty string is a key like any other."""
    writer = replica(SCHEMA, ("name",))
    writer.write((1, ""), (2, "b"), (3, "ü"))
    writer.write((4, ""), (5, "ü"), deletes=[("b",)])
    writer.check()


@pytest.mark.parametrize("formats", ["iceberg", "delta"], indirect=True)
def test_the_old_row_may_lie_in_another_partition(replica: Callable[..., Replica]) -> None:
    """The table is partitioned by a column that changes; Spark writes the files."""
    writer = replica(by="name")
    writer.write((1, "a"), (2, "a"), (3, "b"))
    writer.write((1, "b"), (4, "c"), deletes=[(3,)])
    writer.check()


@slow_on_delta("iceberg", "delta", "formats")
def test_one_data_file_and_one_vector_file_a_partition_of_the_table(
    replica: Callable[..., Replica], warehouse: Path
) -> None:
    """At most: a file of deletion vectors may serve several partitions of the table."""
    writer = replica(by="name")
    for n in range(3):
        writer.write((n, "a"), (10 + n, "b"))
    before = list_files(warehouse, writer.table.name)
    writer.write((0, "a"), (1, "a"), (11, "b"), (12, "b"), (20, "b"), deletes=[(2,)])
    added = list_files(warehouse, writer.table.name) - before
    data_files = [name for name in added if name.endswith(".parquet")]
    assert (len(data_files), len(added) - len(data_files)) in ((2, 1), (2, 2))
    writer.check()


@slow_on_delta("iceberg", "delta", "formats")
@pytest.mark.parametrize("key", [("id", "name"), ("name",)], ids="-".join)
def test_a_key_column_may_be_a_partition_column(replica: Callable[..., Replica], key: Sequence[str]) -> None:
    """Whether the data files have it, too, or only the paths and Delta's log."""
    writer = replica(key=key, by="name")
    writer.write((1, "a"), (2, "b"), (3, "ü"))
    writer.write((1, "a"), (4, "c"), deletes=[writer.key_of((3, "ü"))])
    writer.check()
    writer.write((5, "a") if key == ("name",) else (1, "a"), deletes=[writer.key_of((2, "b"))])
    writer.check()


@pytest.mark.parametrize("formats", ["delta"], indirect=True)
@pytest.mark.parametrize("key", [("id", "name"), ("name",)], ids="-".join)
def test_data_files_may_lack_a_key_column_that_is_a_partition_column(
    formats: SparkLake, namespace: str, warehouse: Path, key: Sequence[str]
) -> None:
    """The protocol lets them, and delta-rs writes such files; Spark's have it."""
    name, rows = f"{namespace}.t", [(1, "a"), (2, "b"), (3, "ü")]
    old = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)
    write_deltalake(warehouse / namespace / "t", old, partition_by=["name"])
    table = formats.open_table(name)
    assert table is not None
    formats.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    writer = Replica(formats, table, key_columns=tuple(key))
    writer.rows = {writer.key_of(row): row for row in rows}
    writer.write((1, "a"), (4, "c"), deletes=[writer.key_of((3, "ü"))])
    writer.check()


def test_rows_of_before_the_key_column_have_no_key(replica: Callable[..., Replica]) -> None:
    """Null is no key: they stay beside all others, whatever is changed."""
    before = replica()
    before.write((1, "a"), (2, "b"))
    before.lake.spark.sql(f"ALTER TABLE {before.table.name} ADD COLUMNS (code STRING)")
    table = before.lake.open_table(before.table.name)
    assert table is not None
    writer = Replica(before.lake, table, SCHEMA.append(pa.field("code", pa.string())), ("id", "code"), 1)
    writer.write((1, "A", "x"), (2, "B", ""))
    writer.write((1, "C", "x"), deletes=[(2, "")])
    assert writer.read() == [(1, "C", "x"), (1, "a", None), (2, "b", None)]


@pytest.mark.parametrize("formats", ["iceberg_arrow"], indirect=True)
def test_a_data_file_that_lacks_values_of_the_key_column_is_refused(replica: Callable[..., Replica]) -> None:
    """Its rows have the column's default: taken for rows without a key, they would stay beside new ones."""
    before = replica()
    before.write((1, "a"), (2, "b"))
    java_table: Any = before.table.java_table  # type: ignore[attr-defined]
    iceberg = py4j_gateway(before.lake.spark).jvm.org.apache.iceberg
    text, default = iceberg.types.Types.StringType.get(), iceberg.expressions.Expressions.lit("x")
    java_table.updateSchema().addColumn("code", text, default).commit()
    assert before.read() == [(1, "a", "x"), (2, "b", "x")]
    table = before.lake.open_table(before.table.name)
    assert table is not None
    writer = Replica(before.lake, table, SCHEMA.append(pa.field("code", pa.string())), ("id", "code"), 1)
    writer.rows = {(1, "x"): (1, "a", "x"), (2, "x"): (2, "b", "x")}
    with pytest.raises(TableSchemaMismatchError, match="lacks the key column code, whose values come from"):
        writer.table.stage_rows(writer.changes([(1, "A", "x")]), "a")
    compact(writer.lake, writer.table.name)
    writer.write((1, "A", "x"))
    writer.check()


@pytest.mark.parametrize("formats", ["iceberg"], indirect=True)
def test_an_imported_data_file_without_a_partition_column_of_the_key_is_refused(
    replica: Callable[..., Replica], tmp_path: Path
) -> None:
    """Files of Hive have the values of these columns in their paths alone; a rewrite adds them."""
    writer = replica(key=("id", "name"), by="name")
    (tmp_path / "name=a").mkdir()
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "name=a" / "0.parquet")
    catalog, table = writer.lake.catalog_name, writer.table.name  # type: ignore[attr-defined]
    source = f"`parquet`.`{tmp_path}`"
    writer.lake.spark.sql(f"CALL {catalog}.system.add_files(table => '{table}', source_table => '{source}')")
    assert writer.read() == [(1, "a"), (2, "a")]
    with pytest.raises(TableSchemaMismatchError, match="lacks the key column name, whose values come from"):
        writer.table.stage_rows(writer.changes([(1, "a")]), "a")
    compact(writer.lake, table)
    writer.rows = {(n, "a"): (n, "a") for n in (1, 2)}
    writer.write((1, "a"), deletes=[(2, "a")])
    writer.check()


@pytest.mark.parametrize("formats", ["delta_arrow"], indirect=True)
def test_a_table_without_checksum_files_gets_its_old_rows_replaced(
    replica: Callable[..., Replica], warehouse: Path
) -> None:
    """As after writers that write none: the list of data files then comes from the log."""
    writer = replica()
    writer.write((1, "a"), (2, "b"))
    writer.write((1, "c"), (3, "d"))
    for file in warehouse.joinpath(*writer.table.name.split("."), "_delta_log").glob("*.crc"):
        file.unlink()
    py4j_gateway(writer.lake.spark).jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    table = writer.lake.open_table(writer.table.name)
    assert table is not None
    writer.table = table
    assert not table._log.unsafeVolatileSnapshot().checksumOpt().isDefined()  # type: ignore[attr-defined]
    writer.write((1, "e"), (4, "f"), deletes=[(2,)])
    writer.check()


@SLOW_ON_DELTA
def test_an_attempt_is_in_the_history(replica: Callable[..., Replica]) -> None:
    """The outcome of an unanswered commit can be looked up."""
    writer = replica()
    writer.write((1, "a"))
    staged = writer.stage((1, "b"))
    assert not writer.table.has_committed(staged.attempt)
    writer.commit(staged)
    assert writer.table.has_committed(staged.attempt)


@SLOW_ON_DELTA
def test_a_missing_or_null_key_is_named(replica: Callable[..., Replica]) -> None:
    """Nothing is written without a key."""
    writer = replica()
    lost = pa.table({"nokey": [1]})
    with pytest.raises(TableSchemaMismatchError, match="key column nokey is missing"):
        writer.table.stage_rows(KeyedChanges(lost, lost, ("nokey",)), "a")
    with pytest.raises(TableSchemaMismatchError, match="key column id is null in 1 changes"):
        writer.table.stage_rows(writer.changes([(None, "x")]), "a")


def test_a_table_without_deletion_vectors_is_refused(formats: SparkLake, namespace: str) -> None:
    """The error says how to enable them."""
    table = formats.create_table(f"{namespace}.plain", SCHEMA.empty_table())
    changes = Replica(formats, table).changes([(1, "a")])
    with pytest.raises(TableSchemaMismatchError, match=r"ALTER TABLE \S+ SET TBLPROPERTIES"):
        table.stage_rows(changes, "a")
