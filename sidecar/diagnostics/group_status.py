"""Status of a group at one moment: totals and one row per consumer. Pure.

- An unknown value is None, never 0. A sum covers the known values and is None without any.
- A consumer is "draining" if the current plan drains it, "running" if it is a group member, "dead"
  if the last fresh decision or an earlier snapshot had it and no plan drained it. The broker
  reports a death after the session timeout.
- While no broker responds the last status stays, with the start of the outage (`keep_last_status`).
- A decision is fresh for three intervals plus `SILENCE_GRACE_S`; then no sidecar is active.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from trimtab.assignor.model import TopicPartition
from trimtab.assignor.racks.cross_rack_traffic import CrossRackTraffic
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.measurement.cross_rack import compute_cross_rack_traffic
from trimtab.sidecar.measurement.observation import GroupState, ObservedGroup, ReplicaRacks
from trimtab.sidecar.reporting.decision_record import DecisionRecord

SILENCE_GRACE_S: Final = 15.0
"""Seconds beyond three intervals after which a sidecar counts as silent."""


RECENT_DECISION_COUNT: Final = 8
"""Recent decisions that are searched for drained and stopped consumers."""


class ConsumerState(StrEnum):
    """State of a consumer."""

    RUNNING = "running"
    DRAINING = "draining"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class LiveGroupSnapshot:
    """A group at `time` (seconds since the epoch); `decisions` end with the newest.

    `known_consumers` are the consumers of earlier snapshots. `capacity` (bytes/s) is used without a
    plan; None if it is not set.
    """

    time: float
    group: ObservedGroup
    write_rates: Mapping[TopicPartition, PartitionLoad]
    rate_source: str
    plan: GroupPlan | None = None
    decisions: tuple[DecisionRecord, ...] = ()
    trouble: tuple[str, ...] = ()
    known_consumers: frozenset[str] = frozenset()
    capacity: float | None = None
    replica_racks: ReplicaRacks = field(default_factory=dict[TopicPartition, tuple[str | None, ...]])


@dataclass(frozen=True, slots=True)
class LoadSummary:
    """Written and needed bytes/s, backlog bytes, and the number of partitions of unknown load."""

    partitions: int
    unknown: int
    written: float | None
    needed: float | None
    backlog: float | None

    def divide_by(self, number: int) -> "LoadSummary":
        """Return the equal share of each of `number` consumers of a share group."""
        whole = (self.written, self.needed, self.backlog)
        return LoadSummary(0, 0, *(None if rate is None else rate / max(1, number) for rate in whole))


@dataclass(frozen=True, slots=True)
class ConsumerStatus:
    """One consumer; `fill` is its needed rate / capacity."""

    name: str
    state: ConsumerState
    load: LoadSummary
    capacity: float | None
    fill: float | None


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """The group; `unread` partitions have no owner, `age` is the decision's age in seconds.

    `crossing` is None if no consumer reports its rack. `queued` summarizes the messages of a queue.
    `by` is the author of the last decision, `ended` is true if it has shut down. `away` is the
    start of a broker outage (seconds since the epoch); all other values are as of `time`.
    """

    time: float
    state: GroupState
    source: str
    rows: tuple[ConsumerStatus, ...]
    load: LoadSummary
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
    crossing: CrossRackTraffic | None
    queued: str | None = None
    away: float | None = None

    @property
    def is_unreachable(self) -> bool:
        """Whether no broker responded."""
        return self.state is GroupState.UNKNOWN and not self.load.partitions and bool(self.trouble)

    @property
    def is_absent(self) -> bool:
        """Whether the group has no member, commit, plan or decision."""
        there = self.rows or self.load.partitions or self.state is not GroupState.EMPTY
        return not there and self.planned is None and self.age is None

    @property
    def steering_summary(self) -> str:
        """The active sidecar and its last decision, in one sentence."""
        if self.age is None and self.planned is None:
            return "nothing steers this group: no plan and no verdict; `trimtab sidecar` would"
        plan = "" if self.epoch is None else f"; the plan of epoch {self.epoch} stays in force"
        if self.age is None:
            return f"nothing steers this group now: no sidecar left a verdict{plan}"
        if not self.steered:
            how = "ended" if self.ended else "been silent for"
            left = f"{self.by or 'its sidecar'} has {how} {format_age(self.age)}"
            return f"nothing steers this group now: {left}{' ago' if self.ended else ''}{plan}"
        by = "" if self.by is None else f"{self.by} steers; "
        return f"{by}verdict {format_age(self.age)} ago: {self.verdict}"


def is_fresh(record: DecisionRecord, now: float) -> bool:
    """Tell whether the author of this decision counts as active."""
    return not record.ended and now - record.until <= compute_silence_timeout(record.interval)


def compute_silence_timeout(interval: float) -> float:
    """Return the seconds after which a sidecar with this interval counts as silent."""
    return 3 * interval + SILENCE_GRACE_S


def format_age(seconds: float) -> str:
    """Format seconds as "25 s", "3 min", "2.5 h" or "4 days"; negative values count as 0."""
    seconds = max(0.0, seconds)
    if seconds < 100:  # noqa: PLR2004 - these are the bounds of the words
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 2 * 86400 else f"{seconds / 86400:.0f} days"


def keep_last_status(previous: GroupStatus | None, new: GroupStatus) -> GroupStatus:
    """Return the new status; during a broker outage the previous one with the outage's start."""
    if not new.is_unreachable:
        return new
    if previous is None:
        return replace(new, away=new.time)
    away = new.time if previous.away is None else previous.away
    return replace(previous, away=away, trouble=new.trouble)


def build_group_status(snapshot: LiveGroupSnapshot) -> GroupStatus:
    """Return the status of a snapshot."""
    plan, last = snapshot.plan, next(reversed(snapshot.decisions), None)
    steered = last is not None and is_fresh(last, snapshot.time)
    rows = tuple(_list_consumer_statuses(snapshot, last if steered else None))
    read = {p for reader in snapshot.group.members for p in reader.owned_partitions}
    return GroupStatus(
        time=snapshot.time,
        state=snapshot.group.state,
        source=snapshot.rate_source,
        rows=rows,
        load=_summarize_load(snapshot.write_rates, snapshot),
        unread=0 if snapshot.group.is_share_group else sum(p not in read for p in snapshot.write_rates),
        running=sum(row.state is ConsumerState.RUNNING for row in rows),
        planned=None if plan is None else plan.replicas,
        wanted=last.metrics.desired_replicas if steered and last is not None else None,
        epoch=None if plan is None else plan.epoch,
        verdict=None if last is None else f"{last.action}: {'; '.join(last.reasons)}",
        age=None if last is None else snapshot.time - last.until,
        steered=steered,
        ended=last is not None and last.ended,
        by=None if last is None or last.by is None else str(last.by),
        trouble=snapshot.trouble,
        crossing=compute_cross_rack_traffic(
            snapshot.group.members, snapshot.write_rates, snapshot.replica_racks
        ),
        queued=last.metrics.queue_summary if steered and last is not None else None,
    )


def _list_consumer_statuses(
    snapshot: LiveGroupSnapshot, last_decision: DecisionRecord | None
) -> Iterable[ConsumerStatus]:
    draining = frozenset[str]() if snapshot.plan is None else frozenset(snapshot.plan.draining)
    held: dict[str, frozenset[TopicPartition]] = {}
    for reader in snapshot.group.members:
        name = reader.instance or reader.id
        held[name] = held.get(name, frozenset()) | reader.owned_partitions
    gone = set(snapshot.known_consumers)
    if last_decision is not None:
        sent = {
            name
            for r in snapshot.decisions[-RECENT_DECISION_COUNT:]
            for name in (*r.draining, *r.replicas_to_stop)
        }
        gone |= last_decision.consumers.keys() - sent
    if snapshot.group.state is GroupState.UNKNOWN:
        gone = set()  # without a member list no consumer can be declared dead
    share = (
        _summarize_load(snapshot.write_rates, snapshot).divide_by(len(held))
        if snapshot.group.is_share_group
        else None
    )
    for name in sorted(held.keys() | (gone - draining)):
        if name not in held:
            yield ConsumerStatus(
                name, ConsumerState.DEAD, _summarize_load((), snapshot), _get_capacity(snapshot, name), None
            )
            continue
        state = ConsumerState.DRAINING if name in draining else ConsumerState.RUNNING
        load, capacity = (share or _summarize_load(held[name], snapshot), _get_capacity(snapshot, name))
        fill = None if capacity is None or load.needed is None else load.needed / capacity
        yield ConsumerStatus(name, state, load, capacity, fill)


def _get_capacity(snapshot: LiveGroupSnapshot, name: str) -> float | None:
    if snapshot.plan is None:
        return snapshot.capacity
    return snapshot.plan.capacities.get(name, snapshot.plan.capacity)


def _summarize_load(partitions: Iterable[TopicPartition], snapshot: LiveGroupSnapshot) -> LoadSummary:
    speeds = [snapshot.write_rates.get(p, PartitionLoad()) for p in partitions]
    written = [s.bytes_per_s for s in speeds if s.bytes_per_s is not None]
    needed = [s.weight for s in speeds if s.weight is not None]
    backlog = [s.backlog_bytes for s in speeds if s.backlog_bytes is not None]
    return LoadSummary(
        partitions=len(speeds),
        unknown=sum(s.weight is None for s in speeds),
        written=_sum_known(written, speeds),
        needed=_sum_known(needed, speeds),
        backlog=_sum_known(backlog, speeds),
    )


def _sum_known(known: list[float], rates: list[PartitionLoad]) -> float | None:
    """Return the sum of the known values; 0 without partitions, None if all are unknown."""
    return sum(known) if known or not rates else None
