"""Delta only: the fence within a commit, the log of a local folder, names, columns."""

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.errors import (
    CommitConflictError,
    CommittedOffsetsLostError,
    LakeUnavailableError,
    TableSchemaMismatchError,
)
from trimtab.consumer_sdk.lake.formats.delta import log_stores
from trimtab.consumer_sdk.lake.formats.delta.offset_transactions import (
    TXN_RETENTION_PROPERTY,
    transaction_app_id,
)
from trimtab.consumer_sdk.lake.formats.delta.table import MAX_CREATION_REFUSALS, DeltaLake, DeltaTable
from trimtab.consumer_sdk.lake.model.interfaces import StagedFiles
from trimtab.consumer_sdk.lake.model.partition_spec import PartitionField
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_SCHEMA

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)
RACERS = 3
ROUNDS = 150
LONG = 120.0
pytestmark = pytest.mark.spark


@pytest.fixture
def frame(delta: DeltaLake) -> Callable[[int], Any]:
    def make(rows: int) -> Any:
        found = [
            {"topic": "t", "partition": 0, "offset": n, "timestamp": 86_400_000_000 * n} for n in range(rows)
        ]
        return delta.to_frame(pa.Table.from_pylist(found, schema=RECORD_SCHEMA))

    return make


@pytest.fixture
def table(delta: DeltaLake, frame: Callable[[int], Any], namespace: str) -> DeltaTable:
    return delta.create_table(f"{namespace}.t", frame(0))


@pytest.fixture
def racers() -> Iterator[list["Popen[str]"]]:
    started: list[Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def offsets_at(offset: int, where: TopicPartition = P) -> CommittedOffsets:
    return CommittedOffsets({"g": {where: offset}})


def interrupt(monkeypatch: pytest.MonkeyPatch, table: DeltaTable, meanwhile: Callable[[], Any]) -> None:
    """Run an action between the check of a table's next commit and the commit."""
    real = table._build_actions

    def late(*given: Any) -> Any:
        meanwhile()
        return real(*given)

    monkeypatch.setattr(table, "_build_actions", late)


def test_one_of_several_processes_gets_a_commits_name(tmp_path: Path, racers: list["Popen[str]"]) -> None:
    """Processes that write each version at the same moment: one wins, and its content stays."""
    board, log = tmp_path / "board", tmp_path / "log"
    board.write_bytes(bytes(RACERS))
    log.mkdir()
    program = str(Path(__file__).with_name("racer.py"))
    for number in range(RACERS):
        arguments = [log_stores.LOG_STORE_CLASS, f"file:{log}", str(ROUNDS), str(board), str(number)]
        racers.append(Popen([sys.executable, program, *arguments], stdout=PIPE, text=True))
    outputs = [process.communicate(timeout=LONG)[0] for process in racers]
    won = {turn: n for n, line in enumerate(outputs) for turn in map(int, line.strip("[]\n").split(", "))}
    assert sum(len(line.split(",")) for line in outputs) == ROUNDS
    held = {int(file.stem): file.read_text() for file in log.glob("*.json")}
    assert held == {turn: f"racer {number}\n" for turn, number in won.items()}
    assert len(list(log.iterdir())) == ROUNDS  # and no temporary files


def test_delta_uses_our_log_store(delta: DeltaLake, table: DeltaTable) -> None:
    """Delta writes the log of a local table with LinkLogStore."""
    store = table._log.store().getDelegate(table._log.logPath())
    assert store.logStoreImpl().getClass().getName() == log_stores.LOG_STORE_CLASS
    assert delta.spark.sparkContext.getConf().get(log_stores.LOG_STORE_SETTING) == log_stores.LOG_STORE_CLASS


def test_the_fence_holds_within_a_commit(
    delta: DeltaLake, table: DeltaTable, frame: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another commit of the partition, between our check and our commit, makes ours fail."""
    other = delta.open_table(table.name)
    assert other is not None
    staged = table.stage_rows(frame(2), "late")
    interrupt(
        monkeypatch, table, lambda: other.commit(StagedFiles("early"), offsets_at(5), other.read_offsets())
    )
    with pytest.raises(CommitConflictError):
        table.commit(staged, offsets_at(2), table.read_offsets())
    assert (table.read_offsets().offsets, table.read_totals()["rows"]) == (offsets_at(5), 0)
    assert [table.has_committed(attempt) for attempt in ("early", "late")] == [True, False]


def test_unrelated_commits_do_not_fail_a_commit(
    delta: DeltaLake, table: DeltaTable, frame: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another partition's commit and OPTIMIZE, between check and commit, leave all three in the table."""
    for n in (1, 2):
        table.commit(table.stage_rows(frame(1), f"a{n}"), offsets_at(n), table.read_offsets())
    other = delta.open_table(table.name)
    assert other is not None

    def meanwhile() -> None:
        other.commit(
            other.stage_rows(frame(3), "other"), CommittedOffsets({"g": {P: 2, Q: 9}}), other.read_offsets()
        )
        delta.spark.sql(f"OPTIMIZE {table.name}")

    interrupt(monkeypatch, table, meanwhile)
    table.commit(table.stage_rows(frame(4), "mine"), offsets_at(6), table.read_offsets())
    assert table.read_offsets().offsets == CommittedOffsets({"g": {P: 6, Q: 9}})
    assert table.read_totals()["rows"] == 9
    assert table.read_totals()["files"] == 2


def test_offsets_survive_checkpoint_and_log_cleanup(
    delta: DeltaLake, table: DeltaTable, frame: Callable[[int], Any], warehouse: Path
) -> None:
    """The commits are deleted, and a new process reads the offsets from the checkpoint."""
    held = CommittedOffsets({"g/x y,(é)": {P: 3, Q: 7}})
    table.commit(table.stage_rows(frame(1), "a"), held, table.read_offsets())
    table.commit(StagedFiles("b"), held, table.read_offsets())
    table._log.checkpoint()
    folder = warehouse.joinpath(*table.name.split("."), "_delta_log")
    for file in folder.glob("*.crc"):
        file.unlink()
    for version in (0, 1):
        folder.joinpath(f"{version:020}.json").unlink()
    table._delta.DeltaLog.clearCache()
    again = delta.open_table(table.name)
    assert again is not None
    assert again.read_offsets().offsets == held
    assert again.count_snapshots() == 1


def test_a_table_that_drops_idle_offsets_is_refused(delta: DeltaLake, table: DeltaTable) -> None:
    """The error has the statement that removes the property."""
    delta.spark.sql(
        f"ALTER TABLE {table.name} SET TBLPROPERTIES ('{TXN_RETENTION_PROPERTY}' = 'interval 1 day')"
    )
    with pytest.raises(CommittedOffsetsLostError, match="UNSET TBLPROPERTIES"):
        table.read_offsets()


def test_concurrent_creations_return_the_same_table(
    delta: DeltaLake, frame: Callable[[int], Any], namespace: str
) -> None:
    """One process creates the table, the other opens it."""
    made: list[DeltaTable] = []
    empty = frame(0)
    both = [
        threading.Thread(target=lambda: made.append(delta.create_table(f"{namespace}.new", empty)))
        for _ in range(2)
    ]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join(LONG)
    assert len(made) == 2
    assert len({table._update_snapshot().metadata().id() for table in made}) == 1
    assert [table.count_snapshots() for table in made] == [1, 1]


def test_a_table_in_creation_by_another_writer_is_retried(
    delta: DeltaLake, frame: Callable[[int], Any], namespace: str
) -> None:
    """Its folder exists before its first commit: a retryable error."""
    folder = Path(urlparse(delta.namespace_path(namespace)).path) / "begun"
    (folder / "_delta_log").mkdir(parents=True)
    with pytest.raises(LakeUnavailableError, match="another writer is creating it") as caught:
        delta.create_table(f"{namespace}.begun", frame(0))
    assert caught.value.retryable
    (folder / "_delta_log").rmdir()
    assert delta.create_table(f"{namespace}.begun", frame(0)).count_snapshots() == 1


def test_a_creation_that_was_given_up_is_begun_again(
    delta: DeltaLake, frame: Callable[[int], Any], namespace: str
) -> None:
    """A full disk or a kill leaves a log without a commit, which would refuse every writer for ever."""
    log_folder = Path(urlparse(delta.namespace_path(namespace)).path) / "left" / "_delta_log"
    (log_folder / log_stores.STAGED_COMMITS_FOLDER).mkdir(parents=True)
    (log_folder / ".00000000000000000000.json.6b0d.tmp").touch()
    for _ in range(MAX_CREATION_REFUSALS):
        with pytest.raises(LakeUnavailableError, match="another writer is creating it"):
            delta.create_table(f"{namespace}.left", frame(0))
    assert delta.create_table(f"{namespace}.left", frame(0)).count_snapshots() == 1


def test_a_folder_with_other_files_is_an_error(
    delta: DeltaLake, frame: Callable[[int], Any], namespace: str
) -> None:
    """Retrying does not help, so the error is not retryable."""
    folder = Path(urlparse(delta.namespace_path(namespace)).path) / "taken"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(TableSchemaMismatchError, match="cannot be created"):
        delta.create_table(f"{namespace}.taken", frame(0))


def test_a_time_partitions_by_a_generated_column(
    delta: DeltaLake, frame: Callable[[int], Any], namespace: str
) -> None:
    """day(timestamp) creates a date column; rows are stored in folders by day."""
    parts = (PartitionField("day", "timestamp"), PartitionField("identity", "topic"))
    table = delta.create_table(f"{namespace}.days", frame(0), parts)
    table.commit(table.stage_rows(frame(3), "a"), offsets_at(3), table.read_offsets())
    found = delta.spark.table(table.name).orderBy("offset").collect()
    assert [str(row.timestamp_day) for row in found] == ["1970-01-01", "1970-01-02", "1970-01-03"]
    assert table.read_totals()["files"] == 3


def test_unsupported_partitioning_and_names_are_setting_errors(
    delta: DeltaLake, frame: Callable[[int], Any], namespace: str
) -> None:
    """Buckets, and names of three parts."""
    with pytest.raises(SettingError, match=r"cannot partition by bucket\(4, topic\)"):
        delta.create_table(f"{namespace}.t", frame(0), (PartitionField("bucket", "topic", 4),))
    with pytest.raises(SettingError, match="two parts"):
        delta.open_table(f"{namespace}.x.t")


def test_rows_are_cast_to_the_tables_types(delta: DeltaLake, namespace: str) -> None:
    """Numbers widen, struct fields match by name, missing columns are null, a narrowing is an error."""
    spark = delta.spark
    wide = spark.sql("SELECT 1L AS a, named_struct('x', 1L, 'y', 'q', 'z', 1D) AS s, array(1L) AS n")
    table = delta.create_table(f"{namespace}.wide", wide)
    rows = spark.sql("SELECT named_struct('Y', 'v', 'x', 2) AS S, 7 AS A, array(3) AS n")
    table.commit(table.stage_rows(rows, "a"), offsets_at(1), table.read_offsets())
    (row,) = spark.table(table.name).collect()
    assert (row.a, tuple(row.s), row.n) == (7, (2, "v", None), [3])
    narrow = delta.create_table(f"{namespace}.narrow", spark.sql("SELECT 1 AS a"))
    with pytest.raises(TableSchemaMismatchError, match="a is bigint in the rows and int in the table"):
        narrow.stage_rows(spark.sql("SELECT 1L AS a"), "b")


def test_columns_are_added_and_types_widened_if_allowed(delta: DeltaLake, namespace: str) -> None:
    """Columns are added in structs, too; types are widened only if the table's property allows it."""
    spark = delta.spark
    old = spark.sql("SELECT 1 AS a, named_struct('x', 1) AS s")
    new = spark.sql("SELECT 2L AS a, named_struct('x', 2, 'y', 'q') AS s, 'n' AS b")
    table = delta.create_table(f"{namespace}.grows", old)
    table.evolve_schema(new)
    with pytest.raises(TableSchemaMismatchError, match="a is bigint in the rows and int in the table"):
        table.stage_rows(new, "a")
    widens = "('delta.enableTypeWidening' = 'true')"
    spark.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES {widens}")
    table.evolve_schema(new)
    table.commit(table.stage_rows(new, "b"), offsets_at(1), table.read_offsets())
    table.commit(table.stage_rows(old, "c"), offsets_at(2), table.read_offsets())
    found = spark.table(table.name).orderBy("a").collect()
    assert [(r.a, tuple(r.s), r.b) for r in found] == [(1, (1, None), None), (2, (2, "q"), "n")]


def test_a_table_changed_after_staging_is_an_error(
    delta: DeltaLake, table: DeltaTable, frame: Callable[[int], Any]
) -> None:
    """Staged files suit a table with a new column, not one with other partitions."""
    staged = table.stage_rows(frame(1), "a")
    delta.spark.sql(f"ALTER TABLE {table.name} ADD COLUMNS (more INT)")
    table.commit(staged, offsets_at(1), table.read_offsets())
    staged = table.stage_rows(frame(1), "b")
    made_anew = "CREATE OR REPLACE TABLE {0} USING delta PARTITIONED BY (topic) AS SELECT * FROM {0}"
    delta.spark.sql(made_anew.format(table.name))
    with pytest.raises(TableSchemaMismatchError, match="partitioning changed"):
        table.commit(staged, offsets_at(2), table.read_offsets())


def test_the_app_id_shows_group_topic_and_partition() -> None:
    """The app id of a `txn` action is readable."""
    assert transaction_app_id("lake", P) == "trimtab/lake/t/0"
