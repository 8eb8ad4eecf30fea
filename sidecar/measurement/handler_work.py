"""Work of consumers between two of their commits: handler seconds, bytes and records.

A consumer of the SDK writes into the metadata of a commit, as JSON, how long its application has worked on
records: {"handling": seconds, "uptime": seconds, "opened": epoch seconds}.

1. Work is the difference of two commits of one consumer that own the same partitions, at least `min_span_s`
   of its uptime apart. Offsets and seconds are of the same commit: neither is ahead of the other.
2. Records are the growth of the committed offsets; bytes are records x mean record size. A partition of
   unknown size, or without a commit, makes the work unknown.
3. Other partitions, another consumer of the name, and offsets that went back begin anew.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from trimtab.assignor.model import TopicPartition
from trimtab.sidecar.measurement.record_sizes import RecordSize
from trimtab.sidecar.measurement.write_rate import OffsetReadings
from trimtab.sidecar.model.observation import ObservedMember

MAX_REPORTED_S: Final = 1e10  # of another program's metadata


@dataclass(frozen=True, slots=True)
class HandlerWork:
    """What a consumer worked on in `span` seconds."""

    span: float
    handling: float  # seconds
    bytes: float
    records: float


@dataclass(frozen=True, slots=True, order=True)
class HandlerReport:
    """Work of a consumer since it was opened; sorts by age."""

    opened: float  # seconds since the epoch
    uptime: float
    handling: float


@dataclass(frozen=True, slots=True)
class CommittedReport:
    """A consumer's report, and the offsets of all its partitions that were committed by then."""

    report: HandlerReport
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class HandlerWorkTracker:
    """The report of each consumer, by member id, since which its work counts."""

    min_span_s: float
    since: Mapping[str, CommittedReport] = field(default_factory=dict[str, CommittedReport])

    def collect_work(
        self,
        members: Iterable[ObservedMember],
        readings: OffsetReadings,
        record_sizes: Mapping[TopicPartition, RecordSize],
    ) -> tuple[tuple[HandlerWork, ...], "HandlerWorkTracker"]:
        """Return the work that has become known, and the updated tracker; sizes are in bytes."""
        work: list[HandlerWork] = []
        since: dict[str, CommittedReport] = {}
        for member in members:
            now = _find_report(member, readings)
            if now is None:
                continue
            before = self.since.get(member.id, now)
            if not _continues(before, now):
                before = now
            is_due = now.report.uptime - before.report.uptime >= self.min_span_s
            if is_due and (done := _measure_work(before, now, record_sizes)) is not None:
                work.append(done)
            since[member.id] = now if is_due else before
        return tuple(work), replace(self, since=since)


def _find_report(member: ObservedMember, readings: OffsetReadings) -> CommittedReport | None:
    offsets = readings.committed_offsets or {}
    owned = member.owned_partitions
    reports = (parse_handler_report(readings.commit_metadata.get(p, "")) for p in owned)
    newest = max((report for report in reports if report is not None), default=None)
    if newest is None or not owned <= offsets.keys():
        return None
    return CommittedReport(newest, {p: offsets[p] for p in owned})


def _continues(before: CommittedReport, now: CommittedReport) -> bool:
    # a former owner's report stays until the next commit, so the consumer is told by when it was opened
    return (
        before.report.opened == now.report.opened
        and before.report.handling <= now.report.handling
        and before.offsets.keys() == now.offsets.keys()
        and all(before.offsets[p] <= offset for p, offset in now.offsets.items())
    )


def _measure_work(
    before: CommittedReport, now: CommittedReport, record_sizes: Mapping[TopicPartition, RecordSize]
) -> HandlerWork | None:
    read = {p: offset - before.offsets[p] for p, offset in now.offsets.items() if offset > before.offsets[p]}
    if not read.keys() <= record_sizes.keys():
        return None
    return HandlerWork(
        span=now.report.uptime - before.report.uptime,
        handling=now.report.handling - before.report.handling,
        bytes=sum(count * record_sizes[p].bytes for p, count in read.items()),
        records=sum(count * record_sizes[p].records for p, count in read.items()),
    )


def parse_handler_report(metadata: str) -> HandlerReport | None:
    """Return the report in a commit's metadata; None without one."""
    # other clients write their own metadata
    with suppress(ValueError, TypeError, LookupError, OverflowError, RecursionError):
        body: Any = json.loads(metadata)
        told = tuple(float(body[name]) for name in ("opened", "uptime", "handling"))
        if all(0 <= figure < MAX_REPORTED_S for figure in told):  # JSON has NaN and Infinity
            return HandlerReport(*told)
    return None
