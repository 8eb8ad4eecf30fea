"""What there is to do in a queue (docs/queues.md), counted in messages. Pure.

A queue is one more way to measure a backlog; what is decided from it is decided as ever.

1. `kmq`: waiting is what lies behind the group's offset, as of any topic; in work is what its
   trackers know to be open and in somebody's hands. Both are the backlog.
2. What was given back, to be delivered again later, is no backlog: no worker could have it now.
   Its tracker writes it into the topic when it is due, and then it waits.
3. A tracker's word is as old as its commit. While there are markers that it had not read, nothing
   in work is not nothing: it is unknown.
4. `ordered` commits no further than its oldest unfinished message, and the lag that a broker tells
   of a share group leaves out only what is finished: both know no difference between what waits
   and what is in work.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.values import PartitionSpeed
from trimtab.common.kmq_offset_metadata import Opened, decode
from trimtab.common.units import format_count


class Kind(StrEnum):
    """The kinds of queues, by the names that `open_queue` knows."""

    KMQ = "kmq"
    ORDERED = "ordered"
    SHARE = "share"


@dataclass(frozen=True, slots=True)
class Work:
    """The open messages of a partition as last told, None if never; `sure` if that is all."""

    opened: Opened | None = None
    sure: bool = False

    @property
    def working(self) -> int:
        """Messages that are known to be in work."""
        return 0 if self.opened is None else self.opened.working


NOTHING: Final = Work(Opened(0, 0, 0), sure=True)


@dataclass(frozen=True, slots=True)
class Queued:
    """Messages of a queue; None where it is not known. `working` and `returned` are `kmq`'s only.

    Of the other kinds `waiting` has those in work in it.
    """

    kind: Kind
    waiting: int | None = None
    working: int | None = None
    returned: int | None = None

    def __str__(self) -> str:
        if self.kind is not Kind.KMQ:
            return f"{format_count(self.waiting)} messages wait or are in work"
        later = f", {self.returned} given back for later" if self.returned else ""
        waiting, working = format_count(self.waiting), format_count(self.working)
        return f"{waiting} messages wait, {working} are in work{later}"


def work_of(note: str | None, end: int | None) -> Work:
    """Return the open messages of a partition.

    `note` is the metadata of the trackers' commit, `end` the end of the markers, looked at later.
    """
    if end == 0:
        return NOTHING  # nothing was ever handed out
    found = decode(note or "")
    return Work(found, sure=found is not None and end is not None and found.read >= end)


def queued(
    kind: Kind,
    speeds: Mapping[TopicPartition, PartitionSpeed],
    work: Mapping[TopicPartition, Work] | None = None,
) -> Queued:
    """Return what there is to do, from the backlogs with what is in `work` in them."""
    backlog = _sum(s.backlog_records for s in speeds.values()) if speeds else None
    if kind is not Kind.KMQ:
        return Queued(kind, backlog)
    told = [(work or {}).get(partition, Work()).opened for partition in speeds]
    working = _sum(None if found is None else found.working for found in told)
    returned = _sum(None if found is None else found.returned for found in told)
    waiting = None if backlog is None or working is None else backlog - working
    return Queued(kind, waiting, working, returned)


def _sum(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known else sum(count or 0 for count in known)
