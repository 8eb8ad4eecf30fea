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
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.common.kmq_offset_metadata import OpenMessages, decode_open_messages
from trimtab.common.units import format_count


class QueueKind(StrEnum):
    """The kinds of queues, by the names that `open_queue` knows."""

    KMQ = "kmq"
    ORDERED = "ordered"
    SHARE = "share"


@dataclass(frozen=True, slots=True)
class InFlightMessages:
    """The open messages of a partition as last told, None if never; `is_exact` if that is all."""

    open_messages: OpenMessages | None = None
    is_exact: bool = False

    @property
    def in_flight_count(self) -> int:
        """Messages that are known to be in work."""
        return 0 if self.open_messages is None else self.open_messages.working


NO_IN_FLIGHT_MESSAGES: Final = InFlightMessages(OpenMessages(0, 0, 0), is_exact=True)


@dataclass(frozen=True, slots=True)
class QueueBacklog:
    """Messages of a queue; None where it is not known. `in_flight` and `returned` are `kmq`'s only.

    Of the other kinds `waiting` has those in work in it.
    """

    kind: QueueKind
    waiting: int | None = None
    in_flight: int | None = None
    returned: int | None = None

    def __str__(self) -> str:
        if self.kind is not QueueKind.KMQ:
            return f"{format_count(self.waiting)} messages wait or are in work"
        later = f", {self.returned} given back for later" if self.returned else ""
        waiting, working = format_count(self.waiting), format_count(self.in_flight)
        return f"{waiting} messages wait, {working} are in work{later}"


def decode_in_flight(metadata: str | None, markers_end: int | None) -> InFlightMessages:
    """Return the open messages of a partition.

    `metadata` is the metadata of the trackers' commit, `markers_end` the end of the markers, looked at later.
    """
    if markers_end == 0:
        return NO_IN_FLIGHT_MESSAGES  # nothing was ever handed out
    found = decode_open_messages(metadata or "")
    return InFlightMessages(
        found, is_exact=found is not None and markers_end is not None and found.read >= markers_end
    )


def compute_queue_backlog(
    kind: QueueKind,
    write_rates: Mapping[TopicPartition, PartitionLoad],
    in_flight: Mapping[TopicPartition, InFlightMessages] | None = None,
) -> QueueBacklog:
    """Return what there is to do, from the backlogs with what is in `in_flight` in them."""
    backlog = _sum_known(s.backlog_records for s in write_rates.values()) if write_rates else None
    if kind is not QueueKind.KMQ:
        return QueueBacklog(kind, backlog)
    told = [
        (in_flight or {}).get(partition, InFlightMessages()).open_messages
        for partition in write_rates
    ]
    working = _sum_known(None if found is None else found.working for found in told)
    returned = _sum_known(None if found is None else found.returned for found in told)
    waiting = None if backlog is None or working is None else backlog - working
    return QueueBacklog(kind, waiting, working, returned)


def _sum_known(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known else sum(count or 0 for count in known)
