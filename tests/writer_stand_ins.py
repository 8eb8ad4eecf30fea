"""A lake, a consumer, records and a clock that the writer's unit tests drive by hand."""

from typing import Any

from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import SystemClock
from trimtab.consumer_sdk.consumer.offset_reset import OffsetReset
from trimtab.consumer_sdk.errors import LakeUnavailableError
from trimtab.consumer_sdk.lake.interfaces import Frame, LakeTable, Records, StagedFiles, VersionedOffsets
from trimtab.consumer_sdk.lake.offsets.offset_gaps import TableGaps
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets

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


class Table:
    """A table that knows partition a-0 and only its offsets are read."""

    name = "lake.a"

    def read_offsets(self, *, refresh: bool = True) -> VersionedOffsets:  # noqa: ARG002 - never stale
        return VersionedOffsets(OFFSETS, OFFSETS.encode())

    def has_committed(self, attempt: str) -> bool:
        raise AssertionError(attempt)

    def stage_rows(self, frame: Frame, attempt: str) -> StagedFiles:
        raise AssertionError(frame, attempt)

    def read_gaps(self) -> TableGaps:
        raise AssertionError

    def read_property(self, name: str) -> str | None:
        raise AssertionError(name)

    def commit(
        self,
        staged: StagedFiles,
        offsets: CommittedOffsets,
        expected: VersionedOffsets,
        gaps: TableGaps | None = None,
    ) -> None:
        raise AssertionError(staged, offsets, expected, gaps)

    def delete_staged_files(self, staged: StagedFiles) -> None:
        raise AssertionError(staged)


class Lake:
    """A lake whose every table is that one."""

    def to_frame(self, records: Records) -> Frame:
        raise AssertionError(records)

    def is_empty(self, frame: Frame) -> bool:
        raise AssertionError(frame)

    def open_table(self, name: str) -> LakeTable | None:  # noqa: ARG002 - the interface
        return Table()

    def create_table(self, name: str, frame: Frame) -> LakeTable:
        raise AssertionError(name, frame)

    def close(self) -> None: ...


class UnavailableLake(Lake):
    """A lake that fails every call."""

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
