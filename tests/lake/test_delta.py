"""What is Delta's own: the fence inside a commit, the log of a local folder, names, columns."""

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
from trimtab.consumer_sdk.lake.formats.delta import link_log_store
from trimtab.consumer_sdk.lake.formats.delta.table import (
    TXN_RETENTION_PROPERTY,
    DeltaLake,
    DeltaTable,
    transaction_app_id,
)
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets
from trimtab.consumer_sdk.lake.ports import StagedFiles
from trimtab.consumer_sdk.lake.schema.partition_spec import PartitionField
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


def marks(offset: int, where: TopicPartition = P) -> CommittedOffsets:
    return CommittedOffsets({"g": {where: offset}})


def interrupt(monkeypatch: pytest.MonkeyPatch, table: DeltaTable, meanwhile: Callable[[], Any]) -> None:
    """Let something happen between the check of a table's next commit and the commit."""
    real = table._build_actions

    def late(*given: Any) -> Any:
        meanwhile()
        return real(*given)

    monkeypatch.setattr(table, "_build_actions", late)


def test_of_several_processes_one_gets_a_commits_name(tmp_path: Path, racers: list["Popen[str]"]) -> None:
    """Real processes write each version at the same moment: always one wins, and its text stays."""
    board, log = tmp_path / "board", tmp_path / "log"
    board.write_bytes(bytes(RACERS))
    log.mkdir()
    program = str(Path(__file__).with_name("racer.py"))
    for number in range(RACERS):
        arguments = [link_log_store.LOG_STORE_CLASS, str(log), str(ROUNDS), str(board), str(number)]
        racers.append(Popen([sys.executable, program, *arguments], stdout=PIPE, text=True))
    said = [process.communicate(timeout=LONG)[0] for process in racers]
    won = {turn: n for n, line in enumerate(said) for turn in map(int, line.strip("[]\n").split(", "))}
    assert sum(len(line.split(",")) for line in said) == ROUNDS
    held = {int(file.stem): file.read_text() for file in log.glob("*.json")}
    assert held == {turn: f"racer {number}\n" for turn, number in won.items()}
    assert len(list(log.iterdir())) == ROUNDS  # no draft stays behind


def test_our_log_store_is_in_place(delta: DeltaLake, table: DeltaTable) -> None:
    """Delta writes the log of a local table with our store."""
    store = table._log.store().getDelegate(table._log.logPath())
    assert store.logStoreImpl().getClass().getName() == link_log_store.LOG_STORE_CLASS
    assert (
        delta.spark.sparkContext.getConf().get(link_log_store.LOG_STORE_SETTING)
        == link_log_store.LOG_STORE_CLASS
    )


def test_the_fence_holds_inside_of_a_commit(
    delta: DeltaLake, table: DeltaTable, frame: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another commit of the partition, after the check and before ours, refuses ours."""
    other = delta.open_table(table.name)
    assert other is not None
    staged = table.stage_rows(frame(2), "late")
    interrupt(monkeypatch, table, lambda: other.commit(StagedFiles("early"), marks(5), other.read_offsets()))
    with pytest.raises(CommitConflictError):
        table.commit(staged, marks(2), table.read_offsets())
    assert (table.read_offsets().offsets, table.read_totals()["rows"]) == (marks(5), 0)
    assert [table.has_committed(attempt) for attempt in ("early", "late")] == [True, False]


def test_others_do_not_fail_a_commit_that_they_overtake(
    delta: DeltaLake, table: DeltaTable, frame: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another partition's commit and OPTIMIZE come between check and commit: all of it is in."""
    for n in (1, 2):
        table.commit(table.stage_rows(frame(1), f"a{n}"), marks(n), table.read_offsets())
    other = delta.open_table(table.name)
    assert other is not None

    def meanwhile() -> None:
        other.commit(
            other.stage_rows(frame(3), "other"), CommittedOffsets({"g": {P: 2, Q: 9}}), other.read_offsets()
        )
        delta.spark.sql(f"OPTIMIZE {table.name}")

    interrupt(monkeypatch, table, meanwhile)
    table.commit(table.stage_rows(frame(4), "mine"), marks(6), table.read_offsets())
    assert table.read_offsets().offsets == CommittedOffsets({"g": {P: 6, Q: 9}})
    assert table.read_totals()["rows"] == 9
    assert table.read_totals()["files"] == 2


def test_marks_outlive_checkpoint_and_log_cleanup(
    delta: DeltaLake, table: DeltaTable, frame: Callable[[int], Any], warehouse: Path
) -> None:
    """The commits are gone, and a new process finds the marks in the checkpoint."""
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


def test_a_table_that_forgets_marks_is_refused(delta: DeltaLake, table: DeltaTable) -> None:
    """Where Delta may drop the marks of idle partitions, the error says how to stop that."""
    delta.spark.sql(
        f"ALTER TABLE {table.name} SET TBLPROPERTIES ('{TXN_RETENTION_PROPERTY}' = 'interval 1 day')"
    )
    with pytest.raises(CommittedOffsetsLostError, match="UNSET TBLPROPERTIES"):
        table.read_offsets()


def test_two_that_make_a_table_at_once_get_the_same_one(
    delta: DeltaLake, frame: Callable[[int], Any], namespace: str
) -> None:
    """One makes it, the other finds it."""
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


def test_a_table_that_another_writer_is_making_is_waited_for(
    delta: DeltaLake, frame: Callable[[int], Any], namespace: str
) -> None:
    """Between its folder and its first commit it is no table yet, and that passes."""
    folder = Path(urlparse(delta.namespace_path(namespace)).path) / "begun"
    (folder / "_delta_log").mkdir(parents=True)
    with pytest.raises(LakeUnavailableError, match="another writer is creating it") as caught:
        delta.create_table(f"{namespace}.begun", frame(0))
    assert caught.value.retryable
    (folder / "_delta_log").rmdir()
    assert delta.create_table(f"{namespace}.begun", frame(0)).count_snapshots() == 1


def test_a_folder_that_is_somebody_elses_is_named(
    delta: DeltaLake, frame: Callable[[int], Any], namespace: str
) -> None:
    """What lies there is no table's, and waiting does not mend it."""
    folder = Path(urlparse(delta.namespace_path(namespace)).path) / "taken"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(TableSchemaMismatchError, match="cannot be created"):
        delta.create_table(f"{namespace}.taken", frame(0))


def test_a_time_is_partitioned_by_a_column_that_delta_fills(
    delta: DeltaLake, frame: Callable[[int], Any], namespace: str
) -> None:
    """day(timestamp) makes a date column; its rows lie in folders of their day."""
    parts = (PartitionField("day", "timestamp"), PartitionField("identity", "topic"))
    table = delta.create_table(f"{namespace}.days", frame(0), parts)
    table.commit(table.stage_rows(frame(3), "a"), marks(3), table.read_offsets())
    found = delta.spark.table(table.name).orderBy("offset").collect()
    assert [str(row.timestamp_day) for row in found] == ["1970-01-01", "1970-01-02", "1970-01-03"]
    assert table.read_totals()["files"] == 3


def test_what_delta_cannot_do_is_a_bad_setting(
    delta: DeltaLake, frame: Callable[[int], Any], namespace: str
) -> None:
    """Buckets, and names of three parts, are told in words."""
    with pytest.raises(SettingError, match=r"cannot partition by bucket\(4, topic\)"):
        delta.create_table(f"{namespace}.t", frame(0), (PartitionField("bucket", "topic", 4),))
    with pytest.raises(SettingError, match="two parts"):
        delta.open_table(f"{namespace}.x.t")


def test_rows_are_brought_into_the_tables_types(delta: DeltaLake, namespace: str) -> None:
    """Numbers widen, fields of structs go by name, what is missing is null, a narrowing is not."""
    spark = delta.spark
    wide = spark.sql("SELECT 1L AS a, named_struct('x', 1L, 'y', 'q', 'z', 1D) AS s, array(1L) AS n")
    table = delta.create_table(f"{namespace}.wide", wide)
    rows = spark.sql("SELECT named_struct('Y', 'v', 'x', 2) AS S, 7 AS A, array(3) AS n")
    table.commit(table.stage_rows(rows, "a"), marks(1), table.read_offsets())
    (row,) = spark.table(table.name).collect()
    assert (row.a, tuple(row.s), row.n) == (7, (2, "v", None), [3])
    narrow = delta.create_table(f"{namespace}.narrow", spark.sql("SELECT 1 AS a"))
    with pytest.raises(TableSchemaMismatchError, match="a is bigint in the rows and int in the table"):
        narrow.stage_rows(spark.sql("SELECT 1L AS a"), "b")


def test_new_columns_are_added_and_types_widened_where_allowed(delta: DeltaLake, namespace: str) -> None:
    """Columns are added in structs too; a type is widened only if the table's property says so."""
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
    table.commit(table.stage_rows(new, "b"), marks(1), table.read_offsets())
    table.commit(table.stage_rows(old, "c"), marks(2), table.read_offsets())
    found = spark.table(table.name).orderBy("a").collect()
    assert [(r.a, tuple(r.s), r.b) for r in found] == [(1, (1, None), None), (2, (2, "q"), "n")]


def test_a_table_that_became_another_one_meanwhile_is_named(
    delta: DeltaLake, table: DeltaTable, frame: Callable[[int], Any]
) -> None:
    """A new column does no harm to staged files; other partitions would."""
    staged = table.stage_rows(frame(1), "a")
    delta.spark.sql(f"ALTER TABLE {table.name} ADD COLUMNS (more INT)")
    table.commit(staged, marks(1), table.read_offsets())
    staged = table.stage_rows(frame(1), "b")
    made_anew = "CREATE OR REPLACE TABLE {0} USING delta PARTITIONED BY (topic) AS SELECT * FROM {0}"
    delta.spark.sql(made_anew.format(table.name))
    with pytest.raises(TableSchemaMismatchError, match="partitioning changed"):
        table.commit(staged, marks(2), table.read_offsets())


def test_the_name_of_a_mark_can_be_read() -> None:
    """A person sees group, topic and partition."""
    assert transaction_app_id("lake", P) == "trimtab/lake/t/0"
