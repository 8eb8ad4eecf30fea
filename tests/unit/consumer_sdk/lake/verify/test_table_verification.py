"""The judgement on a table: what is wrong is told, what is right is not."""

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
    """Rows of one partition, by their offsets; `letters` are those that are dead letters."""

    offsets: list[int]
    letters: frozenset[int] = frozenset()
    again: set[int] = field(default_factory=set)
    key: bytes | None = None

    def read_partition_stats(self) -> dict[TopicPartition, PartitionRowStats]:
        own = [o for o in self.offsets if o not in self.letters]
        if not self.offsets:
            return {}
        found = sorted(set(self.offsets))
        last = max(own, default=-1)
        return {P: PartitionRowStats(len(self.offsets), len(found), found[0], found[-1], last)}

    def find_holes(self, _: TopicPartition) -> list[OffsetGap]:
        found = sorted(set(self.offsets))
        return [OffsetGap(a + 1, b) for a, b in pairwise(found) if b > a + 1]

    def count_surplus(self, _: TopicPartition, copies: int) -> tuple[int, list[int]]:
        counts = {o: self.offsets.count(o) for o in self.offsets}
        more = {o: n - copies for o, n in counts.items() if n > copies}
        return sum(more.values()), sorted(more)

    def count_beyond(self, _: TopicPartition, offset: int) -> tuple[int, list[int]]:
        found = [o for o in self.offsets if o >= offset and o not in self.letters]
        return len(found), sorted(found)

    def read_rows(self, _: TopicPartition, ranges: Iterable[OffsetGap]) -> pa.Table:
        wanted = [o for o in self.offsets if any(r.first <= o < r.next for r in ranges)]
        rows = records(wanted).to_pylist()
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


def judged(
    rows: FakeTableRows, log: FakeTopicLog | None, *, mark: int = END, **more: Any
) -> PartitionVerification:
    kind: TableKind = more.get("kind", TOPIC_TABLE)
    groups: tuple[str, ...] = more.get("groups", ("g",))
    gaps: list[OffsetGap] = more.get("gaps", [])
    marks = CommittedOffsets({group: {P: mark} for group in groups})
    asked = VerificationRequest("t", kind, rows, marks, lambda: marks, lambda _: gaps)
    (found,) = verify_table(asked, log, more.get("lots"), lambda *_: None).partitions
    return found


ALL = list(range(END))


def but(*gone: int) -> list[int]:
    return [o for o in ALL if o not in gone]


def test_a_sound_table_is_good() -> None:
    """Every record once, up to the mark: nothing is told, whatever is compared."""
    for lots in (None, sample_everything(3), sample_windows(2, 2, lambda n: n - 1)):
        found = judged(FakeTableRows(ALL), FakeTopicLog(ALL), lots=lots)
        assert (found.faults, found.unknown, found.rows) == ((), 0, END)


def test_a_row_twice_is_told() -> None:
    """One too many, unless a second group brings its own."""
    assert judged(FakeTableRows([*ALL, 4]), FakeTopicLog(ALL)).duplicated == 1
    assert judged(FakeTableRows([*ALL, *ALL]), FakeTopicLog(ALL), groups=("g", "h")).faults == ()
    assert judged(FakeTableRows([*ALL, *ALL, 4]), FakeTopicLog(ALL), groups=("g", "h")).duplicated == 1


@pytest.mark.parametrize("gone", [1, 5, END - 1])
def test_a_record_without_a_row_is_missing(gone: int) -> None:
    """In the middle and below the mark, with or without comparing; once only."""
    for lots in (None, sample_everything(100)):
        found = judged(FakeTableRows(but(gone)), FakeTopicLog(ALL), lots=lots)
        assert (found.faults, found.missing, found.examples) == (("missing",), 1, {"missing": [gone]})


def test_a_hole_of_the_log_itself_is_none() -> None:
    """Compaction and markers of transactions take offsets; so do recorded gaps."""
    assert judged(FakeTableRows(but(3, 4)), FakeTopicLog(but(3, 4))).faults == ()
    found = judged(FakeTableRows(but(3, 4)), None, gaps=[OffsetGap(3, 5)])
    assert (found.faults, found.unknown, found.recorded_gaps) == ((), 0, 2)


@pytest.mark.parametrize("lots", [None, sample_everything(3)])
def test_recorded_gaps_are_not_missing_though_the_broker_has_them(lots: RangeSampler | None) -> None:
    """With auto.offset.reset=latest what was skipped is still there; next to it one is missing."""
    found = judged(FakeTableRows(but(3, 4, 6)), FakeTopicLog(ALL), gaps=[OffsetGap(3, 5)], lots=lots)
    assert (found.examples, found.recorded_gaps) == ({"missing": [6]}, 2)


def test_what_retention_has_deleted_since_is_unknown() -> None:
    """Nobody can tell whether there was a record; nor without a broker."""
    found = judged(FakeTableRows(but(3, 4, 7)), FakeTopicLog(ALL, begin=6))
    assert (found.unknown, found.missing) == (2, 1)
    assert judged(FakeTableRows(but(3)), None).unknown == 1


def test_a_partition_that_lost_all_its_rows_is_told() -> None:
    """The record right below the mark had a row."""
    assert judged(FakeTableRows([]), FakeTopicLog(ALL)).missing == 1


def test_dead_letters_and_replayed_ones_are_not_missing() -> None:
    """A dead letter counts as a row, also one that is ahead of the table."""
    assert judged(FakeTableRows(ALL, letters=frozenset({3})), FakeTopicLog(ALL)).faults == ()
    ahead = FakeTableRows([*ALL, END + 3], letters=frozenset({END + 3}))
    assert judged(ahead, FakeTopicLog(range(END + 9), end=END + 9)).faults == ()
    assert judged(FakeTableRows(but(3), again={3}), FakeTopicLog(ALL)).faults == ()


def test_rows_beyond_the_mark_and_the_end_are_told() -> None:
    """The sink wrote neither."""
    found = judged(FakeTableRows([*ALL, END]), FakeTopicLog(ALL, end=END))
    assert (found.faults, found.beyond_committed) == (("beyond_committed", "beyond_end"), 1)
    assert judged(FakeTableRows([*ALL, END]), FakeTopicLog(ALL, end=END + 5)).faults == ("beyond_committed",)


def test_side_tables_and_letters_may_lack_rows() -> None:
    """Dead letters stand once each; behind a transform rows may be many."""
    assert judged(FakeTableRows([3, 7]), FakeTopicLog(ALL), kind=DEAD_LETTER_TABLE).faults == ()
    assert judged(FakeTableRows([3, 3]), FakeTopicLog(ALL), kind=DEAD_LETTER_TABLE).duplicated == 1
    assert judged(FakeTableRows([3, 3, END + 1]), FakeTopicLog(ALL, end=99), kind=DERIVED_TABLE).faults == (
        "beyond_committed",
    )


def test_behind_a_transform_nothing_is_compared() -> None:
    """It may change timestamp and key; those of an own table and of dead letters stay."""
    for kind, faults in (
        (TOPIC_TABLE, ("different",)),
        (DEAD_LETTER_TABLE, ("different",)),
        (DERIVED_TABLE, ()),
    ):
        found = judged(
            FakeTableRows(ALL, key=b"cast"), FakeTopicLog(ALL), kind=kind, lots=sample_everything(4)
        )
        assert (found.faults, found.compared) == (faults, 0 if kind is DERIVED_TABLE else END)


def test_changed_coordinates_are_found() -> None:
    """A timestamp, a key and a null that should be none."""
    rows = records([1, 2, 3, 4]).to_pylist()
    rows[0]["timestamp"] += 1
    rows[1]["key"] = b"other"
    rows[2]["key"] = None
    assert find_different_offsets(pa.Table.from_pylist(rows, schema=SCHEMA), records(ALL)) == [1, 2, 3]
    assert find_different_offsets(records([1]).select(["offset"]), records(ALL)) == []


def test_times_beyond_the_year_9999_are_compared() -> None:
    """A producer may send any number; Python's own times end there."""
    far = pa.timestamp("us", "UTC")
    wanted = pa.table({"offset": [1, 2], "timestamp": pa.array([2**60, 2**60], far)})
    rows = pa.table({"offset": [1, 2], "timestamp": pa.array([2**60, 2**60 + 1], far)})
    assert find_different_offsets(rows, wanted) == [2]


def test_a_sample_reads_the_end_and_stays_within_the_log() -> None:
    """Windows lie inside, and do not overlap."""
    (lot,) = sample_windows(3, 10, lambda n: n - 1)(OffsetGap(100, 1000))
    assert lot == (OffsetGap(989, 1000),)
    assert list(sample_windows(3, 10, lambda n: n - 1)(OffsetGap(5, 20))) == [(OffsetGap(5, 20),)]
    assert list(sample_everything(4)(OffsetGap(0, 6))) == [(OffsetGap(0, 4),), (OffsetGap(4, 6),)]


def test_holes_that_lie_near_are_looked_up_together() -> None:
    """One read for a cluster, which holds all of it."""
    near = [OffsetGap(1, 2), OffsetGap(5, 6), OffsetGap(50, 51)]
    assert [len(group) for group in cluster_gaps(near, 10, 100)] == [2, 1]
    assert select_inside(np.array([0, 1, 2, 5, 50, 51]), near) == [1, 5, 50]
    assert select_inside(np.array([], dtype=np.int64), near) == []
    assert select_inside(np.array([1]), []) == []


def test_no_look_up_spans_more_than_its_bound() -> None:
    """Holes of a compacted topic lie near each other all along, and one may be a whole log."""
    many = [OffsetGap(n, n + 1) for n in range(0, 100, 2)]
    for gaps in (many, [OffsetGap(0, 95)], [OffsetGap(3, 25), OffsetGap(26, 27)]):
        found = list(cluster_gaps(gaps, 10, 20))
        assert all(group[-1].next - group[0].first <= 20 for group in found)
        assert merge_gaps(gap for group in found for gap in group) == merge_gaps(gaps)


def test_known_gaps_are_taken_out_of_holes() -> None:
    """Whatever way they overlap."""
    assert subtract_gaps([OffsetGap(0, 10)], [OffsetGap(2, 4), OffsetGap(8, 12)]) == (
        OffsetGap(0, 2),
        OffsetGap(4, 8),
    )
    assert subtract_gaps([OffsetGap(0, 3), OffsetGap(5, 6)], [OffsetGap(0, 3)]) == (OffsetGap(5, 6),)


def test_the_configuration_says_what_a_table_is() -> None:
    """Own tables, dead letters, and what a transform makes, which is not loaded for that."""
    config = {"group.id": "g", "lake.warehouse": "x", "lake.tables": {"orders": "shop.orders"}}
    marks = CommittedOffsets({"g": {P: 3}})
    plain, shaped = (
        TableKindRules.from_config(config),
        TableKindRules.from_config(config | {"lake.transform": "nowhere:at_all"}),
    )
    assert plain.classify_table("shop.orders", marks) is TOPIC_TABLE
    assert plain.classify_table("shop.even", marks) is DERIVED_TABLE
    assert plain.classify_table("shop.orders_dead_letter", marks) is DEAD_LETTER_TABLE
    assert shaped.classify_table("shop.orders", marks) is DERIVED_TABLE


class LostLake:
    """A lake whose one table no longer says which offsets it holds."""

    def open_table(self, _: str) -> "LostLake":
        return self

    def read_offsets(self) -> None:
        raise CommittedOffsetsLostError("its snapshots have expired")


def test_lost_marks_are_bad() -> None:
    """What cannot be judged is not good; the note says why."""
    rules = TableKindRules.from_config({"group.id": "g", "lake.warehouse": "x"})
    lake: Any = LostLake()
    (found,) = LakeVerification(lake, rules, None, None, lambda *_: None).run(["lake.orders"])
    assert (found.is_bad(strict=False), found.notes) == (True, ("its snapshots have expired",))


def test_the_unknown_is_bad_only_where_it_shall_be() -> None:
    """A fault is bad always, a sound table never."""

    def bad(part: PartitionVerification, *, strict: bool) -> bool:
        return TableVerification("t", "own", (part,)).is_bad(strict=strict)

    unknown, missing = PartitionVerification(*P, unknown=1), PartitionVerification(*P, missing=1)
    assert [bad(unknown, strict=strict) for strict in (False, True)] == [False, True]
    assert bad(missing, strict=False)
    assert not bad(PartitionVerification(*P), strict=True)


def test_the_reader_connects_as_the_ingest_does() -> None:
    """Whatever the connection needs is taken over, and no group's setting."""
    connected = {
        "bootstrap.servers": "b:9093",
        "enable.ssl.certificate.verification": False,
        "broker.address.family": "v4",
        "socket.timeout.ms": 9000,
        "isolation.level": "read_uncommitted",
    }
    found = topic_log.build_reader_settings(connected | {"group.id": "g", "session.timeout.ms": 9000})
    assert found.items() >= connected.items()
    assert found["group.id"] != "g"
    assert "session.timeout.ms" not in found
    Consumer(found).close()  # librdkafka knows them all
    with pytest.raises(SettingError, match="give --against-broker no"):
        topic_log.build_reader_settings({})
