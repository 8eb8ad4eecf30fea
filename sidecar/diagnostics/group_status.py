"""What an operator sees of a group at one moment: a row for each consumer, and the group. Pure.

Rules:
- What is not known is None, never 0. A sum is over what is known, and None where nothing is.
- A consumer is "draining" if the plan in force says so, "running" if it is in the group, "dead" if
  the last fresh verdict or a look before knew it and nobody was to drain it. A broker tells of a
  death when the session is over.
- While nobody answers the last frame stands, with the time since when (`kept`).
- A verdict is fresh for three intervals and `GRACE`; after that nobody is said to steer.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from trimtab.assignor.model import TopicPartition
from trimtab.assignor.racks.cross_rack_traffic import Crossing
from trimtab.common.control_topics.values import GroupPlan, PartitionSpeed
from trimtab.sidecar.measurement.cross_rack import across
from trimtab.sidecar.measurement.observation import GroupState, GroupView, Racks
from trimtab.sidecar.reporting.decision_record import VerdictRecord

GRACE: Final = 15.0
"""Seconds beyond three intervals after which a sidecar counts as silent."""


LATELY: Final = 8
"""Verdicts among which those that sent a consumer away are looked for."""


class State(StrEnum):
    """How a consumer is."""

    RUNNING = "running"
    DRAINING = "draining"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at a group; `time` is seconds since the epoch, `records` end with the newest.

    `known` are consumers that looks before saw. `capacity` (bytes/s) is what to count with where
    there is no plan, None where nobody said.
    """

    time: float
    group: GroupView
    speeds: Mapping[TopicPartition, PartitionSpeed]
    source: str
    plan: GroupPlan | None = None
    records: tuple[VerdictRecord, ...] = ()
    trouble: tuple[str, ...] = ()
    known: frozenset[str] = frozenset()
    capacity: float | None = None
    racks: Racks = field(default_factory=dict[TopicPartition, tuple[str | None, ...]])


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes/s written and needed, bytes of backlog, and of how many partitions nothing is known."""

    partitions: int
    unknown: int
    written: float | None
    needed: float | None
    backlog: float | None

    def shared(self, number: int) -> "Traffic":
        """Return the part of each of so many consumers, none of which owns a partition."""
        whole = (self.written, self.needed, self.backlog)
        return Traffic(0, 0, *(None if rate is None else rate / max(1, number) for rate in whole))


@dataclass(frozen=True, slots=True)
class Row:
    """One consumer; `fill` is its needed rate / capacity."""

    name: str
    state: State
    load: Traffic
    capacity: float | None
    fill: float | None


@dataclass(frozen=True, slots=True)
class Frame:
    """The group; `unread` partitions have no owner, `age` is that of the verdict in seconds.

    `crossing` is None where no consumer says its rack; `queued` says what there is to do in
    messages, of a queue. `by` is who left the last verdict, `ended` whether it said that it ends.
    `away` is since when nobody answers (seconds since the epoch): what else is told is as of
    `time`.
    """

    time: float
    state: GroupState
    source: str
    rows: tuple[Row, ...]
    load: Traffic
    unread: int
    running: int
    planned: int | None
    wanted: int | None
    epoch: int | None
    verdict: str | None
    age: float | None
    steered: bool
    ended: bool
    by: str | None
    trouble: tuple[str, ...]
    crossing: Crossing | None
    queued: str | None = None
    away: float | None = None

    @property
    def silent(self) -> bool:
        """Whether nobody answered."""
        return self.state is GroupState.UNKNOWN and not self.load.partitions and bool(self.trouble)

    @property
    def nobody(self) -> bool:
        """Whether there is no trace of a group: no member, commit, plan or verdict."""
        there = self.rows or self.load.partitions or self.state is not GroupState.EMPTY
        return not there and self.planned is None and self.age is None

    @property
    def steering(self) -> str:
        """Say in a sentence who steers."""
        if self.age is None and self.planned is None:
            return "nothing steers this group: no plan and no verdict; `trimtab sidecar` would"
        plan = "" if self.epoch is None else f"; the plan of epoch {self.epoch} stays in force"
        if self.age is None:
            return f"nothing steers this group now: no sidecar left a verdict{plan}"
        if not self.steered:
            how = "ended" if self.ended else "been silent for"
            left = f"{self.by or 'its sidecar'} has {how} {ago(self.age)}"
            return f"nothing steers this group now: {left}{' ago' if self.ended else ''}{plan}"
        by = "" if self.by is None else f"{self.by} steers; "
        return f"{by}verdict {ago(self.age)} ago: {self.verdict}"


def fresh(record: VerdictRecord, now: float) -> bool:
    """Tell whether the sidecar that left this verdict may be taken to be at work."""
    return not record.ended and now - record.until <= silence(record.interval)


def silence(interval: float) -> float:
    """Return the seconds after which a sidecar that speaks every `interval` counts as silent."""
    return 3 * interval + GRACE


def ago(seconds: float) -> str:
    """Return "25 s", "3 min", "2.5 h", "4 days" of seconds; less than none is none."""
    seconds = max(0.0, seconds)
    if seconds < 100:  # noqa: PLR2004 - these are the bounds of the words
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 2 * 86400 else f"{seconds / 86400:.0f} days"


def kept(last: Frame | None, new: Frame) -> Frame:
    """Return the new frame; while nobody answers, the last one, with when that began."""
    if not new.silent:
        return new
    if last is None:
        return replace(new, away=new.time)
    away = new.time if last.away is None else last.away
    return replace(last, away=away, trouble=new.trouble)


def frame(seen: Seen) -> Frame:
    """Return what there is to see."""
    plan, last = seen.plan, next(reversed(seen.records), None)
    steered = last is not None and fresh(last, seen.time)
    rows = tuple(_rows(seen, last if steered else None))
    read = {p for reader in seen.group.readers for p in reader.owned}
    return Frame(
        time=seen.time,
        state=seen.group.state,
        source=seen.source,
        rows=rows,
        load=_load(seen.speeds, seen),
        unread=0 if seen.group.shared else sum(p not in read for p in seen.speeds),
        running=sum(row.state is State.RUNNING for row in rows),
        planned=None if plan is None else plan.replicas,
        wanted=last.numbers.wanted if steered and last is not None else None,
        epoch=None if plan is None else plan.epoch,
        verdict=None if last is None else f"{last.action}: {'; '.join(last.reasons)}",
        age=None if last is None else seen.time - last.until,
        steered=steered,
        ended=last is not None and last.ended,
        by=None if last is None or last.by is None else str(last.by),
        trouble=seen.trouble,
        crossing=across(seen.group.readers, seen.speeds, seen.racks),
        queued=last.numbers.queued if steered and last is not None else None,
    )


def _rows(seen: Seen, last: VerdictRecord | None) -> Iterable[Row]:
    draining = frozenset[str]() if seen.plan is None else frozenset(seen.plan.draining)
    held: dict[str, frozenset[TopicPartition]] = {}
    for reader in seen.group.readers:
        name = reader.instance or reader.id
        held[name] = held.get(name, frozenset()) | reader.owned
    gone = set(seen.known)
    if last is not None:
        sent = {name for r in seen.records[-LATELY:] for name in (*r.draining, *r.stop)}
        gone |= last.consumers.keys() - sent
    if seen.group.state is GroupState.UNKNOWN:
        gone = set()  # nobody told who is there
    share = _load(seen.speeds, seen).shared(len(held)) if seen.group.shared else None
    for name in sorted(held.keys() | (gone - draining)):
        if name not in held:
            yield Row(name, State.DEAD, _load((), seen), _capacity(seen, name), None)
            continue
        state = State.DRAINING if name in draining else State.RUNNING
        load, capacity = share or _load(held[name], seen), _capacity(seen, name)
        fill = None if capacity is None or load.needed is None else load.needed / capacity
        yield Row(name, state, load, capacity, fill)


def _capacity(seen: Seen, name: str) -> float | None:
    if seen.plan is None:
        return seen.capacity
    return seen.plan.capacities.get(name, seen.plan.capacity)


def _load(partitions: Iterable[TopicPartition], seen: Seen) -> Traffic:
    speeds = [seen.speeds.get(p, PartitionSpeed()) for p in partitions]
    written = [s.bytes_per_s for s in speeds if s.bytes_per_s is not None]
    needed = [s.weight for s in speeds if s.weight is not None]
    backlog = [s.backlog_bytes for s in speeds if s.backlog_bytes is not None]
    return Traffic(
        partitions=len(speeds),
        unknown=sum(s.weight is None for s in speeds),
        written=_sum(written, speeds),
        needed=_sum(needed, speeds),
        backlog=_sum(backlog, speeds),
    )


def _sum(known: list[float], of: list[PartitionSpeed]) -> float | None:
    """Return the sum of what is known; 0 of no partition, None where nothing is known of any."""
    return sum(known) if known or not of else None
