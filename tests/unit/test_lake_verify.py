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
from trimtab.consumer_sdk.errors import MarksLost
from trimtab.consumer_sdk.lake.offsets.offset_gaps import Gap, merged
from trimtab.consumer_sdk.lake.offsets.table_offsets import Marks
from trimtab.consumer_sdk.lake.verify import topic_log
from trimtab.consumer_sdk.lake.verify.lake_verification import Rules, Verification
from trimtab.consumer_sdk.lake.verify.table_verification import (
    LETTERS,
    OWN,
    SIDE,
    Asked,
    Facts,
    Kind,
    Lots,
    Partition,
    Verdict,
    clusters,
    differing,
    inside,
    sample,
    verify,
    whole,
    without,
)

P = TopicPartition("orders", 0)
SCHEMA = pa.schema([("offset", pa.int64()), ("timestamp", pa.int64()), ("key", pa.binary())])
END = 10


def records(offsets: Iterable[int]) -> pa.Table:
    rows = [{"offset": o, "timestamp": o * 1000, "key": b"k%d" % o} for o in offsets]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


@dataclass
class FakeRows:
    """Rows of one partition, by their offsets; `letters` are those that are dead letters."""

    offsets: list[int]
    letters: frozenset[int] = frozenset()
    again: set[int] = field(default_factory=set)
    key: bytes | None = None

    def facts(self) -> dict[TopicPartition, Facts]:
        own = [o for o in self.offsets if o not in self.letters]
        if not self.offsets:
            return {}
        found = sorted(set(self.offsets))
        last = max(own, default=-1)
        return {P: Facts(len(self.offsets), len(found), found[0], found[-1], last)}

    def holes(self, _: TopicPartition) -> list[Gap]:
        found = sorted(set(self.offsets))
        return [Gap(a + 1, b) for a, b in pairwise(found) if b > a + 1]

    def surplus(self, _: TopicPartition, copies: int) -> tuple[int, list[int]]:
        counts = {o: self.offsets.count(o) for o in self.offsets}
        more = {o: n - copies for o, n in counts.items() if n > copies}
        return sum(more.values()), sorted(more)

    def beyond(self, _: TopicPartition, offset: int) -> tuple[int, list[int]]:
        found = [o for o in self.offsets if o >= offset and o not in self.letters]
        return len(found), sorted(found)

    def read(self, _: TopicPartition, ranges: Iterable[Gap]) -> pa.Table:
        wanted = [o for o in self.offsets if any(r.first <= o < r.next for r in ranges)]
        rows = records(wanted).to_pylist()
        changed = rows if self.key is None else [row | {"key": self.key} for row in rows]
        return pa.Table.from_pylist(changed, schema=SCHEMA)

    def replayed(self, _: TopicPartition) -> set[int]:
        return self.again


@dataclass
class FakeLog:
    """A log with these offsets."""

    offsets: list[int]
    begin: int = 0
    end: int = END
    reads: int = 0

    def bounds(self, _: TopicPartition) -> Gap | None:
        return Gap(self.begin, self.end)

    def read(self, _: TopicPartition, wanted: Gap) -> pa.Table:
        self.reads += 1
        held = [o for o in self.offsets if o >= self.begin]
        return records(o for o in held if wanted.first <= o < wanted.next)


def judged(rows: FakeRows, log: FakeLog | None, *, mark: int = END, **more: Any) -> Partition:
    kind: Kind = more.get("kind", OWN)
    groups: tuple[str, ...] = more.get("groups", ("g",))
    gaps: list[Gap] = more.get("gaps", [])
    marks = Marks({group: {P: mark} for group in groups})
    asked = Asked("t", kind, rows, marks, lambda: marks, lambda _: gaps)
    (found,) = verify(asked, log, more.get("lots"), lambda *_: None).partitions
    return found


ALL = list(range(END))


def but(*gone: int) -> list[int]:
    return [o for o in ALL if o not in gone]


def test_a_sound_table_is_good() -> None:
    """Every record once, up to the mark: nothing is told, whatever is compared."""
    for lots in (None, whole(3), sample(2, 2, lambda n: n - 1)):
        found = judged(FakeRows(ALL), FakeLog(ALL), lots=lots)
        assert (found.faults, found.unknown, found.rows) == ((), 0, END)


def test_a_row_twice_is_told() -> None:
    """One too many, unless a second group brings its own."""
    assert judged(FakeRows([*ALL, 4]), FakeLog(ALL)).duplicated == 1
    assert judged(FakeRows([*ALL, *ALL]), FakeLog(ALL), groups=("g", "h")).faults == ()
    assert judged(FakeRows([*ALL, *ALL, 4]), FakeLog(ALL), groups=("g", "h")).duplicated == 1


@pytest.mark.parametrize("gone", [1, 5, END - 1])
def test_a_record_without_a_row_is_missing(gone: int) -> None:
    """In the middle and below the mark, with or without comparing; once only."""
    for lots in (None, whole(100)):
        found = judged(FakeRows(but(gone)), FakeLog(ALL), lots=lots)
        assert (found.faults, found.missing, found.examples) == (
            ("missing",),
            1,
            {"missing": [gone]},
        )


def test_a_hole_of_the_log_itself_is_none() -> None:
    """Compaction and markers of transactions take offsets; so do recorded gaps."""
    assert judged(FakeRows(but(3, 4)), FakeLog(but(3, 4))).faults == ()
    found = judged(FakeRows(but(3, 4)), None, gaps=[Gap(3, 5)])
    assert (found.faults, found.unknown, found.recorded) == ((), 0, 2)


@pytest.mark.parametrize("lots", [None, whole(3)])
def test_recorded_gaps_are_not_missing_though_the_broker_has_them(lots: Lots | None) -> None:
    """With auto.offset.reset=latest what was skipped is still there; next to it one is missing."""
    found = judged(FakeRows(but(3, 4, 6)), FakeLog(ALL), gaps=[Gap(3, 5)], lots=lots)
    assert (found.examples, found.recorded) == ({"missing": [6]}, 2)


def test_what_retention_has_deleted_since_is_unknown() -> None:
    """Nobody can tell whether there was a record; nor without a broker."""
    found = judged(FakeRows(but(3, 4, 7)), FakeLog(ALL, begin=6))
    assert (found.unknown, found.missing) == (2, 1)
    assert judged(FakeRows(but(3)), None).unknown == 1


def test_a_partition_that_lost_all_its_rows_is_told() -> None:
    """The record right below the mark had a row."""
    assert judged(FakeRows([]), FakeLog(ALL)).missing == 1


def test_dead_letters_and_replayed_ones_are_not_missing() -> None:
    """A dead letter counts as a row, also one that is ahead of the table."""
    assert judged(FakeRows(ALL, letters=frozenset({3})), FakeLog(ALL)).faults == ()
    ahead = FakeRows([*ALL, END + 3], letters=frozenset({END + 3}))
    assert judged(ahead, FakeLog(range(END + 9), end=END + 9)).faults == ()
    assert judged(FakeRows(but(3), again={3}), FakeLog(ALL)).faults == ()


def test_rows_beyond_the_mark_and_the_end_are_told() -> None:
    """The sink wrote neither."""
    found = judged(FakeRows([*ALL, END]), FakeLog(ALL, end=END))
    assert (found.faults, found.beyond_mark) == (("beyond_mark", "beyond_end"), 1)
    assert judged(FakeRows([*ALL, END]), FakeLog(ALL, end=END + 5)).faults == ("beyond_mark",)


def test_side_tables_and_letters_may_lack_rows() -> None:
    """Dead letters stand once each; behind a transform rows may be many."""
    assert judged(FakeRows([3, 7]), FakeLog(ALL), kind=LETTERS).faults == ()
    assert judged(FakeRows([3, 3]), FakeLog(ALL), kind=LETTERS).duplicated == 1
    assert judged(FakeRows([3, 3, END + 1]), FakeLog(ALL, end=99), kind=SIDE).faults == (
        "beyond_mark",
    )


def test_behind_a_transform_nothing_is_compared() -> None:
    """It may change timestamp and key; those of an own table and of dead letters stay."""
    for kind, faults in ((OWN, ("different",)), (LETTERS, ("different",)), (SIDE, ())):
        found = judged(FakeRows(ALL, key=b"cast"), FakeLog(ALL), kind=kind, lots=whole(4))
        assert (found.faults, found.compared) == (faults, 0 if kind is SIDE else END)


def test_changed_coordinates_are_found() -> None:
    """A timestamp, a key and a null that should be none."""
    rows = records([1, 2, 3, 4]).to_pylist()
    rows[0]["timestamp"] += 1
    rows[1]["key"] = b"other"
    rows[2]["key"] = None
    assert differing(pa.Table.from_pylist(rows, schema=SCHEMA), records(ALL)) == [1, 2, 3]
    assert differing(records([1]).select(["offset"]), records(ALL)) == []


def test_times_beyond_the_year_9999_are_compared() -> None:
    """A producer may send any number; Python's own times end there."""
    far = pa.timestamp("us", "UTC")
    wanted = pa.table({"offset": [1, 2], "timestamp": pa.array([2**60, 2**60], far)})
    rows = pa.table({"offset": [1, 2], "timestamp": pa.array([2**60, 2**60 + 1], far)})
    assert differing(rows, wanted) == [2]


def test_a_sample_reads_the_end_and_stays_within_the_log() -> None:
    """Windows lie inside, and do not overlap."""
    (lot,) = sample(3, 10, lambda n: n - 1)(Gap(100, 1000))
    assert lot == (Gap(989, 1000),)
    assert list(sample(3, 10, lambda n: n - 1)(Gap(5, 20))) == [(Gap(5, 20),)]
    assert list(whole(4)(Gap(0, 6))) == [(Gap(0, 4),), (Gap(4, 6),)]


def test_holes_that_lie_near_are_looked_up_together() -> None:
    """One read for a cluster, which holds all of it."""
    near = [Gap(1, 2), Gap(5, 6), Gap(50, 51)]
    assert [len(group) for group in clusters(near, 10, 100)] == [2, 1]
    assert inside(np.array([0, 1, 2, 5, 50, 51]), near) == [1, 5, 50]
    assert inside(np.array([], dtype=np.int64), near) == []
    assert inside(np.array([1]), []) == []


def test_no_look_up_spans_more_than_its_bound() -> None:
    """Holes of a compacted topic lie near each other all along, and one may be a whole log."""
    many = [Gap(n, n + 1) for n in range(0, 100, 2)]
    for gaps in (many, [Gap(0, 95)], [Gap(3, 25), Gap(26, 27)]):
        found = list(clusters(gaps, 10, 20))
        assert all(group[-1].next - group[0].first <= 20 for group in found)
        assert merged(gap for group in found for gap in group) == merged(gaps)


def test_known_gaps_are_taken_out_of_holes() -> None:
    """Whatever way they overlap."""
    assert without([Gap(0, 10)], [Gap(2, 4), Gap(8, 12)]) == (Gap(0, 2), Gap(4, 8))
    assert without([Gap(0, 3), Gap(5, 6)], [Gap(0, 3)]) == (Gap(5, 6),)


def test_the_configuration_says_what_a_table_is() -> None:
    """Own tables, dead letters, and what a transform makes, which is not loaded for that."""
    config = {"group.id": "g", "lake.warehouse": "x", "lake.tables": {"orders": "shop.orders"}}
    marks = Marks({"g": {P: 3}})
    plain, shaped = Rules.of(config), Rules.of(config | {"lake.transform": "nowhere:at_all"})
    assert plain.kind("shop.orders", marks) is OWN
    assert plain.kind("shop.even", marks) is SIDE
    assert plain.kind("shop.orders_dead_letter", marks) is LETTERS
    assert shaped.kind("shop.orders", marks) is SIDE


class LostLake:
    """A lake whose one table no longer says which offsets it holds."""

    def open(self, _: str) -> "LostLake":
        return self

    def look(self) -> None:
        raise MarksLost("its snapshots have expired")


def test_lost_marks_are_bad() -> None:
    """What cannot be judged is not good; the note says why."""
    rules = Rules.of({"group.id": "g", "lake.warehouse": "x"})
    lake: Any = LostLake()
    (found,) = Verification(lake, rules, None, None, lambda *_: None).run(["lake.orders"])
    assert (found.bad(strict=False), found.notes) == (True, ("its snapshots have expired",))


def test_the_unknown_is_bad_only_where_it_shall_be() -> None:
    """A fault is bad always, a sound table never."""

    def bad(part: Partition, *, strict: bool) -> bool:
        return Verdict("t", "own", (part,)).bad(strict=strict)

    unknown, missing = Partition(*P, unknown=1), Partition(*P, missing=1)
    assert [bad(unknown, strict=strict) for strict in (False, True)] == [False, True]
    assert bad(missing, strict=False)
    assert not bad(Partition(*P), strict=True)


def test_the_reader_connects_as_the_ingest_does() -> None:
    """Whatever the connection needs is taken over, and no group's setting."""
    connected = {
        "bootstrap.servers": "b:9093",
        "enable.ssl.certificate.verification": False,
        "broker.address.family": "v4",
        "socket.timeout.ms": 9000,
        "isolation.level": "read_uncommitted",
    }
    found = topic_log.settings(connected | {"group.id": "g", "session.timeout.ms": 9000})
    assert found.items() >= connected.items()
    assert found["group.id"] != "g"
    assert "session.timeout.ms" not in found
    Consumer(found).close()  # librdkafka knows them all
    with pytest.raises(SettingError, match="give --against-broker no"):
        topic_log.settings({})
