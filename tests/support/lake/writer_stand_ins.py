"""A lake, a consumer, records and a clock that the writer's unit tests drive by hand."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import SystemClock
from trimtab.consumer_sdk.client.offset_reset import OffsetReset
from trimtab.consumer_sdk.errors import CommitConflictError, LakeUnavailableError
from trimtab.consumer_sdk.lake.changes.keyed_changes import KeyedChanges
from trimtab.consumer_sdk.lake.model.interfaces import (
    Frame,
    LakeTable,
    Records,
    StagedChanges,
    StagedFiles,
    VersionedOffsets,
)
from trimtab.consumer_sdk.lake.model.partition_spec import PartitionSpec
from trimtab.consumer_sdk.lake.offsets.offset_gaps import TableGaps
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets

Place: TypeAlias = tuple[int, int]
"""Partition and offset of a record."""

ROW_BYTES: Final = 100

CONFIG: dict[str, Any] = {"group.id": "g", "enable.auto.commit": False, "lake.warehouse": "lake"}
OFFSETS = CommittedOffsets({"g": {TopicPartition("a", 0): 10}})


class ManualClock(SystemClock):
    """A clock that is advanced by hand."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


class EmptyConsumer:
    """A consumer without records."""

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Any]:  # noqa: ARG002 - the interface
        return []

    def incremental_assign(self, partitions: Any) -> None: ...
    def incremental_unassign(self, partitions: Any) -> None: ...
    def commit(self, *, offsets: Any, asynchronous: bool = True) -> None: ...

    def pop_offset_resets(self) -> list[OffsetReset]:
        return []

    def batch_max_age_s(self) -> float | None:
        return None


Hook: TypeAlias = Callable[[], None]


def nothing() -> None: ...


@dataclass
class MemoryTable:
    """A table in memory; `before_commit` and `after_commit` stand in for a catalog and for other writers."""

    name: str
    offsets: CommittedOffsets = field(default_factory=CommittedOffsets)
    gaps: TableGaps = field(default_factory=TableGaps)
    spec: PartitionSpec = ()
    columns: Sequence[str] = ()
    entries: list[tuple[bytes | None, Place]] = field(
        default_factory=list[tuple[bytes | None, Place]]
    )  # by key
    attempts: list[str] = field(default_factory=list[str])  # of the calls of commit
    history: set[str] = field(default_factory=set[str])  # attempts that are committed
    staged: list[str] = field(default_factory=list[str])
    deleted: list[str] = field(default_factory=list[str])
    is_evolved: bool = False
    refreshes: int = 0
    before_commit: Hook = nothing
    after_commit: Hook = nothing
    on_call: Callable[[str], None] = lambda _: None

    @property
    def places(self) -> list[Place]:
        """Partition and offset of each row."""
        return [place for _, place in self.entries]

    def read_offsets(self, *, refresh: bool = True) -> VersionedOffsets:
        self.on_call("read_offsets")
        self.refreshes += refresh
        return VersionedOffsets(self.offsets, self.offsets.encode())

    def has_committed(self, attempt: str) -> bool:
        return attempt in self.history

    def evolve_schema(self, frame: Frame) -> None:  # noqa: ARG002 - the interface
        self.is_evolved = True

    def stage_rows(self, frame: Frame, attempt: str) -> StagedFiles:
        self.on_call("stage_rows")
        self.staged.append(attempt)
        if isinstance(frame, KeyedChanges):
            keys = frame.upserts.column("key").to_pylist()
            entries = tuple(zip(keys, _list_places(frame.upserts), strict=True))
            touched = {*frame.touched_keys.column("key").to_pylist()}
            return StagedChanges(attempt, entries, len(entries), ROW_BYTES * len(entries), old_rows=touched)
        entries = tuple((None, place) for place in _list_places(frame))
        return StagedFiles(attempt, entries, len(entries), ROW_BYTES * len(entries))

    def read_gaps(self) -> TableGaps:
        return self.gaps

    def read_property(self, name: str) -> str | None:  # noqa: ARG002 - no compaction holds it up
        return None

    def commit(
        self,
        staged: StagedFiles,
        offsets: CommittedOffsets,
        expected: VersionedOffsets,
        gaps: TableGaps | None = None,
    ) -> None:
        self.on_call("commit")
        self.attempts.append(staged.attempt)
        self.before_commit()
        if expected.version != self.offsets.encode():
            raise CommitConflictError(self.name)
        self.offsets, self.gaps = offsets, gaps or self.gaps
        touched = staged.old_rows if isinstance(staged, StagedChanges) else ()
        self.entries = [*(entry for entry in self.entries if entry[0] not in touched), *staged.files]
        self.history.add(staged.attempt)
        self.after_commit()
        self.on_call("commit_answered")

    def delete_staged_files(self, staged: StagedFiles) -> None:
        self.deleted.append(staged.attempt)


class MemoryLake:
    """A lake of these tables; `on_call` gets the name of a table and of a call."""

    def __init__(self, *tables: MemoryTable, on_call: Callable[[str, str], None] = lambda *_: None) -> None:
        self.tables = {table.name: table for table in tables}
        self.on_call = on_call

    def to_frame(self, records: Records) -> Frame:
        return records

    def is_empty(self, frame: Frame) -> bool:
        return bool(frame.num_rows == 0)

    def open_table(self, name: str) -> LakeTable | None:
        self.on_call(name, "open_table")
        return self.tables.get(name)

    def list_tables(self) -> list[str]:
        self.on_call("", "list_tables")
        return sorted(self.tables)

    def create_table(self, name: str, frame: Frame, partition_spec: PartitionSpec = ()) -> LakeTable:
        self.on_call(name, "create_table")
        columns = frame.schema.names
        calls = partial(self.on_call, name)
        return self.tables.setdefault(
            name, MemoryTable(name, spec=partition_spec, columns=columns, on_call=calls)
        )

    def close(self) -> None: ...


def _list_places(rows: Any) -> list[Place]:
    return list(zip(rows.column("partition").to_pylist(), rows.column("offset").to_pylist(), strict=True))


class Lake(MemoryLake):
    """A lake whose every table exists, and knows partition a-0."""

    def open_table(self, name: str) -> LakeTable | None:
        self.tables.setdefault(name, MemoryTable(name, OFFSETS))
        return super().open_table(name)


class UnavailableLake(Lake):
    """A lake that fails every call."""

    def list_tables(self) -> list[str]:
        raise LakeUnavailableError("the catalog does not answer")

    def open_table(self, name: str) -> LakeTable | None:
        raise LakeUnavailableError(f"{name}: catalog or storage do not answer")


class Record:
    """A record of topic a."""

    def __init__(self, offset: int, partition: int = 1) -> None:
        self._offset = offset
        self._partition = partition

    def topic(self) -> str:
        return "a"

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_000

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes:
        return b"x" * 1000

    def headers(self) -> None:
        return None

    def error(self) -> None:
        return None


class OtherRecord(Record):
    """A record of topic b."""

    def topic(self) -> str:
        return "b"


class StartConsumer(EmptyConsumer):
    """Keeps the partitions that are started and stopped."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.offsets: list[tuple[str, int]] = []
        self.stopped: list[str] = []

    def incremental_assign(self, partitions: Any) -> None:
        self.started += [partition.topic for partition in partitions]
        self.offsets += [(partition.topic, partition.offset) for partition in partitions]

    def incremental_unassign(self, partitions: Any) -> None:
        self.stopped += [partition.topic for partition in partitions]
