"""Status of a group at one moment: totals, and one entry per consumer. Pure.

1. An unknown value is None, never 0. A sum covers the known values; without any it is None.
2. A consumer is "draining" if the current plan drains it, "running" if it is a group member, "dead"
   if the last fresh decision or an earlier snapshot had it and no plan drained it.
3. While no broker responds the last status stays, with the start of the outage.
4. A decision is fresh until its author counts as silent (`compute_silence_timeout`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from trimtab.assignor.model import TopicPartition
from trimtab.assignor.racks.cross_rack_traffic import CrossRackTraffic
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.common.replica_names import get_replica
from trimtab.common.units import format_age
from trimtab.sidecar.decision.condition import Condition
from trimtab.sidecar.leadership.group_ownership import compute_silence_timeout
from trimtab.sidecar.model.cross_rack import compute_cross_rack_traffic
from trimtab.sidecar.model.observation import GroupState, ObservedGroup, ReplicaRacks
from trimtab.sidecar.plan_carrier import CarrierStatus
from trimtab.sidecar.records.decision_record import DecisionRecord
from trimtab.sidecar.records.plan_outcome import PlanOutcome

RECENT_DECISION_COUNT: Final = 8  # a drain spans several decisions, and the plan forgets it at its end


class ConsumerState(StrEnum):
    """State of a consumer."""

    RUNNING = "running"
    DRAINING = "draining"
    DEAD = "dead"  # known a session timeout late: until then the broker lists it as a member


@dataclass(frozen=True, slots=True)
class LiveGroupSnapshot:
    """A group at `time` (seconds since the epoch); `decisions` end with the newest."""

    time: float
    group: ObservedGroup
    write_rates: Mapping[TopicPartition, PartitionLoad]
    rate_source: str
    plan: GroupPlan | None = None
    decisions: tuple[DecisionRecord, ...] = ()
    errors: tuple[str, ...] = ()
    known_consumers: frozenset[str] = frozenset()  # of earlier snapshots
    capacity: float | None = None  # bytes/s, used without a plan
    replica_racks: ReplicaRacks = field(default_factory=dict[TopicPartition, tuple[str | None, ...]])


@dataclass(frozen=True, slots=True)
class LoadSummary:
    """Write rate and required rate in bytes/s, and backlog in bytes."""

    partitions: int
    unknown_partitions: int
    write_rate: float | None
    required_rate: float | None
    backlog: float | None

    def divide_by(self, number: int) -> "LoadSummary":
        """Return the equal share of each of `number` consumers of a share group."""
        whole = (self.write_rate, self.required_rate, self.backlog)
        return LoadSummary(0, 0, *(None if rate is None else rate / max(1, number) for rate in whole))


@dataclass(frozen=True, slots=True)
class ConsumerStatus:
    """One consumer; `fill` is its required rate ÷ capacity."""

    name: str
    state: ConsumerState
    load: LoadSummary
    capacity: float | None
    fill: float | None


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """Totals of the group and its consumers, as of `time` (seconds since the epoch)."""

    time: float
    state: GroupState
    rate_source: str
    consumers: tuple[ConsumerStatus, ...]
    total_load: LoadSummary
    unowned_partitions: int
    running: int
    planned: int | None
    desired: int | None
    epoch: int | None
    last_decision: str | None
    decision_age_seconds: float | None
    is_managed: bool  # by an active sidecar
    sidecar_ended: bool
    sidecar: str | None  # author of the last decision
    errors: tuple[str, ...]
    cross_rack_traffic: CrossRackTraffic | None  # None if no consumer reports its rack
    queue_summary: str | None = None
    plan_outcome: PlanOutcome | None = None  # as of the last decision of an active sidecar
    carrier: CarrierStatus | None = None  # likewise; None: the members carry plans out themselves
    conditions: tuple[Condition, ...] = ()  # likewise
    unreachable_since: float | None = None  # start of a broker outage, seconds since the epoch

    @property
    def is_unreachable(self) -> bool:
        """Whether no broker responded."""
        return self.state is GroupState.UNKNOWN and not self.total_load.partitions and bool(self.errors)

    @property
    def is_absent(self) -> bool:
        """Whether the group has no member, commit, plan or decision."""
        exists = self.consumers or self.total_load.partitions or self.state is not GroupState.EMPTY
        return not exists and self.planned is None and self.decision_age_seconds is None

    @property
    def sidecar_summary(self) -> str:
        """The active sidecar and its last decision, in one sentence."""
        age = self.decision_age_seconds
        plan = "" if self.epoch is None else f"; the plan of epoch {self.epoch} stays in force"
        if age is None and self.planned is None:
            return "no sidecar manages this group: no plan, no decision; start `trimtab sidecar`"
        if age is None:
            return f"no sidecar manages this group now: the decision topic holds no decision of it{plan}"
        if not self.is_managed:
            sidecar = self.sidecar or "its sidecar"
            end = f"ended {format_age(age)} ago" if self.sidecar_ended else f"silent for {format_age(age)}"
            return f"no sidecar manages this group now: {sidecar}, {end}{plan}"
        manager = "" if self.sidecar is None else f"managed by {self.sidecar}; "
        return f"{manager}decision {format_age(age)} ago: {self.last_decision}"


def is_fresh(record: DecisionRecord, now: float) -> bool:
    """Return whether the author of this decision counts as active."""
    return not record.is_final and now - record.until <= compute_silence_timeout(record.interval)


def keep_last_status(previous: GroupStatus | None, new: GroupStatus) -> GroupStatus:
    """Return the new status; during a broker outage the previous one with the outage's start."""
    if not new.is_unreachable:
        return new
    if previous is None:
        return replace(new, unreachable_since=new.time)
    since = new.time if previous.unreachable_since is None else previous.unreachable_since
    return replace(previous, unreachable_since=since, errors=new.errors)


def build_group_status(snapshot: LiveGroupSnapshot) -> GroupStatus:
    """Return the status of a snapshot."""
    plan, group, rates = snapshot.plan, snapshot.group, snapshot.write_rates
    last = next(reversed(snapshot.decisions), None)
    current = last if last is not None and is_fresh(last, snapshot.time) else None
    consumers = tuple(_list_consumers(snapshot, current))
    owned = {p for member in group.members for p in member.owned_partitions}
    return GroupStatus(
        time=snapshot.time,
        state=group.state,
        rate_source=snapshot.rate_source,
        consumers=consumers,
        total_load=_sum_load(rates, snapshot),
        # members of a share group own nothing: the broker delivers record by record
        unowned_partitions=0 if group.is_share_group else sum(p not in owned for p in rates),
        running=sum(c.state is ConsumerState.RUNNING for c in consumers),
        planned=None if plan is None else plan.replicas,
        desired=None if current is None else current.metrics.desired_replicas,
        epoch=None if plan is None else plan.epoch,
        last_decision=None if last is None else f"{last.action}: {last.reason_text}",
        decision_age_seconds=None if last is None else snapshot.time - last.until,
        is_managed=current is not None,
        sidecar_ended=last is not None and last.is_final,
        sidecar=None if last is None or last.author is None else str(last.author),
        errors=snapshot.errors,
        cross_rack_traffic=compute_cross_rack_traffic(group.members, rates, snapshot.replica_racks),
        queue_summary=None if current is None else current.metrics.queue_summary,
        plan_outcome=None if current is None else current.outcome,
        carrier=None if current is None else current.carrier,
        conditions=() if current is None else current.conditions,
    )


def _list_consumers(snapshot: LiveGroupSnapshot, current: DecisionRecord | None) -> Iterable[ConsumerStatus]:
    plan = snapshot.plan
    owned: dict[str, frozenset[TopicPartition]] = {}
    for member in snapshot.group.members:
        name = member.instance or member.id
        owned[name] = owned.get(name, frozenset()) | member.owned_partitions
    expected = {n for n in _list_expected(snapshot, current) if plan is None or not plan.drains(n)}
    for name in sorted(owned.keys() | expected):
        capacity = _get_capacity(snapshot, name)
        if name not in owned:
            yield ConsumerStatus(name, ConsumerState.DEAD, _sum_load((), snapshot), capacity, None)
            continue
        if snapshot.group.is_share_group:
            load = _sum_load(snapshot.write_rates, snapshot).divide_by(len(owned))
        else:
            load = _sum_load(owned[name], snapshot)
        state = ConsumerState.DRAINING if plan is not None and plan.drains(name) else ConsumerState.RUNNING
        fill = None if capacity is None or load.required_rate is None else load.required_rate / capacity
        yield ConsumerStatus(name, state, load, capacity, fill)


def _list_expected(snapshot: LiveGroupSnapshot, current: DecisionRecord | None) -> set[str]:
    if snapshot.group.state is GroupState.UNKNOWN:
        return set()  # without a member list no consumer can be declared dead
    expected = set(snapshot.known_consumers)
    if current is not None:
        recent = snapshot.decisions[-RECENT_DECISION_COUNT:]
        removed = {name for r in recent for name in (*r.draining, *r.replicas_to_stop)}
        owners = current.partitions_by_instance
        expected |= {name for name in owners if removed.isdisjoint((name, get_replica(name)))}
    return expected


def _get_capacity(snapshot: LiveGroupSnapshot, name: str) -> float | None:
    if snapshot.plan is None:
        return snapshot.capacity
    return snapshot.plan.capacities.get(name, snapshot.plan.capacity)  # learned, else the configured one


def _sum_load(partitions: Iterable[TopicPartition], snapshot: LiveGroupSnapshot) -> LoadSummary:
    loads = [snapshot.write_rates.get(p, PartitionLoad()) for p in partitions]
    return LoadSummary(
        partitions=len(loads),
        unknown_partitions=sum(load.weight is None for load in loads),
        write_rate=_sum_known([load.bytes_per_s for load in loads]),
        required_rate=_sum_known([load.weight for load in loads]),
        backlog=_sum_known([load.backlog_bytes for load in loads]),
    )


def _sum_known(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known or not values else None
