"""Protocols of the lake writer: a consumer to fetch from, a lake to write to.

Each table format implements `Lake`; the tests in `tests/contract` check it against the promises here.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from trimtab.consumer_sdk.client.offset_reset import OffsetReset
from trimtab.consumer_sdk.lake.offsets.offset_gaps import TableGaps
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets
from trimtab.consumer_sdk.lake.schema.partition_spec import PartitionSpec

Records: TypeAlias = Any  # a pyarrow Table with the record columns; pyarrow ships no types
# A Spark DataFrame, or an Arrow table of rows (`lake.file.writer`); for the topic table of
# `lake.write: upsert` a KeyedChanges, whose commit also drops the present rows of its keys
Frame: TypeAlias = Any


class ConsumedMessage(Protocol):
    """Used methods of confluent-kafka's Message."""

    # confluent-kafka documents them.
    def topic(self) -> Any: ...  # noqa: D102
    def partition(self) -> Any: ...  # noqa: D102
    def offset(self) -> Any: ...  # noqa: D102
    def timestamp(self) -> tuple[int, int]: ...  # noqa: D102
    def key(self) -> Any: ...  # noqa: D102
    def value(self) -> Any: ...  # noqa: D102
    def headers(self) -> Any: ...  # noqa: D102
    def error(self) -> Any: ...  # noqa: D102


class RecordConsumer(Protocol):
    """Used methods of `trimtab.consumer_sdk.Consumer`, which documents them."""

    # `num_messages=0` serves rebalance callbacks only.
    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Any]: ...  # noqa: D102
    def incremental_assign(self, partitions: Sequence[Any]) -> None: ...  # noqa: D102
    # Also drops records that librdkafka has fetched in advance.
    def incremental_unassign(self, partitions: Sequence[Any]) -> None: ...  # noqa: D102
    def pop_offset_resets(self) -> list[OffsetReset]: ...  # noqa: D102
    # None: the configured `batch.max.age` applies; the plan's freshness SLO may lower it.
    def batch_max_age_s(self) -> float | None: ...  # noqa: D102
    def commit(self, *, offsets: Sequence[Any], asynchronous: bool = True) -> Any: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class StagedFiles:
    """Data files of one attempt, not yet visible."""

    attempt: str
    files: tuple[Any, ...] = ()  # handles of the table format
    rows: int = 0
    bytes: int = 0
    begun_at: float = 0.0  # seconds of the flush's clock, before the first file was written


@dataclass(frozen=True, slots=True)
class StagedChanges(StagedFiles):
    """Staged upserts, and the rows that their commit deletes."""

    old_rows: Any = None  # of the table format: positions of rows with the changed keys


def new_attempt_id() -> str:
    """Return a unique id that marks the files and the commit of an attempt."""
    return f"trimtab-{uuid.uuid4().hex}"  # noqa: TID251 - two processes must never choose alike


@dataclass(frozen=True, slots=True)
class VersionedOffsets:
    """A table's offsets as read."""

    offsets: CommittedOffsets
    version: str  # the encoded offsets, which the fence compares byte for byte; "" for none
    snapshot_id: int | None = None  # of the table when they were read (Delta: its version); None: it had none

    @classmethod
    def decode(cls, text: str | None, where: str, snapshot_id: int | None = None) -> "VersionedOffsets":
        """Parse the offsets of table `where`, None for none. Raises CommittedOffsetsLostError."""
        if text is None:
            return cls(CommittedOffsets(), "", snapshot_id)
        return cls(CommittedOffsets.decode(text, where), text, snapshot_id)


class LakeTable(Protocol):
    """One opened table. Every method raises LakeUnavailableError for transient failures."""

    @property
    def name(self) -> str:
        """Namespace and name, as in SQL."""
        ...

    def read_offsets(self, *, refresh: bool = True) -> VersionedOffsets:
        """Refresh the table and return its offsets. Raises CommittedOffsetsLostError.

        Without `refresh`: those of the last refresh, or of the opening.
        """
        ...

    def read_gaps(self) -> TableGaps:
        """Return the offsets that the table lacks permanently. Raises CommittedOffsetsLostError."""
        ...

    def read_property(self, name: str) -> str | None:
        """Return a table property, at least as new as the last refresh."""
        ...

    def has_committed(self, attempt: str) -> bool:
        """Return whether an attempt's commit is in the table's history."""
        ...

    def evolve_schema(self, frame: Frame) -> None:
        """Add a frame's missing columns to the table. Raises CommitConflictError."""
        ...

    def stage_rows(self, frame: Frame, attempt: str) -> StagedFiles:
        """Write a frame's rows as data files. Raises TableSchemaMismatchError, TransformError.

        For a KeyedChanges, return StagedChanges.
        """
        ...

    def commit(
        self,
        staged: StagedFiles,
        offsets: CommittedOffsets,
        expected: VersionedOffsets,
        gaps: TableGaps | None = None,
    ) -> None:
        """Add files and offsets in one commit if the table's offsets are still `expected`.

        `gaps` replace the table's gaps; None keeps them. Raises CommitConflictError if the offsets
        differ or another writer was faster. After LakeUnavailableError the outcome is unknown:
        call `has_committed`. StagedChanges also delete the rows of their keys, wherever these are now.
        """
        ...

    def delete_staged_files(self, staged: StagedFiles) -> None:
        """Delete files that will not be committed; failures are logged only."""
        ...


class Lake(Protocol):
    """A catalog of tables and the engine that writes them."""

    def to_frame(self, records: Records) -> Frame:
        """Return a frame of these records, for `stage_rows`."""
        ...

    def is_empty(self, frame: Frame) -> bool:
        """Return whether a frame has no rows. Raises TransformError."""
        ...

    def open_table(self, name: str) -> LakeTable | None:
        """Return a table, None if it does not exist. Raises LakeUnavailableError."""
        ...

    def list_tables(self) -> Sequence[str]:
        """Return the names of all tables, sorted. Raises LakeUnavailableError."""
        ...

    def create_table(self, name: str, frame: Frame, partition_spec: PartitionSpec = ()) -> LakeTable:
        """Return a table; create it with the frame's columns if it does not exist. Raises SettingError."""
        ...

    def close(self) -> None:
        """Release the resources that this lake started."""
        ...
