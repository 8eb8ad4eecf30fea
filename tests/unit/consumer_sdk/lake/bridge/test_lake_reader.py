"""A bridge read: which records of the topic are added to which version of the table."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.errors import LakeUnavailableError, OffsetRegressionError, OffsetsExpiredError
from trimtab.consumer_sdk.lake.bridge import arrow_rows, lake_reader
from trimtab.consumer_sdk.lake.bridge.lake_reader import LakeReader
from trimtab.consumer_sdk.lake.bridge.table_snapshot import TableSnapshot
from trimtab.consumer_sdk.lake.decoding.decoded_records import BatchTooLargeError
from trimtab.consumer_sdk.lake.offsets.offset_gaps import OffsetGap
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets
from trimtab.consumer_sdk.lake.projection.projection import ProjectedRows
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_SCHEMA

P, Q = TopicPartition("orders", 0), TopicPartition("orders", 1)
CONFIG = {
    "bootstrap.servers": "localhost:9092",
    "group.id": "g",
    "lake.warehouse": "/data/lake",
    "topics": ["orders"],
}


def records(where: TopicPartition, offsets: Iterable[int]) -> Any:
    return pa.Table.from_pylist(
        [{"topic": where.topic, "partition": where.partition, "offset": n} for n in offsets], RECORD_SCHEMA
    )


@dataclass
class FakeTable:
    """A table whose rows are all records below its offsets; None: it does not exist."""

    offsets: dict[TopicPartition, int] | None
    version: int = 1
    deleted: set[int] = field(default_factory=set)

    def commit(self, offsets: dict[TopicPartition, int]) -> None:
        self.offsets = {**(self.offsets or {}), **offsets}
        self.version += 1

    def read_snapshot(
        self,
        group: str,
        partitions: Sequence[TopicPartition],
        *,
        newest: bool = False,  # noqa: ARG002 - the interface
    ) -> TableSnapshot:
        assert {P} <= set(partitions)
        if self.offsets is None:
            return TableSnapshot()
        offsets, version = dict(self.offsets), self.version
        rows = pa.concat_tables([records(p, range(n)) for p, n in offsets.items()])

        def scan() -> Any:
            if version in self.deleted:
                raise LakeUnavailableError("a file is gone")
            return rows

        return TableSnapshot(version, CommittedOffsets({group: offsets}), scan)

    def to_frame(self, frame: Any) -> Any:
        return frame

    def join_rows(self, rows: Any, behind: Any) -> Any:
        return arrow_rows.join_rows("lake.orders", rows, behind)

    def close(self) -> None:
        pass


@dataclass
class FakeTail:
    """A topic with records from `starts` to before `ends`; `on_read` is called once before a fetch."""

    ends: dict[TopicPartition, int]
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    on_read: Callable[[], None] = lambda: None
    on_group: Callable[[], None] = lambda: None
    closed: bool = False

    def list_partitions(self, topics: Sequence[str], is_wanted: Callable[[str], bool]) -> list[Any]:
        return sorted(p for p in self.ends if p.topic in topics and is_wanted(p.topic))

    def read_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {p: self.ends[p] for p in partitions}

    def read_group_starts(self, partitions: Iterable[TopicPartition], reset: str) -> dict[Any, int]:
        assert reset == "earliest"
        found = {p: self.starts.get(p, 0) for p in partitions}
        self.on_group()
        return found

    def read_records(self, ranges: Mapping[TopicPartition, OffsetGap]) -> Any:
        self.on_read, hook = (lambda: None), self.on_read
        hook()
        for where, (first, end) in ranges.items():
            if first < min(end, self.starts.get(where, 0)):
                raise OffsetsExpiredError(f"{where}: {first}")
        return pa.concat_tables([records(p, range(*offsets)) for p, offsets in ranges.items()])

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def open_reader(monkeypatch: pytest.MonkeyPatch) -> Callable[..., LakeReader]:
    def make(table: Any, tail: Any, name: str = "lake.orders", **more: Any) -> LakeReader:
        monkeypatch.setattr(lake_reader, "open_table_reader", lambda *_: table)
        monkeypatch.setattr(lake_reader, "TopicTail", lambda _settings: tail)
        return LakeReader(name, CONFIG | more)

    return make


def offsets_of(rows: Any) -> dict[TopicPartition, list[int]]:
    found: dict[TopicPartition, list[int]] = {}
    for row in rows.to_arrow().to_pylist():
        found.setdefault(TopicPartition(row["topic"], row["partition"]), []).append(row["offset"])
    return found


Open = Callable[..., LakeReader]


def test_the_records_behind_the_table_are_added(open_reader: Open) -> None:
    """Of every partition, also of one that the table does not know; each once."""
    tail = FakeTail({P: 10, Q: 3})
    with open_reader(FakeTable({P: 7}), tail) as reader:
        rows = reader.read()
    assert offsets_of(rows) == {P: list(range(10)), Q: [0, 1, 2]}
    assert (rows.table_version, rows.topic_ranges) == (1, {P: OffsetGap(7, 10), Q: OffsetGap(0, 3)})
    assert tail.closed


def test_a_commit_during_the_read_changes_nothing(open_reader: Open) -> None:
    """Offsets and rows are those of one version."""
    table = FakeTable({P: 7})
    tail = FakeTail({P: 10}, on_read=lambda: table.commit({P: 9}))
    reader = open_reader(table, tail)
    assert offsets_of(reader.read()) == {P: list(range(10))}
    assert offsets_of(reader.read()) == {P: list(range(10))}


def test_a_table_without_a_commit_is_its_topic(open_reader: Open) -> None:
    """Before the first flush all rows come from the topic; without records there are only columns."""
    assert offsets_of(open_reader(FakeTable(None), FakeTail({P: 4})).read()) == {P: [0, 1, 2, 3]}
    empty = open_reader(FakeTable(None), FakeTail({P: 0})).read().to_arrow()
    assert (empty.num_rows, empty.schema) == (0, RECORD_SCHEMA)


def test_a_partition_that_is_committed_first_during_the_read_starts_there(open_reader: Open) -> None:
    """The group's offset in Kafka follows the table's: taken with an older version, records would miss."""
    table = FakeTable({P: 7})
    tail = FakeTail({P: 10, Q: 6}, starts={Q: 0}, on_group=lambda: table.commit({Q: 5}))
    rows = open_reader(table, tail).read()
    assert offsets_of(rows) == {P: list(range(10)), Q: list(range(6))}
    assert rows.topic_ranges[Q] == OffsetGap(5, 6)


def test_records_that_expire_after_the_table_has_them_are_read_from_it(open_reader: Open) -> None:
    """Retention deletes what the sink has just written."""
    table = FakeTable({P: 7})

    def flush_and_expire() -> None:
        table.commit({P: 9})
        tail.starts[P] = 9

    tail = FakeTail({P: 10}, on_read=flush_and_expire)
    assert offsets_of(open_reader(table, tail).read()) == {P: list(range(10))}


def test_records_that_expired_before_the_table_has_them_are_an_error(open_reader: Open) -> None:
    """They are missing from both; a read never leaves them out silently."""
    with pytest.raises(OffsetsExpiredError, match="orders-0: 7"):
        open_reader(FakeTable({P: 7}), FakeTail({P: 10}, starts={P: 8})).read()


def test_a_version_whose_files_were_deleted_is_replaced_by_the_newest(open_reader: Open) -> None:
    """If there is no newer one, the error is raised."""
    table = FakeTable({P: 7}, deleted={1})
    reader = open_reader(table, FakeTail({P: 10}, on_read=lambda: table.commit({P: 8})))
    assert offsets_of(reader.read()) == {P: list(range(10))}
    table.deleted.add(table.version)
    with pytest.raises(LakeUnavailableError, match="gone"):
        reader.read()


def test_a_table_that_is_never_at_rest_ends_the_read(open_reader: Open) -> None:
    """Versions that are deleted while they are read would be read for ever."""
    table = FakeTable({P: 7}, deleted={*range(1000)})
    tail = FakeTail({P: 10})

    def commit_again() -> None:
        table.commit({P: 8})
        tail.on_read = commit_again

    tail.on_read = commit_again
    with pytest.raises(LakeUnavailableError, match=r"20 versions were replaced.*a file is gone.*retention"):
        open_reader(table, tail).read()


def test_a_recreated_topic_is_an_error(open_reader: Open) -> None:
    """Its log ends below the table's offset: rows and records are of two topics."""
    with pytest.raises(OffsetRegressionError, match=r"orders-0: the log ends at offset 3.* below 7"):
        open_reader(FakeTable({P: 7}), FakeTail({P: 3})).read()


@pytest.mark.parametrize(
    ("name", "text"),
    [("lake.orders_dead_letter", "trimtab dead-letter list"), ("lake.refunds", "not the table of a topic")],
)
def test_side_tables_are_refused(
    open_reader: Open, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    """They have no offsets of records that a transform did not put there."""
    monkeypatch.setattr(lake_reader, "list_local_tables", lambda _session: ["lake.refunds"])
    with pytest.raises(SettingError, match=text):
        open_reader(FakeTable({}), FakeTail({P: 3}), name)


@pytest.mark.parametrize("topics", [["orders"], ["^ord.*"]])
def test_a_table_that_does_not_exist_is_told_with_those_that_do(
    open_reader: Open, monkeypatch: pytest.MonkeyPatch, topics: list[str]
) -> None:
    """A misspelled one is not taken for a side table."""
    tables = ["lake.clicks", "lake.orders", "lake.orders_dead_letter"]
    monkeypatch.setattr(lake_reader, "list_local_tables", lambda _session: tables)
    expected = (
        r"no table 'lake.oders' in /data/lake .*; did you mean 'lake.orders'\?; "
        "there are: lake.clicks, lake.orders$"
    )
    with pytest.raises(SettingError, match=expected):
        open_reader(FakeTable({}), FakeTail({P: 3}), "lake.oders", topics=topics).read()


def test_a_table_that_no_topic_of_a_pattern_has_is_refused(
    open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be a side table: its rows alone would look whole."""
    monkeypatch.setattr(lake_reader, "list_local_tables", lambda _session: ["lake.refunds"])
    reader = open_reader(FakeTable({}), FakeTail({P: 3}), "lake.refunds", topics=["^ord.*"])
    with pytest.raises(SettingError, match=r"lake.refunds is not the table of a topic on the brokers"):
        reader.read()


def test_topics_of_a_shared_table_are_read_together(open_reader: Open) -> None:
    """And topics of other tables are not."""
    clicks, views = TopicPartition("clicks", 0), TopicPartition("views", 0)
    shared = {"lake.tables": {"clicks": "lake.orders", "orders": "lake.orders"}}
    topics = {"topics": ["orders", "clicks", "views"]}
    tail = FakeTail({P: 3, clicks: 2, views: 5})
    rows = open_reader(FakeTable({P: 1}), tail, **shared, **topics).read()
    assert offsets_of(rows) == {P: [0, 1, 2], clicks: [0, 1]}


class NarrowProjections:
    """Projections that take at most four records at once."""

    def __init__(self, config: Any) -> None:
        del config

    def projection_for(self, *_: str) -> Any:
        return self

    def project_records(self, batch: Any, to_frame: Callable[[Any], Any]) -> ProjectedRows:
        if batch.num_rows > 4:
            raise BatchTooLargeError(4)
        return ProjectedRows(to_frame(batch))


def test_records_that_take_too_much_memory_are_read_in_parts(
    open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them are in the rows, in their order; changes, which no part has alone, are a named error."""
    monkeypatch.setattr(lake_reader, "TopicProjections", NarrowProjections)
    tail = FakeTail({P: 18})
    assert offsets_of(open_reader(FakeTable({P: 7}), tail).read()) == {P: list(range(18))}
    upserts = {"lake.write": "upsert", "lake.key": "id", "lake.decoder": "json", "lake.schema": "id BIGINT"}
    with pytest.raises(SettingError, match=r"table lake\.orders: the columns of the 11 records behind it"):
        open_reader(FakeTable({P: 7}), tail, **upserts).read()
