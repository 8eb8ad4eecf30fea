"""Verification of a table: each fault is reported, and nothing else."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Consumer

from trimtab.assignor.model import TopicPartition
from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.errors import CommittedOffsetsLostError
from trimtab.consumer_sdk.lake.offsets.offset_gaps import OffsetGap, merge_gaps
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets
from trimtab.consumer_sdk.lake.verify import topic_log
from trimtab.consumer_sdk.lake.verify.lake_verification import LakeVerification, TableKindRules
from trimtab.consumer_sdk.lake.verify.table_verification import (
    DEAD_LETTER_TABLE,
    DERIVED_TABLE,
    TOPIC_TABLE,
    PartitionRowStats,
    PartitionVerification,
    RangeSampler,
    TableKind,
    TableVerification,
    VerificationRequest,
    cluster_gaps,
    find_different_offsets,
    sample_everything,
    sample_windows,
    select_inside,
    subtract_gaps,
    verify_table,
)

P = TopicPartition("orders", 0)
SCHEMA = pa.schema([("offset", pa.int64()), ("timestamp", pa.int64()), ("key", pa.binary())])
END = 10


def records(offsets: Iterable[int]) -> pa.Table:
    rows = [{"offset": o, "timestamp": o * 1000, "key": b"k%d" % o} for o in offsets]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


@dataclass
class FakeTableRows:
    """Rows of one partition by offset; `letters` are the dead letters among them."""

    offsets: list[int]
    letters: frozenset[int] = frozenset()
    again: set[int] = field(default_factory=set)
    key: bytes | None = None

    def read_partition_stats(self) -> dict[TopicPartition, PartitionRowStats]:
        own = [o for o in self.offsets if o not in self.letters]
        if not self.offsets:
            return {}
        result = sorted(set(self.offsets))
        last = max(own, default=-1)
        return {P: PartitionRowStats(len(self.offsets), len(result), result[0], result[-1], last)}

    def find_holes(self, _: TopicPartition) -> list[OffsetGap]:
        result = sorted(set(self.offsets))
        return [OffsetGap(a + 1, b) for a, b in pairwise(result) if b > a + 1]

    def count_surplus(self, _: TopicPartition, copies: int) -> tuple[int, list[int]]:
        counts = {o: self.offsets.count(o) for o in self.offsets}
        more = {o: n - copies for o, n in counts.items() if n > copies}
        return sum(more.values()), sorted(more)

    def count_beyond(self, _: TopicPartition, offset: int) -> tuple[int, list[int]]:
        result = [o for o in self.offsets if o >= offset and o not in self.letters]
        return len(result), sorted(result)

    def read_rows(self, _: TopicPartition, ranges: Iterable[OffsetGap]) -> pa.Table:
        expected = [o for o in self.offsets if any(r.first <= o < r.next for r in ranges)]
        rows = records(expected).to_pylist()
        changed = rows if self.key is None else [row | {"key": self.key} for row in rows]
        return pa.Table.from_pylist(changed, schema=SCHEMA)

    def replayed_offsets(self, _: TopicPartition) -> set[int]:
        return self.again


@dataclass
class FakeTopicLog:
    """A log with these offsets."""

    offsets: list[int]
    begin: int = 0
    end: int = END
    reads: int = 0

    def read_bounds(self, _: TopicPartition) -> OffsetGap | None:
        return OffsetGap(self.begin, self.end)

    def read_records(self, _: TopicPartition, offsets: OffsetGap) -> pa.Table:
        self.reads += 1
        held = [o for o in self.offsets if o >= self.begin]
        return records(o for o in held if offsets.first <= o < offsets.next)


def verify(
    rows: FakeTableRows, log: FakeTopicLog | None, *, committed: int = END, **more: Any
) -> PartitionVerification:
    kind: TableKind = more.get("kind", TOPIC_TABLE)
    groups: tuple[str, ...] = more.get("groups", ("g",))
    gaps: list[OffsetGap] = more.get("gaps", [])
    offsets_of_table = CommittedOffsets({group: {P: committed} for group in groups})
    request = VerificationRequest("t", kind, rows, offsets_of_table, lambda: offsets_of_table, lambda _: gaps)
    (result,) = verify_table(request, log, more.get("sampler"), lambda *_: None).partitions
    return result


ALL = list(range(END))


def without(*missing: int) -> list[int]:
    return [o for o in ALL if o not in missing]


def test_sound_table_has_no_faults() -> None:
    """Every record once up to the committed offset has no faults, with any sampler."""
    for sampler in (None, sample_everything(3), sample_windows(2, 2, lambda n: n - 1)):
        result = verify(FakeTableRows(ALL), FakeTopicLog(ALL), sampler=sampler)
        assert (result.faults, result.unknown, result.rows) == ((), 0, END)


def test_duplicated_row() -> None:
    """A second row of an offset is duplicated, unless a second group wrote it."""
    assert verify(FakeTableRows([*ALL, 4]), FakeTopicLog(ALL)).duplicated == 1
    assert verify(FakeTableRows([*ALL, *ALL]), FakeTopicLog(ALL), groups=("g", "h")).faults == ()
    assert verify(FakeTableRows([*ALL, *ALL, 4]), FakeTopicLog(ALL), groups=("g", "h")).duplicated == 1


@pytest.mark.parametrize("missing", [1, 5, END - 1])
def test_missing_record(missing: int) -> None:
    """A missing record counts once, with and without the comparison of rows."""
    for sampler in (None, sample_everything(100)):
        result = verify(FakeTableRows(without(missing)), FakeTopicLog(ALL), sampler=sampler)
        assert (result.faults, result.missing, result.examples) == (("missing",), 1, {"missing": [missing]})


def test_hole_of_the_log_is_no_fault() -> None:
    """Holes by compaction or transaction markers and recorded gaps are no faults."""
    assert verify(FakeTableRows(without(3, 4)), FakeTopicLog(without(3, 4))).faults == ()
    result = verify(FakeTableRows(without(3, 4)), None, gaps=[OffsetGap(3, 5)])
    assert (result.faults, result.unknown, result.recorded_gaps) == ((), 0, 2)


@pytest.mark.parametrize("sampler", [None, sample_everything(3)])
def test_recorded_gaps_are_not_missing(sampler: RangeSampler | None) -> None:
    """Records skipped by auto.offset.reset=latest are gaps; other missing ones are faults."""
    result = verify(
        FakeTableRows(without(3, 4, 6)), FakeTopicLog(ALL), gaps=[OffsetGap(3, 5)], sampler=sampler
    )
    assert (result.examples, result.recorded_gaps) == ({"missing": [6]}, 2)


def test_deleted_records_are_unknown() -> None:
    """Holes below the log start are unknown; without a broker all holes are."""
    result = verify(FakeTableRows(without(3, 4, 7)), FakeTopicLog(ALL, begin=6))
    assert (result.unknown, result.missing) == (2, 1)
    assert verify(FakeTableRows(without(3)), None).unknown == 1


def test_partition_without_rows() -> None:
    """The record right below the committed offset must have a row."""
    assert verify(FakeTableRows([]), FakeTopicLog(ALL)).missing == 1


def test_dead_letters_and_replays_are_not_missing() -> None:
    """A dead letter counts as a row, even ahead of its table."""
    assert verify(FakeTableRows(ALL, letters=frozenset({3})), FakeTopicLog(ALL)).faults == ()
    ahead = FakeTableRows([*ALL, END + 3], letters=frozenset({END + 3}))
    assert verify(ahead, FakeTopicLog(range(END + 9), end=END + 9)).faults == ()
    assert verify(FakeTableRows(without(3), again={3}), FakeTopicLog(ALL)).faults == ()


def test_rows_beyond_committed_and_end() -> None:
    """Rows above the committed offset, and above the end of the log, are faults."""
    result = verify(FakeTableRows([*ALL, END]), FakeTopicLog(ALL, end=END))
    assert (result.faults, result.beyond_committed) == (("beyond_committed", "beyond_end"), 1)
    assert verify(FakeTableRows([*ALL, END]), FakeTopicLog(ALL, end=END + 5)).faults == ("beyond_committed",)


def test_derived_tables_and_dead_letters_may_lack_rows() -> None:
    """Dead letters are unique; derived tables may have several rows per record."""
    assert verify(FakeTableRows([3, 7]), FakeTopicLog(ALL), kind=DEAD_LETTER_TABLE).faults == ()
    assert verify(FakeTableRows([3, 3]), FakeTopicLog(ALL), kind=DEAD_LETTER_TABLE).duplicated == 1
    assert verify(FakeTableRows([3, 3, END + 1]), FakeTopicLog(ALL, end=99), kind=DERIVED_TABLE).faults == (
        "beyond_committed",
    )


def test_derived_tables_are_not_compared() -> None:
    """Timestamp and key are compared in topic tables and dead letters, not in derived tables."""
    for kind, faults in (
        (TOPIC_TABLE, ("different",)),
        (DEAD_LETTER_TABLE, ("different",)),
        (DERIVED_TABLE, ()),
    ):
        result = verify(
            FakeTableRows(ALL, key=b"cast"), FakeTopicLog(ALL), kind=kind, sampler=sample_everything(4)
        )
        assert (result.faults, result.compared) == (faults, 0 if kind is DERIVED_TABLE else END)


def test_different_timestamp_or_key() -> None:
    """Another timestamp, another key and a lost key are different; missing columns are not."""
    rows = records([1, 2, 3, 4]).to_pylist()
    rows[0]["timestamp"] += 1
    rows[1]["key"] = b"other"
    rows[2]["key"] = None
    assert find_different_offsets(pa.Table.from_pylist(rows, schema=SCHEMA), records(ALL)) == [1, 2, 3]
    assert find_different_offsets(records([1]).select(["offset"]), records(ALL)) == []


def test_times_after_the_year_9999() -> None:
    """Timestamps after the year 9999, where Python's end, are compared, too."""
    far = pa.timestamp("us", "UTC")
    expected = pa.table({"offset": [1, 2], "timestamp": pa.array([2**60, 2**60], far)})
    rows = pa.table({"offset": [1, 2], "timestamp": pa.array([2**60, 2**60 + 1], far)})
    assert find_different_offsets(rows, expected) == [2]


def test_sample_covers_the_end_of_the_log() -> None:
    """Windows lie inside the log, do not overlap, and cover its end."""
    (ranges,) = sample_windows(3, 10, lambda n: n - 1)(OffsetGap(100, 1000))
    assert ranges == (OffsetGap(989, 1000),)
    assert list(sample_windows(3, 10, lambda n: n - 1)(OffsetGap(5, 20))) == [(OffsetGap(5, 20),)]
    assert list(sample_everything(4)(OffsetGap(0, 6))) == [(OffsetGap(0, 4),), (OffsetGap(4, 6),)]


def test_near_holes_share_a_read() -> None:
    """One read looks up holes that lie near each other."""
    near = [OffsetGap(1, 2), OffsetGap(5, 6), OffsetGap(50, 51)]
    assert [len(group) for group in cluster_gaps(near, 10, 100)] == [2, 1]
    assert select_inside(np.array([0, 1, 2, 5, 50, 51]), near) == [1, 5, 50]
    assert select_inside(np.array([], dtype=np.int64), near) == []
    assert select_inside(np.array([1]), []) == []


def test_read_of_holes_is_limited() -> None:
    """Neither many near holes nor one long hole exceed the limit of a read."""
    many = [OffsetGap(n, n + 1) for n in range(0, 100, 2)]
    for gaps in (many, [OffsetGap(0, 95)], [OffsetGap(3, 25), OffsetGap(26, 27)]):
        result = list(cluster_gaps(gaps, 10, 20))
        assert all(group[-1].next - group[0].first <= 20 for group in result)
        assert merge_gaps(gap for group in result for gap in group) == merge_gaps(gaps)


def test_subtract_gaps() -> None:
    """Overlaps of any kind are removed."""
    assert subtract_gaps([OffsetGap(0, 10)], [OffsetGap(2, 4), OffsetGap(8, 12)]) == (
        OffsetGap(0, 2),
        OffsetGap(4, 8),
    )
    assert subtract_gaps([OffsetGap(0, 3), OffsetGap(5, 6)], [OffsetGap(0, 3)]) == (OffsetGap(5, 6),)


def test_kinds_of_tables() -> None:
    """Topic tables, dead letters and derived tables are told apart without loading the transform.

    A table of changes has no row for most records.
    """
    config = {"group.id": "g", "lake.warehouse": "x", "lake.tables": {"orders": "shop.orders"}}
    offsets_of_table = CommittedOffsets({"g": {P: 3}})
    upserts = {"lake.write": "upsert", "lake.key": "id", "lake.decoder": "avro"}
    keyed = TableKindRules.from_config(config | upserts | {"schema.registry.url": "http://localhost"})
    plain, shaped = (
        TableKindRules.from_config(config),
        TableKindRules.from_config(config | {"lake.transform": "nowhere:at_all"}),
    )
    assert plain.classify_table("shop.orders", offsets_of_table) is TOPIC_TABLE
    assert plain.classify_table("shop.even", offsets_of_table) is DERIVED_TABLE
    assert plain.classify_table("shop.orders_dead_letter", offsets_of_table) is DEAD_LETTER_TABLE
    assert shaped.classify_table("shop.orders", offsets_of_table) is DERIVED_TABLE
    assert keyed.classify_table("shop.orders", offsets_of_table) is DERIVED_TABLE


class LostLake:
    """A lake whose only table has lost its committed offsets."""

    def open_table(self, _: str) -> "LostLake":
        return self

    def read_offsets(self) -> None:
        raise CommittedOffsetsLostError("its snapshots have expired")


def test_lost_offsets_are_bad() -> None:
    """A table without readable offsets fails, with the reason as its note."""
    rules = TableKindRules.from_config({"group.id": "g", "lake.warehouse": "x"})
    lake: Any = LostLake()
    (result,) = LakeVerification(lake, rules, None, None, lambda *_: None).run(["lake.orders"])
    assert (result.is_bad(strict=False), result.notes) == (True, ("its snapshots have expired",))


def test_unknown_offsets_are_bad_if_strict() -> None:
    """Unknown offsets are bad with `strict` only, faults always."""

    def bad(part: PartitionVerification, *, strict: bool) -> bool:
        return TableVerification("t", "own", (part,)).is_bad(strict=strict)

    unknown, missing = PartitionVerification(*P, unknown=1), PartitionVerification(*P, missing=1)
    assert [bad(unknown, strict=strict) for strict in (False, True)] == [False, True]
    assert bad(missing, strict=False)
    assert not bad(PartitionVerification(*P), strict=True)


def test_reader_uses_the_connection_settings() -> None:
    """The reader takes the connection settings and no settings of the group."""
    connected = {
        "bootstrap.servers": "b:9093",
        "enable.ssl.certificate.verification": False,
        "broker.address.family": "v4",
        "socket.timeout.ms": 9000,
        "isolation.level": "read_uncommitted",
    }
    result = topic_log.build_reader_settings(connected | {"group.id": "g", "session.timeout.ms": 9000})
    assert result.items() >= connected.items()
    assert result["group.id"] != "g"
    assert "session.timeout.ms" not in result
    Consumer(result).close()  # librdkafka knows them all
    with pytest.raises(SettingError, match="give --against-broker no"):
        topic_log.build_reader_settings({})
