"""The simulated lake: tables in memory behind the ports `Lake` and `LakeTable`.

A commit checks the table once more when it arrives, as Iceberg's validator does, and adds rows
and offsets at once. Faults: a call gets no response, before or after its work was done; a commit
without a response takes effect later, unless the table has changed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from simulation.keyed import list_rows
from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import CommitConflictError, LakeUnavailableError, TableSchemaMismatchError
from trimtab.consumer_sdk.lake.changes.keyed_changes import KeyedChanges
from trimtab.consumer_sdk.lake.model.interfaces import Records, StagedFiles, VersionedOffsets
from trimtab.consumer_sdk.lake.model.partition_spec import PartitionSpec
from trimtab.consumer_sdk.lake.offsets.offset_gaps import TableGaps
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets
from trimtab.testing.simulation import green

COLUMNS: Final = ("topic", "partition", "offset", "value")


class Row(NamedTuple):
    """A row of a table: the coordinates of a record and its value."""

    partition: TopicPartition
    offset: int
    value: bytes
    key: str = ""  # of a table of upserts


class Frame(DataFrame):  # type: ignore[misc] # the transform's contract asks for this class
    """Rows before a commit; `columns_` are their names."""

    rows: tuple[Row, ...]
    columns_: frozenset[str]

    def __new__(cls, rows: Iterable[Row], columns: Iterable[str] = COLUMNS) -> Self:
        frame = object.__new__(cls)
        frame.rows, frame.columns_ = tuple(rows), frozenset(columns)
        return frame

    def __init__(self, rows: Iterable[Row], columns: Iterable[str] = COLUMNS) -> None: ...

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return sorted(self.columns_)

    @property
    def schema(self) -> StructType:
        """No values are checked."""
        return StructType()

    def selectExpr(self, *expressions: Any) -> "Frame":  # noqa: N802 - the interface
        """Add columns, as a contract test requests: "'x' AS name"."""
        added = {e.rpartition(" ")[2] for e in expressions if e != "*"}
        return Frame(self.rows, self.columns_ | added)

    def keep(self, wanted: Callable[[Row], bool]) -> "Frame":
        """Return the selected rows."""
        return Frame((row for row in self.rows if wanted(row)), self.columns_)


AnyFrame: TypeAlias = Frame | KeyedChanges


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One version of a table."""

    attempt: str
    marks: CommittedOffsets
    rows: tuple[Row, ...] = ()
    dropped: frozenset[str] = frozenset()  # keys whose rows it deletes, before it adds its own
    gaps: TableGaps = field(default_factory=TableGaps)


class StagedRows(NamedTuple):
    """Files of an attempt: rows, and the keys that they replace or delete."""

    rows: tuple[Row, ...] = ()
    dropped: frozenset[str] = frozenset()


@dataclass(slots=True)
class Content:
    """A stored table, apart from the views of its clients."""

    name: str
    columns: frozenset[str] = frozenset(COLUMNS)
    snapshots: list[Snapshot] = field(default_factory=lambda: [Snapshot("", CommittedOffsets())])
    staged: dict[str, StagedRows] = field(default_factory=dict[str, StagedRows])
    keyed: bool = False
    seen: Counter[tuple[TopicPartition, int]] = field(default_factory=Counter[tuple[TopicPartition, int]])

    @property
    def marks(self) -> CommittedOffsets:
        """The newest marks."""
        return self.snapshots[-1].marks

    @property
    def gaps(self) -> TableGaps:
        """The newest gaps."""
        return self.snapshots[-1].gaps

    def count(self) -> int:
        """Return the number of visible rows."""
        return sum(len(snapshot.rows) for snapshot in self.snapshots)

    def read_rows(self) -> list[Row]:
        """Return the rows of a table of upserts."""
        rows: list[Row] = []
        for snapshot in self.snapshots:
            rows = [*(row for row in rows if row.key not in snapshot.dropped), *snapshot.rows]
        return rows


class Trouble:
    """Faults of the next calls of the lake: probabilities per call, and `away` until a time."""

    def __init__(self, hub: green.Hub) -> None:
        self._hub = hub
        self.failing = 0.0
        self.unanswered = 0.0
        self.late = 0.0
        self.away = 0.0

    def heal(self) -> None:
        """Stop all faults."""
        self.failing = self.unanswered = self.late = self.away = 0.0

    def begin(self) -> None:
        """Wait for the duration of a call. Raises LakeUnavailableError, with nothing done."""
        self._hub.sleep(self._hub.rng.uniform(0.005, 0.1))
        if self._hub.now < self.away or self._hub.rng.random() < self.failing:
            raise LakeUnavailableError("simulated: no answer, nothing was done")

    def comes_late(self) -> float:
        """Return the seconds after which a commit lands, 0 for at once."""
        rng = self._hub.rng
        return rng.uniform(0.1, 4.0) if rng.random() < self.late else 0.0

    def answer(self) -> None:
        """Wait for the duration of the response. Raises LakeUnavailableError although the work is done."""
        self._hub.sleep(self._hub.rng.uniform(0.001, 0.02))
        if self._hub.rng.random() < self.unanswered:
            raise LakeUnavailableError("simulated: the answer was lost")


class Table:
    """A table as `LakeTable`."""

    def __init__(self, lake: "Lake", content: Content) -> None:
        self._lake = lake
        self.content = content

    @property
    def name(self) -> str:
        return self.content.name

    def read_offsets(self, *, refresh: bool = True) -> VersionedOffsets:  # noqa: ARG002 - never stale
        self._lake.trouble.begin()
        return VersionedOffsets(self.content.marks, self.content.marks.encode())

    def read_gaps(self) -> TableGaps:
        return self.content.gaps

    def read_property(self, name: str) -> str | None:  # noqa: ARG002 - the interface; no compaction holds it up
        return None

    def has_committed(self, attempt: str) -> bool:
        self._lake.trouble.begin()
        return any(snapshot.attempt == attempt for snapshot in self.content.snapshots)

    def evolve_schema(self, frame: AnyFrame) -> None:
        self._lake.trouble.begin()
        self.content.columns |= _list_columns(frame)
        self._lake.trouble.answer()

    def stage_rows(self, frame: AnyFrame, attempt: str) -> StagedFiles:
        self._lake.trouble.begin()
        surplus = sorted(_list_columns(frame) - self.content.columns)
        if surplus:
            raise TableSchemaMismatchError(f"{self.name} lacks {surplus[0]} string")
        staged = self.content.staged[attempt] = _stage(frame)
        self._lake.trouble.answer()
        return StagedFiles(attempt, (attempt,), len(staged.rows), 100 * len(staged.rows))

    def commit(
        self,
        staged: StagedFiles,
        offsets: CommittedOffsets,
        expected: VersionedOffsets,
        gaps: TableGaps | None = None,
    ) -> None:
        self._lake.trouble.begin()
        late = self._lake.trouble.comes_late()
        if late:
            self._lake.hub.at(late, lambda: self._land(staged, offsets, expected, gaps))
            raise LakeUnavailableError("simulated: no answer, it may land yet")
        if not self._land(staged, offsets, expected, gaps):
            raise CommitConflictError(f"{self.name}: the marks have moved")
        self._lake.trouble.answer()

    def delete_staged_files(self, staged: StagedFiles) -> None:
        if not green.process().alive:
            raise green.Killed
        self.content.staged.pop(staged.attempt, None)

    def _land(
        self, staged: StagedFiles, marks: CommittedOffsets, seen: VersionedOffsets, gaps: TableGaps | None
    ) -> bool:
        if self.content.marks.encode() != seen.version:
            return False
        rows, dropped = self.content.staged.pop(staged.attempt, StagedRows())
        if len(rows) != staged.rows:
            self._lake.on_missing(self.content, staged)
        snapshot = Snapshot(staged.attempt, marks, rows, dropped, gaps or self.content.gaps)
        self._lake.on_commit(self.content, snapshot)
        self.content.snapshots.append(snapshot)
        if self.content.keyed:
            self._lake.on_changes(self.content)
        return True


class Lake:
    """A catalog as `Lake`; `on_commit` sees each snapshot before it is added, `on_changes` upserts after."""

    def __init__(self, hub: green.Hub) -> None:
        self.hub = hub
        self.tables: dict[str, Content] = {}
        self.trouble = Trouble(hub)
        self.on_commit: Callable[[Content, Snapshot], None] = lambda _content, _snapshot: None
        self.on_changes: Callable[[Content], None] = lambda _content: None
        self.on_missing: Callable[[Content, StagedFiles], None] = lambda _content, _staged: None

    def to_frame(self, records: Records) -> Frame:
        columns = (records.column(name).to_pylist() for name in COLUMNS)
        return Frame(
            Row(TopicPartition(topic, partition), offset, value)
            for topic, partition, offset, value in zip(*columns, strict=True)
        )

    def is_empty(self, frame: Frame) -> bool:
        return not frame.rows

    def open_table(self, name: str) -> Table | None:
        self.trouble.begin()
        content = self.tables.get(name)
        return None if content is None else Table(self, content)

    def list_tables(self) -> list[str]:
        self.trouble.begin()
        return sorted(self.tables)

    def create_table(self, name: str, frame: AnyFrame, partition_spec: PartitionSpec = ()) -> Table:  # noqa: ARG002 - the interface
        self.trouble.begin()
        content = self.tables.setdefault(
            name, Content(name, _list_columns(frame), keyed=isinstance(frame, KeyedChanges))
        )
        self.trouble.answer()
        return Table(self, content)

    def close(self) -> None: ...


def _list_columns(frame: AnyFrame) -> frozenset[str]:
    return frozenset(frame.schema.names) if isinstance(frame, KeyedChanges) else frame.columns_


def _stage(frame: AnyFrame) -> StagedRows:
    if isinstance(frame, KeyedChanges):
        dropped = frozenset(frame.touched_keys.column("id").to_pylist())
        return StagedRows(tuple(Row(*row) for row in list_rows(frame)), dropped)
    return StagedRows(frame.rows)


def split(frame: Frame) -> Mapping[str, Any]:
    """Send every third record to a second table, by its value: the transform of some histories."""
    return {
        "orders": frame.keep(lambda row: int(row.value) % 3 != 0),
        "thirds": frame.keep(lambda row: int(row.value) % 3 == 0),
    }
