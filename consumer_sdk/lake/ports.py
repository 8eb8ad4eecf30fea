"""What the sink needs of others: a consumer to fetch with, and a lake to write into.

`LakeWriter` and the flush know these Protocols only. A second table format is a second `Lake`; the
contract tests in `tests/contract` hold it to the promises written here.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from trimtab.consumer_sdk.consumer.offset_reset import OffsetReset
from trimtab.consumer_sdk.lake.offsets.offset_gaps import TableGaps
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets
from trimtab.consumer_sdk.lake.schema.partition_spec import PartitionSpec

Records: TypeAlias = Any
"""A pyarrow Table with the record columns; Any, because pyarrow ships no types."""

Frame: TypeAlias = Any
"""A Spark DataFrame, or an Arrow table of rows (`lake.file.writer: arrow`).

Any, so that this module does not import pyspark.
"""


class ConsumedMessage(Protocol):
    """The part of confluent-kafka's message that is used."""

    # The names are confluent-kafka's, and so is what they promise.
    def topic(self) -> Any: ...  # noqa: D102
    def partition(self) -> Any: ...  # noqa: D102
    def offset(self) -> Any: ...  # noqa: D102
    def timestamp(self) -> tuple[int, int]: ...  # noqa: D102
    def key(self) -> Any: ...  # noqa: D102
    def value(self) -> Any: ...  # noqa: D102
    def headers(self) -> Any: ...  # noqa: D102
    def error(self) -> Any: ...  # noqa: D102


class RecordConsumer(Protocol):
    """The part of `trimtab.consumer_sdk.Consumer` that is used."""

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Any]:
        """Return records; with `num_messages=0` only serve callbacks."""
        ...

    def incremental_assign(self, partitions: Sequence[Any]) -> None:
        """Begin to read at these offsets."""
        ...

    def incremental_unassign(self, partitions: Sequence[Any]) -> None:
        """Stop reading these, and forget what was fetched of them."""
        ...

    def pop_offset_resets(self) -> list[OffsetReset]:
        """Return the offsets that were gone since the last call, and where reading went on."""
        ...

    def batch_max_age_s(self) -> float | None:
        """Return how many seconds records may be collected, None for as long as is set."""
        ...

    def commit(self, *, offsets: Sequence[Any], asynchronous: bool = True) -> Any:
        """Commit offsets to Kafka."""
        ...


@dataclass(frozen=True, slots=True)
class StagedFiles:
    """Data files of one attempt, written and not yet visible.

    `files` is the table format's own handle.
    """

    attempt: str
    files: tuple[Any, ...] = ()
    rows: int = 0
    bytes: int = 0


def new_attempt_id() -> str:
    """Return an id for an attempt, by which its files and its commit are known again."""
    return f"trimtab-{uuid.uuid4().hex}"  # noqa: TID251 - two processes must never choose alike


@dataclass(frozen=True, slots=True)
class VersionedOffsets:
    """A table's marks as they were read, and the version they were read from."""

    offsets: CommittedOffsets
    version: str


class LakeTable(Protocol):
    """One table, as seen when it was opened.

    Every method raises LakeUnavailableError when it may work later.
    """

    @property
    def name(self) -> str:
        """Namespace and name, as in SQL."""
        ...

    def read_offsets(self) -> VersionedOffsets:
        """Read the table afresh. Raises CommittedOffsetsLostError."""
        ...

    def read_gaps(self) -> TableGaps:
        """Return the offsets that the table lacks for good. Raises CommittedOffsetsLostError."""
        ...

    def has_committed(self, attempt: str) -> bool:
        """Whether an attempt's commit is in the table's history.

        For a commit of unknown outcome.
        """
        ...

    def evolve_schema(self, frame: Frame) -> None:
        """Add the columns that a frame has and the table lacks (see `evolution`).

        Raises CommitConflictError if another writer changed the table first.
        """
        ...

    def stage_rows(self, frame: Frame, attempt: str) -> StagedFiles:
        """Write a frame's rows as data files that nobody sees.

        Raises TableSchemaMismatchError, TransformError.
        """
        ...

    def commit(
        self,
        staged: StagedFiles,
        offsets: CommittedOffsets,
        expected: VersionedOffsets,
        gaps: TableGaps | None = None,
    ) -> None:
        """Add files and marks at once, if the table's marks are still those that were seen.

        `gaps` are all that the table has from now on; None: they stay.

        Raises CommitConflictError if they are not, or if another writer was faster; after LakeUnavailableError
        the outcome is unknown: ask `has_committed`.
        """
        ...

    def delete_staged_files(self, staged: StagedFiles) -> None:
        """Delete files that will never be committed; a failure to do so is logged only."""
        ...


class Lake(Protocol):
    """A catalog of tables and the engine that writes them."""

    def to_frame(self, records: Records) -> Frame:
        """Return what a table stages these rows from."""
        ...

    def is_empty(self, frame: Frame) -> bool:
        """Whether a frame has no rows. Raises TransformError."""
        ...

    def open_table(self, name: str) -> LakeTable | None:
        """Return a table, None where there is none of that name. Raises LakeUnavailableError."""
        ...

    def create_table(
        self, name: str, frame: Frame, partition_spec: PartitionSpec = ()
    ) -> LakeTable:
        """Return the table of that name, made with the frame's columns if it is missing.

        Raises SettingError for a partitioning that the columns or the format do not allow.
        """
        ...

    def close(self) -> None:
        """Free what was started here."""
        ...
