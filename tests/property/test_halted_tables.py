"""An error of one table, or an outage of all: nothing is lost, doubled, or held up elsewhere, at any step.

The tables are in memory; the writer, its flush threads, positions and halts are the product's.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import local
from typing import Any, Final
from unittest import mock

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition as RawPartition
from hypothesis import given
from hypothesis import strategies as st

from support.lake.writer_stand_ins import ManualClock, MemoryLake
from support.lake.writer_steps import FLUSH_STEPS
from trimtab.assignor.model import TopicPartition
from trimtab.common.errors import SettingError, TrimtabError
from trimtab.consumer_sdk.client.offset_reset import OffsetReset
from trimtab.consumer_sdk.errors import (
    CommittedOffsetsLostError,
    LakeUnavailableError,
    SchemaRegistryUnavailableError,
    TableAccessError,
    TableSchemaMismatchError,
    TransformError,
)
from trimtab.consumer_sdk.lake.changes.keyed_changes import ChangeRows, reduce_changes
from trimtab.consumer_sdk.lake.commits.retry import RetryBackoff
from trimtab.consumer_sdk.lake.flush.flush import BatchFlusher, FlushBatch
from trimtab.consumer_sdk.lake.flush.flush_threads import wait_for_flushes
from trimtab.consumer_sdk.lake.flush.metrics import LakeMetrics
from trimtab.consumer_sdk.lake.model.interfaces import Records
from trimtab.consumer_sdk.lake.projection.projection import ProjectedRows
from trimtab.consumer_sdk.lake.writer.writer import LakeWriter

TOPICS: Final = ("a", "b", "c")
PARTITIONS: Final = 2
CALLS: Final = ("open_table", "create_table", "read_offsets", "stage_rows", "commit", "commit_answered")
STEPS: Final = (*(step for step in FLUSH_STEPS if step != "offsets-committed"), "projected", *CALLS)
LANDED: Final = ("committed", "commit_answered")  # the error comes behind a commit
ERRORS: Final = (
    TableSchemaMismatchError,
    TransformError,
    CommittedOffsetsLostError,
    TableAccessError,
    SettingError,
    ValueError,  # nobody expected it
    LakeUnavailableError,  # retried first
    SchemaRegistryUnavailableError,
)
CONFIG: Final = {
    "group.id": "g",
    "enable.auto.commit": False,
    "lake.warehouse": "lake",
    "lake.table": "lake.{topic}",
    "batch.max.age": "2 s",
}
KEYS: Final = 4  # of a partition, with upserts
MOST_ROUNDS: Final = 400


@dataclass(frozen=True)
class Message:
    """A record."""

    where: TopicPartition
    at: int

    def topic(self) -> str:
        return self.where.topic

    def partition(self) -> int:
        return self.where.partition

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_000

    def key(self) -> bytes:
        return b"%d-%d" % (self.where.partition, self.at % KEYS)

    def value(self) -> bytes:
        return b"v"

    def headers(self) -> None: ...
    def error(self) -> None: ...


@dataclass
class Consumer:
    """Reads logs of these lengths, each partition from its position."""

    ends: dict[TopicPartition, int]
    positions: dict[TopicPartition, int]

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        del timeout
        messages: list[Message] = []
        for where, offset in self.positions.items():
            end = min(self.ends[where], offset + num_messages)
            messages += [Message(where, at) for at in range(offset, end)]
            self.positions[where] = end
        return messages

    def incremental_assign(self, partitions: Sequence[RawPartition]) -> None:
        self.positions |= {TopicPartition(p.topic, p.partition): p.offset for p in partitions}

    def incremental_unassign(self, partitions: Sequence[RawPartition]) -> None:
        for p in partitions:
            self.positions.pop(TopicPartition(p.topic, p.partition), None)

    def pop_offset_resets(self) -> list[OffsetReset]:
        return []

    def batch_max_age_s(self) -> float | None:
        return None

    def commit(self, *, offsets: Any, asynchronous: bool = True) -> None: ...


@dataclass(frozen=True)
class WithOddRows:
    """A transform to all rows, or the changes of their keys; a second table has those with an odd offset."""

    table: str
    is_upsert: bool
    reach: Callable[[str], None]

    def project_records(self, records: Records, to_frame: Callable[[Any], Any]) -> ProjectedRows:
        self.reach("projected")
        odd = records.filter([offset % 2 == 1 for offset in records.column("offset").to_pylist()])
        sides = {f"{self.table}_odd": to_frame(odd)}
        if not self.is_upsert:
            return ProjectedRows(to_frame(records), sides)
        changes = ChangeRows(records, pa.array([False] * records.num_rows))
        return ProjectedRows(reduce_changes(changes, ("key",)), sides)


@dataclass
class Fault:
    """Fails the flushes of a table, or of all, at a step, until it is mended."""

    table: str | None
    step: str
    error: type[Exception]
    mended: bool = False
    flushed: local = field(default_factory=local)

    def reach(self, step: str) -> None:
        table = getattr(self.flushed, "table", "")
        if table and table == (self.table or table) and step == self.step and not self.mended:
            raise self.error(f"{table}: not today")

    @contextmanager
    def installed(self) -> Generator[None]:
        flush_batch = BatchFlusher.flush_batch

        def named(flusher: BatchFlusher, batch: FlushBatch, backoff: RetryBackoff) -> Any:
            self.flushed.table = batch.table
            return flush_batch(flusher, batch, backoff)

        with mock.patch.object(BatchFlusher, "flush_batch", named):
            yield


class Rig:
    """A writer of all topics, driven round by round: one second each, and those that a flush waits."""

    def __init__(
        self,
        ends: dict[TopicPartition, int],
        fault: Fault,
        parallelism: int,
        most: int,
        *,
        is_upsert: bool = False,
    ) -> None:
        self.clock, self.metrics, self.most, self.is_upsert = ManualClock(), LakeMetrics(), most, is_upsert
        self.lake = MemoryLake(on_call=lambda _, call: fault.reach(call))
        self.ends = ends
        self.consumer = Consumer(ends, dict.fromkeys(ends, 0))
        stepped = type(
            "Stepped",
            (LakeWriter,),
            {
                "_reach_step": lambda _, step: fault.reach(step),
                "_create_projection": lambda _, table: WithOddRows(table, is_upsert, fault.reach),
            },
        )
        config = CONFIG | {"lake.flush.parallelism": parallelism}
        self.writer = stepped(self.consumer, config, lake=self.lake, clock=self.clock, metrics=self.metrics)
        self.writer.on_assign(None, [RawPartition(*partition) for partition in ends])

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Let the waits of flushes take time of the clock only."""

        def wait(backoff: RetryBackoff, shortest: float, longest: float, attempt: int) -> None:
            backoff.raise_if_cancelled()
            self.clock.now += min(longest, shortest * 2.0**attempt)

        with mock.patch.object(RetryBackoff, "_wait", wait):
            yield

    def run_until(self, condition: Callable[[], bool], *, seconds: float = 1.0) -> float:
        """Return the seconds that it took."""
        begun = self.clock.now
        for _ in range(MOST_ROUNDS):
            if condition():
                return self.clock.now - begun
            self.writer.write(self.consumer.consume(self.most))  # raises nothing
            wait_for_flushes(self.writer._flushes.in_flight.values(), 30)
            self.clock.now += seconds
        raise AssertionError("it never happens")

    def reassign(self, partitions: Sequence[TopicPartition]) -> None:
        """Take partitions away and give them back; a group without offsets begins at 0."""
        raw = [RawPartition(*partition) for partition in partitions]
        self.writer.on_revoke(None, raw)
        self.consumer.incremental_unassign(raw)
        self.consumer.positions |= dict.fromkeys(partitions, 0)
        self.writer.on_assign(None, raw)

    def list_missing(self, topic: str) -> set[tuple[int, int]]:
        return self.list_due(topic) - set(self.read_rows(f"lake.{topic}"))

    def list_due(self, topic: str) -> set[tuple[int, int]]:
        """Return the rows that a topic's table must have: of each key the last, with upserts."""
        ends = {p.partition: end for p, end in self.ends.items() if p.topic == topic}
        first = {n: max(0, end - KEYS) if self.is_upsert else 0 for n, end in ends.items()}
        return {(n, offset) for n, end in ends.items() for offset in range(first[n], end)}

    def list_odd(self, topic: str) -> list[tuple[int, int]]:
        ends = sorted((p.partition, end) for p, end in self.ends.items() if p.topic == topic)
        return [(n, offset) for n, end in ends for offset in range(1, end, 2)]

    def read_rows(self, table: str) -> list[tuple[int, int]]:
        return self.lake.tables[table].places if table in self.lake.tables else []

    def check(self, topic: str) -> None:
        assert sorted(self.read_rows(f"lake.{topic}")) == sorted(self.list_due(topic))
        assert sorted(self.read_rows(f"lake.{topic}_odd")) == self.list_odd(topic)

    def is_halted(self, table: str) -> bool:
        return self.metrics.registry.get_sample_value("trimtab_halted_tables", {"table": table}) == 1


@dataclass(frozen=True)
class Case:
    """Which table fails at which step, and how its records come."""

    topic: str
    step: str
    error: type[Exception]
    lengths: list[int]
    parallelism: int
    most: int  # records of a partition in one poll
    seconds: float  # from round to round after the mending
    is_flushed: bool  # before the mending
    is_reassigned: bool
    is_upsert: bool


CASES: Final = st.builds(
    Case,
    topic=st.sampled_from(TOPICS),
    step=st.sampled_from(STEPS),
    error=st.sampled_from(ERRORS),
    lengths=st.lists(st.integers(0, 30), min_size=6, max_size=6),
    parallelism=st.integers(1, 2),
    most=st.integers(1, 20),
    seconds=st.sampled_from([1.0, 40.0]),
    is_flushed=st.booleans(),
    is_reassigned=st.booleans(),
    is_upsert=st.booleans(),
)


@contextmanager
def running(case: Case, fault: Fault) -> Generator[Rig]:
    """Run a writer of all topics, of which the case's has a record at least."""
    partitions = [TopicPartition(topic, number) for topic in TOPICS for number in range(PARTITIONS)]
    ends = dict(zip(partitions, case.lengths, strict=True))
    ends[TopicPartition(case.topic, 0)] += 1
    with fault.installed():
        rig = Rig(ends, fault, case.parallelism, case.most, is_upsert=case.is_upsert)
        with rig.waiting():
            yield rig


@given(CASES)
def test_a_table_that_cannot_be_written_touches_no_other(case: Case) -> None:
    """Others have all rows while it fails; it has them exactly once after the mending, wherever it failed."""
    table = f"lake.{case.topic}"
    fault = Fault(table, case.step, case.error)
    others = [topic for topic in TOPICS if topic != case.topic]
    # a lost answer halts nothing: the table's history has the commit
    is_found = (case.step, case.error) == ("commit_answered", LakeUnavailableError)
    with running(case, fault) as rig:
        rig.run_until(lambda: is_found or rig.is_halted(table))
        rig.run_until(lambda: not any(map(rig.list_missing, others)))
        for other in others:
            rig.check(other)
        # behind the commit nothing is left to fail: the table may have come over it by itself
        with suppress(TrimtabError) if case.step in LANDED else pytest.raises(TrimtabError):
            (rig.writer.flush if case.is_flushed else rig.writer.raise_if_halted)()
        if case.is_reassigned:
            rig.reassign([p for p in rig.ends if p.topic == case.topic])
        fault.mended = True
        rig.run_until(
            lambda: not rig.list_missing(case.topic) and not rig.is_halted(table), seconds=case.seconds
        )
        rig.writer.close()
    for topic in TOPICS:
        rig.check(topic)


@given(CASES, st.sampled_from([LakeUnavailableError, SchemaRegistryUnavailableError]), st.integers(0, 3600))
def test_an_outage_of_all_tables_ends_nothing(case: Case, error: type[TrimtabError], seconds: int) -> None:
    """However long it lasts; within a minute of its end every table has all rows exactly once."""
    fault = Fault(None, case.step, error)
    with running(case, fault) as rig:
        begun = rig.clock.now
        rig.run_until(lambda: rig.clock.now - begun >= seconds, seconds=10.0)
        if case.is_reassigned:
            rig.reassign([p for p in rig.ends if p.topic == case.topic])
        fault.mended = True
        rounds = rig.run_until(
            lambda: not any(map(rig.list_missing, TOPICS)) and not any(map(rig.is_halted, rig.lake.tables))
        )
        rig.writer.close()
    assert rounds < 60 + max(case.lengths)  # a record a second, at worst
    for topic in TOPICS:
        rig.check(topic)


def test_tables_have_rows_at_all() -> None:
    """The property would hold of empty tables, too."""
    fault = Fault("lake.a", "begun", ValueError, mended=True)
    rig = Rig({TopicPartition("a", 0): 5, TopicPartition("b", 1): 4}, fault, 2, 3)
    rig.run_until(lambda: not rig.list_missing("a") and not rig.list_missing("b"))
    rig.writer.close()
    counts = {table: len(content.places) for table, content in rig.lake.tables.items()}
    assert counts == {"lake.a": 5, "lake.a_odd": 2, "lake.b": 4, "lake.b_odd": 2}
