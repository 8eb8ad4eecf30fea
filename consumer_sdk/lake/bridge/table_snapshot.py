"""One version of a table: its committed offsets and its rows, which belong together."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.consumer_sdk.lake.bridge.spark_rows import SparkRows
from trimtab.consumer_sdk.lake.changes.keyed_changes import KeyedChanges
from trimtab.consumer_sdk.lake.model.interfaces import Frame, Records
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """One version of a table, or none."""

    version: int | None = None  # Iceberg's snapshot id, Delta's version; None: the table has no rows yet
    offsets: CommittedOffsets = field(default_factory=CommittedOffsets)
    scan: Callable[[], Frame] | None = None  # None: the table does not exist
    identity: object = None  # of the version; another table of the same name has others


class SnapshotReader(Protocol):
    """Reads versions of one table, and joins rows with others. Raises LakeUnavailableError."""

    @property
    def keeps_rows(self) -> bool:
        """Whether scans return rows in memory, which are worth keeping."""
        ...

    def read_snapshot(
        self, group: str, partitions: Iterable[TopicPartition], *, newest: bool = False
    ) -> TableSnapshot:
        """Return the newest version, with the group's offsets of at least these partitions.

        Unless `newest`, it may be an older one whose rows are in memory. Raises CommittedOffsetsLostError.
        """
        ...

    def to_frame(self, records: Records) -> Frame:
        """Return a frame of Arrow records, to decode."""
        ...

    def join_rows(self, rows: Frame | None, behind: Frame | KeyedChanges | None) -> Records | SparkRows:
        """Return what a scan returned with the decoded records behind it; one of both may be None.

        By name; a column that one of them lacks is null there. Raises TableSchemaMismatchError for columns
        of types that have no common one.
        """
        ...
