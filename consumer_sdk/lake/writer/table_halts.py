"""Stops reading what an error concerns, and reads it on, as `halted_partitions` decides (rule 6 of `writer`).

Positions are rewound at once, also in a callback. Fetching stops with the next record of a partition:
records fetched before a callback are still to be passed to `write`.
"""

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field

from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.clock import Clock
from trimtab.common.errors import TrimtabError
from trimtab.consumer_sdk.errors import (
    LakeUnavailableError,
    OffsetRegressionError,
    OffsetsExpiredError,
    TableNameCollisionError,
)
from trimtab.consumer_sdk.lake.model.interfaces import RecordConsumer
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets
from trimtab.consumer_sdk.lake.writer.batches import BatchBuffer
from trimtab.consumer_sdk.lake.writer.error_scope import concerns_all, to_table_error
from trimtab.consumer_sdk.lake.writer.halted_partitions import HaltedPartitions
from trimtab.consumer_sdk.lake.writer.partition_positions import PositionTracker
from trimtab.consumer_sdk.lake.writer.topic_starts import TopicStarts


@dataclass(frozen=True, slots=True)
class TableHalts:
    """Halts and resumes partitions and tables of one writer; used by the application's thread only."""

    consumer: RecordConsumer
    table_for: Callable[[str], str]
    starts: TopicStarts
    positions: PositionTracker
    buffer: BatchBuffer
    halted: HaltedPartitions
    clock: Clock
    held: set[TopicPartition] = field(default_factory=set[TopicPartition])
    asked: "dict[str, Future[CommittedOffsets]]" = field(
        default_factory=dict[str, "Future[CommittedOffsets]"]
    )

    def find_all_starts(
        self, partitions: Collection[TopicPartition], deadline: float
    ) -> dict[TopicPartition, int | None]:
        """Return the offsets of assigned partitions; none if they are halted, as those of unreachable tables.

        Raises LakeUnavailableError if no table was ever reached, and the lake cannot list its tables either.
        """
        topics = {p.topic: [other for other in partitions if other.topic == p.topic] for p in partitions}
        timeout_s = deadline - self.clock.monotonic()
        # a call that has not returned since an earlier assignment or trial is not waited for again
        hanging = {table for table, answer in self.asked.items() if not answer.done()}
        tables = {self.table_for(topic) for topic in topics}
        answers = self.asked | self.starts.ask_for_all_offsets(tables - hanging, deadline)
        self.asked.update((table, answer) for table, answer in answers.items() if not answer.done())
        starts: dict[TopicPartition, int | None] = {}
        unreachable: dict[str, LakeUnavailableError] = {}
        for topic, chosen in sorted(topics.items()):
            try:
                starts |= self.find_starts(topic, chosen, answers[self.table_for(topic)])
            except LakeUnavailableError as error:
                unreachable[topic] = error
        if unreachable:
            self._check_lake(timeout_s)
        for topic, reason in unreachable.items():
            self._halt_unread(topics[topic], reason)
        return starts

    def _check_lake(self, timeout_s: float) -> None:
        # a lake that has never answered is one whose address or credentials may be wrong
        try:
            self.starts.check_lake(timeout_s)
        except Exception as error:
            if isinstance(error, LakeUnavailableError) or concerns_all(error):
                raise
            # it answers, but does not let this writer list its tables

    def find_starts(
        self, topic: str, partitions: list[TopicPartition], answer: "Future[CommittedOffsets]"
    ) -> dict[TopicPartition, int | None]:
        """Return the offsets of these partitions of a topic; none if they are halted."""
        try:
            return self.starts.find_starts(topic, partitions, _read_answer(self.table_for(topic), answer))
        except TableNameCollisionError as error:
            self.halt_partitions({p: self.positions.next_offset(p) for p in partitions}, error)
        except Exception as error:
            if isinstance(error, LakeUnavailableError) or concerns_all(error):
                raise
            self._halt_unread(partitions, error)
        return {}

    @contextmanager
    def halt_on_error(
        self, partition: TopicPartition, offsets: Sequence[int] = (), log_start: int | None = None
    ) -> Generator[None]:
        """Halt what an error with a run of records, or a new log, concerns: a partition or its table."""
        try:
            yield
        except OffsetsExpiredError as error:
            self.stop_fetching(partition)
            # The buffered records are valid, and the log no longer has them.
            self.halted.halt({partition}, error)
        except OffsetRegressionError as error:
            self.stop_fetching(partition)
            # not the table's offset: a table of its own would lack the new log's records below it
            self.halt_partitions({partition: next(iter(offsets), log_start)}, error)
        except Exception as error:
            if concerns_all(error):
                raise
            if offsets:
                self.positions.stop_before(partition, offsets[0])
            ends = {partition: offsets[-1] + 1} if offsets else {}
            self.halt_table(self.table_for(partition.topic), error, ends)

    def is_stopped(self, partition: TopicPartition, first: int) -> bool:
        """Return whether a record of a partition is not to be taken; its fetching stops then."""
        if partition in self.halted:  # with its table, or at its assignment
            self.stop_fetching(partition)
            self.halted.note_first_unread(partition, first)
        if self.halted.has_halted_table(partition):
            self.positions.stop_before(partition, first)
            return True
        return False

    def halt_partitions(self, partitions: Mapping[TopicPartition, int | None], error: TrimtabError) -> None:
        """Drop partitions until their next assignment; given is where their first unread record stands."""
        self.drop_partitions(partitions)
        self.positions.forget_partitions(partitions)
        self.halted.halt(partitions, error)
        for partition, first in partitions.items():
            self.halted.note_first_unread(partition, first)

    def halt_table(
        self, table: str, error: BaseException, ends: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Rewind a table's partitions until it is tried again; it failed at the records up to `ends`."""
        stopped = self._find_read(table)
        self.buffer.drop_partitions(stopped)
        self.positions.rewind_halted(stopped)
        failed = {p: end for p, end in (ends or {}).items() if p in stopped}
        now = self.clock.monotonic()
        self.halted.halt_table(table, stopped, to_table_error(table, error), now, failed)

    def hold_tables(self, tables: Collection[str]) -> dict[TopicPartition, int]:
        """Stop the fetching of these tables, and of no others; return where partitions are read on."""
        read = (p for table in tables for p in self._find_read(table))
        held = {p for p in read if self.positions.next_offset(p) is not None}
        for partition in held - self.held:
            self.stop_fetching(partition)
        offsets = ((p, self.positions.next_offset(p)) for p in self.held - held if p not in self.halted)
        restarts = {p: offset for p, offset in offsets if offset is not None}
        self.held.intersection_update(held)
        self.held.update(held)
        return restarts

    def drop_partitions(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the records and the halts of partitions."""
        self.buffer.drop_partitions(partitions)
        self.held.difference_update(partitions)
        self.halted.discard(partitions)

    def stop_fetching(self, partition: TopicPartition) -> None:
        """Stop the fetching of a partition."""
        self.consumer.incremental_unassign([RawPartition(*partition)])

    def begin_trials(self) -> dict[TopicPartition, int]:
        """Try the tables whose delay has passed; return where their partitions are read on."""
        due = self.halted.begin_trials(self.clock.monotonic())
        for table, partitions in due.items():
            if self.starts.list_unknown(partitions) and table not in self.asked:
                self.asked[table] = self.starts.ask_for_offsets(table)
        answers = {table: answer for table, answer in self.asked.items() if answer.done()}
        for table, answer in answers.items():
            del self.asked[table]
            if table in self.halted.list_tried():  # not if it was assigned again meanwhile
                self._start_topics(table, answer)
        ready = sorted((due.keys() - self.asked.keys()) | (answers.keys() & self.halted.list_tried()))
        restarts = {p: self.positions.next_offset(p) for table in ready for p in self._find_read(table)}
        for table in ready:
            self.end_trial(table)
        return {p: offset for p, offset in restarts.items() if offset is not None}

    def end_trial(self, table: str) -> None:
        """End the halt of a table that is tried and has the records that it failed at."""
        self.halted.end_trial(table, self.positions.committed_offsets(self._find_read(table)))

    def pop_news(self) -> tuple[dict[TopicPartition, int], dict[TopicPartition, str]]:
        """Return offsets to commit with what has become of their partitions: why they are halted, or ""."""
        return self.halted.pop_news(self._find_commit)

    def _halt_unread(self, partitions: Sequence[TopicPartition], error: Exception) -> None:
        """Halt the table of a topic's partitions before its offsets are known."""
        for partition in partitions:  # where its first record stands, is where it will begin
            self.positions.assign(partition, None)
        self.halt_table(self.table_for(partitions[0].topic), error)

    def _start_topics(self, table: str, answer: "Future[CommittedOffsets]") -> None:
        """Find the starts of topics whose table could not be read at their assignment."""
        partitions = self._find_read(table)
        for topic in self.starts.list_unknown(partitions):
            known = [p for p in partitions if p.topic == topic]
            try:
                starts = self.find_starts(topic, known, answer)
            except LakeUnavailableError as error:  # of a table that is not read: it ends nothing
                return self.halt_table(table, error)
            for partition, start in starts.items():
                if start is not None:
                    self.positions.assign(partition, start)
        return None

    def _find_commit(self, partition: TopicPartition) -> int | None:
        """Return the next offset of a table; of a halted partition without one, that of its first record."""
        known = self.positions.committed_offsets([partition]).get(partition)
        return self.positions.first_unwritten(partition) if partition in self.halted else known

    def _find_read(self, table: str) -> set[TopicPartition]:
        """Return the partitions of a table that are read."""
        owned = self.positions.owned
        return {p for p in owned if self.table_for(p.topic) == table and p not in self.halted}


def _read_answer(table: str, answer: "Future[CommittedOffsets]") -> CommittedOffsets:
    if not answer.done():
        raise LakeUnavailableError(
            f"{table}: a call that reads its offsets has not returned within lake.flush.timeout; it may "
            "hang: check that the catalog and the storage respond"
        )
    return answer.result()
