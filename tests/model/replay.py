"""Replays traces of the model with the product's lake writers, and compares both after each step.

Each member is a real `LakeWriter` with its flush thread; the lake is a table in memory, whose fence
waits until the trace lets the batch land or vanish.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Self

from confluent_kafka import OFFSET_STORED
from confluent_kafka import TopicPartition as RawPartition

from model.state import DEAD, MEMBERS, OUTSIDE, PARTITIONS, UP, Action, State
from model.transitions import GROUP, TOPIC
from simulation.lake import COLUMNS, Frame, Row
from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import CommitConflictError, LakeUnavailableError
from trimtab.consumer_sdk.lake.flush.flush_threads import InFlightFlush
from trimtab.consumer_sdk.lake.model.interfaces import StagedFiles, VersionedOffsets
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets
from trimtab.consumer_sdk.lake.writer.writer import LakeWriter

CONFIG: Final[dict[str, Any]] = {
    "group.id": GROUP,
    "enable.auto.commit": False,
    "lake.warehouse": "memory",
    "lake.flush.timeout": "10 ms",
    "batch.bytes": "1 B",  # a batch for each record
}
WAIT_S: Final = 30.0  # for a flush thread, before the replay fails


class DivergenceError(Exception):
    """The product did something else than the model."""


@dataclass(slots=True)
class _Content:
    """The table: its offsets, and the rows of all commits."""

    offsets: CommittedOffsets
    rows: list[Row] = field(default_factory=list[Row])
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(slots=True)
class _Gate:
    """Holds one writer's flush before its fence."""

    reached: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)
    reads: int = 0
    vanishes: bool = False

    def pass_through(self) -> None:
        """Wait at the second read of the offsets, which is the fence's."""
        self.reads += 1
        if self.reads == 1:
            return
        self.reached.set()
        self.opened.wait(WAIT_S)
        if self.vanishes:
            raise LakeUnavailableError("vanished")


@dataclass(slots=True)
class _Lake:
    """One writer's view of the table, as `Lake` and `LakeTable`."""

    content: _Content
    gate: _Gate = field(default_factory=_Gate)
    staged: dict[str, tuple[Row, ...]] = field(default_factory=dict[str, tuple[Row, ...]])
    name: str = f"lake.{TOPIC}"

    def to_frame(self, records: Any) -> Frame:
        columns = (records.column(name).to_pylist() for name in COLUMNS)
        rows = zip(*columns, strict=True)
        return Frame(Row(TopicPartition(topic, number), at, value) for topic, number, at, value in rows)

    def is_empty(self, frame: Frame) -> bool:
        return not frame.rows

    def open_table(self, _name: str) -> Self:
        return self

    def read_offsets(self, *, refresh: bool = True) -> VersionedOffsets:  # noqa: ARG002 - never stale
        if threading.current_thread().name == "trimtab-flush":
            self.gate.pass_through()
        return VersionedOffsets(self.content.offsets, self.content.offsets.encode())

    def has_committed(self, _attempt: str) -> bool:
        return False

    def evolve_schema(self, _frame: Frame) -> None: ...

    def stage_rows(self, frame: Frame, attempt: str) -> StagedFiles:
        self.staged[attempt] = frame.rows
        return StagedFiles(attempt, (attempt,), len(frame.rows))

    def commit(
        self, staged: StagedFiles, offsets: CommittedOffsets, expected: VersionedOffsets, _gaps: Any = None
    ) -> None:
        with self.content.lock:
            if self.content.offsets.encode() != expected.version:
                raise CommitConflictError(self.name)
            self.content.offsets = offsets
            self.content.rows += self.staged.pop(staged.attempt)

    def delete_staged_files(self, staged: StagedFiles) -> None:
        del self.staged[staged.attempt]

    def close(self) -> None: ...


@dataclass(slots=True)
class _Consumer:
    """The data plane: a position for each partition."""

    positions: dict[int, int] = field(default_factory=lambda: dict.fromkeys(PARTITIONS, 0))

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Any]:  # noqa: ARG002 - the interface
        return []

    def incremental_assign(self, partitions: Iterable[Any]) -> None:
        for partition in partitions:
            self.positions[partition.partition] = 0 if partition.offset == OFFSET_STORED else partition.offset

    def incremental_unassign(self, partitions: Any) -> None: ...
    def commit(self, *, offsets: Any, asynchronous: bool = True) -> None: ...

    def pop_offset_resets(self) -> list[Any]:
        return []

    def batch_max_age_s(self) -> float | None:
        return None


@dataclass(frozen=True, slots=True)
class _Record:
    """A record, as confluent-kafka's Message."""

    number: int
    at: int

    def topic(self) -> str:
        return TOPIC

    def partition(self) -> int:
        return self.number

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_000

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b"x"

    def headers(self) -> None:
        return None

    def error(self) -> None:
        return None


class Product:
    """The writers of all members, which follow a trace step by step."""

    def __init__(self, start: State) -> None:
        offsets = {_partition(number): offset for number, offset in enumerate(start.offsets)}
        self._content = _Content(CommittedOffsets({GROUP: offsets}))
        self._lakes = [_Lake(self._content) for _ in MEMBERS]
        self._consumers = [_Consumer() for _ in MEMBERS]
        self._writers = [
            LakeWriter(consumer, CONFIG, lake=lake)  # type: ignore[arg-type] # Self is not a LakeTable
            for consumer, lake in zip(self._consumers, self._lakes, strict=True)
        ]
        self._state = start
        for writer, member in zip(self._writers, start.members, strict=True):
            if member.owned:
                writer.on_assign(None, _raw(member.owned))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the flush threads."""
        for number, writer in enumerate(self._writers):
            self._open_gate(number, vanishes=True)
            writer.__exit__(Exception, None, None)

    def step(self, action: Action, after: State) -> None:
        """Take a step. Raises DivergenceError if the product is not as the model is after it."""
        before, number = self._state, action.member
        match action.name:
            case "read":
                self._read(number, action.partition, before)
            case "land" | "vanish":
                self._open_gate(number, vanishes=action.name == "vanish")
                self._collect(number, after)
            case "thaw":
                self._collect(number, after)
            case "crash":
                self._cancel(number)
            case "receive" | "begin":
                self._rebalance(number, before, after)
        self._lose(before, after)
        self._state = after
        self._compare(action)

    def _read(self, number: int, partition: int, before: State) -> None:
        position = self._consumers[number].positions[partition]
        if position != before.members[number].positions[partition]:
            raise DivergenceError(f"m{number} would read {partition} at {position}: {before}")
        self._consumers[number].positions[partition] = position + 1
        gate = self._lakes[number].gate = _Gate()
        self._writers[number].write([_Record(partition, position)])
        flight = self._flight(number)
        if flight is not None:
            flight.future.add_done_callback(lambda _: gate.reached.set())  # refused by its first read
            gate.reached.wait(WAIT_S)

    def _open_gate(self, number: int, *, vanishes: bool) -> None:
        gate, flight = self._lakes[number].gate, self._flight(number)
        gate.vanishes = vanishes
        if vanishes:
            self._cancel(number)
        gate.opened.set()
        if flight is not None and not flight.wait(WAIT_S):
            raise DivergenceError(f"m{number}: the flush does not end")

    def _collect(self, number: int, after: State) -> None:
        if after.members[number].life == UP:
            self._writers[number].write([])

    def _cancel(self, number: int) -> None:
        flight = self._flight(number)
        if flight is not None:
            flight.cancel()

    def _flight(self, number: int) -> InFlightFlush | None:
        """Return the flush in flight: there is one table."""
        return next(iter(self._writers[number]._flushes.in_flight.values()), None)

    def _rebalance(self, number: int, before: State, after: State) -> None:
        had, has = before.members[number].owned, after.members[number].owned
        if had & ~has:
            self._writers[number].on_revoke(None, _raw(had & ~has))
        if has & ~had:
            self._consumers[number].positions.update({p.partition: 0 for p in _raw(has & ~had)})
            self._writers[number].on_assign(None, _raw(has & ~had))

    def _lose(self, before: State, after: State) -> None:
        for number in MEMBERS:
            had, has = before.members[number], after.members[number]
            lost = had.behind != OUTSIDE and has.behind == OUTSIDE and has.life != DEAD
            if lost and had.owned:
                self._writers[number].on_lost(None, _raw(had.owned))

    def _compare(self, action: Action) -> None:
        state = self._state
        offsets = tuple(self._content.offsets.next_offset(GROUP, _partition(p)) for p in PARTITIONS)
        rows = tuple(
            tuple(
                sum(
                    row.partition.partition == partition and row.offset == offset
                    for row in self._content.rows
                )
                for offset in range(len(state.rows[partition]))
            )
            for partition in PARTITIONS
        )
        owned = [
            sum(1 << p for p in PARTITIONS if _partition(p) in writer._positions._owned)
            if member.life == UP
            else None
            for writer, member in zip(self._writers, state.members, strict=True)
        ]
        expected = [member.owned if member.life == UP else None for member in state.members]
        if (offsets, rows, owned) != (state.offsets, state.rows, expected):
            raise DivergenceError(f"after {action}: {(offsets, rows, owned)}, the model has {state}")


def _partition(number: int) -> TopicPartition:
    return TopicPartition(TOPIC, number)


def _raw(mask: int) -> list[RawPartition]:
    return [RawPartition(TOPIC, number) for number in PARTITIONS if mask >> number & 1]
