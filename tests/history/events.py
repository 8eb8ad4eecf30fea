"""Events of a history: what producers wrote, consumers were handed, and tables hold.

A record is known by its partition and *number*, which the producer chose: unique in a partition,
and part of the record. The offset is the broker's. Times are seconds of one clock that never goes
back, whatever the processes' own clocks say.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Outcome(StrEnum):
    """What the producer knows of a write."""

    COMMITTED = "committed"  # acknowledged, and its transaction, if any, committed
    ABORTED = "aborted"  # its transaction was aborted, or its producer died before it could commit
    INDETERMINATE = "indeterminate"  # unanswered: it may have happened


class Write(NamedTuple):
    """A write; the offset is None if the broker named none."""

    partition: str
    number: int
    offset: int | None
    outcome: Outcome = Outcome.COMMITTED
    time: float = 0.0  # of the acknowledgement


class Start(NamedTuple):
    """A consumer begins to read a partition, or goes back (`epoch` counts its assignments)."""

    consumer: str
    epoch: int
    partition: str
    time: float
    committed: int | None  # what the group or the table held then; None: nothing
    offset: int | None = None  # of the first record to read; None: the committed one


class Poll(NamedTuple):
    """Consecutive records of one partition in one answer: (offset, number) in the order handed out."""

    consumer: str
    epoch: int
    partition: str
    time: float
    records: tuple[tuple[int, int], ...]
    log_begin: int = 0  # first offset that retention had left


class Row(NamedTuple):
    """A row of a table."""

    table: str
    partition: str
    offset: int
    number: int


@dataclass(frozen=True, slots=True)
class History:
    """One run; `gaps` are offsets by partition that the log deleted before they were read."""

    writes: tuple[Write, ...] = ()
    starts: tuple[Start, ...] = ()
    polls: tuple[Poll, ...] = ()
    rows: tuple[Row, ...] = ()
    gaps: Mapping[str, Iterable[int]] = field(default_factory=dict[str, Iterable[int]])
    read_committed: bool = True  # isolation.level of the consumers
    tables: tuple[str, ...] = ()  # that are to hold every record
    settled: bool = True  # consumers had the time to read everything
    rewritten: frozenset[tuple[str, int, int]] = frozenset()
    """Partition, offset and number of each record that the topic itself holds at a lower offset, too."""
