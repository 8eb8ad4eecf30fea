"""Backlog of a queue (docs/queues.md), counted in messages. Pure.

A queue is another way to measure a backlog; decisions do not differ.

1. `kmq`: waiting messages are behind the group's offset, as in any topic; in-flight messages are
   those its trackers know to be open and delivered. Both form the backlog.
2. Messages returned for later redelivery are no backlog: no worker could get them now. Their
   tracker writes them into the topic when due, and then they wait.
3. Tracker data is as old as the tracker's commit. While markers are unread, zero in-flight messages
   means unknown.
4. `ordered` commits up to its oldest unfinished message, and a broker's lag of a share group
   excludes finished messages only: neither distinguishes waiting from in-flight messages.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.common.kmq_offset_metadata import OpenMessages, decode_open_messages
from trimtab.common.settings.shared_defaults import QueueKind
from trimtab.common.units import format_count


@dataclass(frozen=True, slots=True)
class InFlightMessages:
    """Last known open messages of a partition."""

    open_messages: OpenMessages | None = None  # None if never known
    is_exact: bool = False  # no marker is unread (rule 3)

    @property
    def in_flight_count(self) -> int:
        """Messages known to be in flight."""
        return 0 if self.open_messages is None else self.open_messages.working


NO_IN_FLIGHT_MESSAGES: Final = InFlightMessages(OpenMessages(0, 0, 0), is_exact=True)


@dataclass(frozen=True, slots=True)
class QueueBacklog:
    """Messages of a queue; None where unknown."""

    kind: QueueKind
    waiting: int | None = None  # includes those in flight for other kinds than `kmq` (rule 4)
    in_flight: int | None = None
    returned: int | None = None

    def __str__(self) -> str:
        if self.kind is not QueueKind.KMQ:
            return f"{format_count(self.waiting, 'message')} waiting or in flight"
        returned = f", {self.returned} awaiting redelivery" if self.returned else ""
        waiting, working = format_count(self.waiting, "message"), format_count(self.in_flight)
        return f"{waiting} waiting, {working} in flight{returned}"


def decode_in_flight(metadata: str | None, markers_end: int | None) -> InFlightMessages:
    """Return the open messages of a partition, by the metadata of its trackers' commit."""
    if markers_end == 0:
        return NO_IN_FLIGHT_MESSAGES  # no message was ever delivered
    messages = decode_open_messages(metadata or "")
    # The end offset is read after the commit, so markers written in between count as unread.
    exact = messages is not None and markers_end is not None and messages.read >= markers_end
    return InFlightMessages(messages, exact)


def compute_queue_backlog(
    kind: QueueKind,
    write_rates: Mapping[TopicPartition, PartitionLoad],
    in_flight: Mapping[TopicPartition, InFlightMessages] | None = None,
) -> QueueBacklog:
    """Return the queue's backlog; the backlogs of `write_rates` include `in_flight`."""
    backlog = _sum_known(s.backlog_records for s in write_rates.values()) if write_rates else None
    if kind is not QueueKind.KMQ:
        return QueueBacklog(kind, backlog)
    messages = [(in_flight or {}).get(p, InFlightMessages()).open_messages for p in write_rates]
    working = _sum_known(None if m is None else m.working for m in messages)
    returned = _sum_known(None if m is None else m.returned for m in messages)
    waiting = None if backlog is None or working is None else backlog - working
    return QueueBacklog(kind, waiting, working, returned)


def _sum_known(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known else sum(count or 0 for count in known)
