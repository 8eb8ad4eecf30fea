"""Evaluates heuristics on a live group without changing it."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final

from trimtab.assignor.model import PlacementPlan, TopicPartition
from trimtab.assignor.racks.cross_rack_traffic import CrossRackTraffic
from trimtab.common.clock import Clock
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad, TopicWriteRates
from trimtab.common.settings.shared_defaults import QueueKind
from trimtab.common.units import format_count, format_rate
from trimtab.sidecar.decision.group_model import GroupModel, build_group_model
from trimtab.sidecar.errors import BrokerTimeoutError, SidecarSettingError
from trimtab.sidecar.kafka.control_topic_store import ControlTopicStore
from trimtab.sidecar.kafka.share_group import refuse_share_group
from trimtab.sidecar.model.autoscaling_policy import AutoscalingPolicy
from trimtab.sidecar.model.cross_rack import compute_cross_rack_traffic
from trimtab.sidecar.model.member_names import distinguish_members
from trimtab.sidecar.model.observation import (
    GroupState,
    Observation,
    ObservedGroup,
    ObservedMember,
    ReplicaInstance,
    ReplicaRacks,
)
from trimtab.sidecar.model.record_weights import BYTES_ALONE, RecordWeights
from trimtab.sidecar.readings.group_monitor import GroupMonitor, match_topics
from trimtab.sidecar.settings.settings import SidecarSettings

PUBLISHED_RATES_MAX_AGE_S: Final = 60.0  # a sidecar publishes each interval, 10 s by default
SOURCE_PUBLISHED: Final = "published by a sidecar"
SOURCE_MEASURED: Final = "measured here"
READINGS_PER_WINDOW: Final = 5


@dataclass(frozen=True, slots=True)
class GroupBaseline:
    """Measured state of a group."""

    group: ObservedGroup
    write_rates: Mapping[TopicPartition, PartitionLoad]
    rate_source: str
    plan: GroupPlan | None
    replica_racks: ReplicaRacks = field(default_factory=dict[TopicPartition, tuple[str | None, ...]])


@dataclass(frozen=True, slots=True)
class HeuristicOutcome:
    """Result of one heuristic, in the units of `PlacementPlan`."""

    heuristic: str
    consumers: int
    moves: int
    r_score: float
    fill: float
    cross_rack_bytes_per_s: float | None  # None if no member reports its rack
    reasons: tuple[str, ...]  # of the first moves
    notes: tuple[str, ...]


def measure_baseline(
    settings: SidecarSettings,
    clock: Clock,
    report_progress: Callable[[float], None],
    *,
    capacity_known: bool = True,
) -> GroupBaseline:
    """Read or measure the group; call `report_progress` with the fraction done.

    Raises SidecarSettingError, BrokerTimeoutError, GroupTypeMismatchError.
    """
    if settings.queue is QueueKind.SHARE:
        raise SidecarSettingError(
            "queue=share: the broker delivers messages of every partition to every worker, so there is "
            "no placement to plan; see `trimtab sidecar --dry-run` and `trimtab explain`"
        )
    with closing(GroupMonitor(settings, clock)) as monitor:
        control_topics = ControlTopicStore(settings, monitor.brokers.admin)
        _check_topics_exist(settings, monitor)
        plan = control_topics.read_plan()
        published = control_topics.read_write_rates()
        refuse_share_group(settings)
        if plan is None and not capacity_known:  # reported before the measurement, not a window later
            raise SidecarSettingError(
                "capacity is missing, and there is no plan to take it from; give what one consumer "
                'sustains: --capacity "2.3 MB/s"'
            )
        rates: Mapping[TopicPartition, PartitionLoad] = select_recent_rates(published.values(), clock.wall())
        if rates:
            source = SOURCE_PUBLISHED
            monitor.brokers.fetch_cluster_metadata()  # fetch_replica_racks reads it
            group, errors = monitor.describe_group_with_errors()
        else:
            source = f"measured for {settings.window:g} s"
            group, rates, errors = _measure_window(monitor, settings, clock, report_progress)
        racks, _ = monitor.brokers.fetch_replica_racks(rates)
    if group.state is GroupState.UNKNOWN:
        raise BrokerTimeoutError("; ".join(errors) or "no broker answers")
    if not rates:
        raise SidecarSettingError(
            f"group {settings.group!r} reads nothing and never committed; is the name right? "
            "Name its topics (--topics) if it is new"
        )
    return GroupBaseline(distinguish_members(group), rates, source, plan, racks)


def select_recent_rates(
    published: Iterable[TopicWriteRates], now: float
) -> dict[TopicPartition, PartitionLoad]:
    """Return the published write rates that are recent; `now` is seconds since the epoch."""
    recent = (rates for rates in published if rates.time >= now - PUBLISHED_RATES_MAX_AGE_S)
    return {TopicPartition(r.topic, n): load for r in recent for n, load in r.partitions.items()}


def _check_topics_exist(settings: SidecarSettings, monitor: GroupMonitor) -> None:
    if not settings.topics:
        return
    metadata = monitor.brokers.fetch_cluster_metadata()
    if not metadata.leaders and metadata.errors:
        raise BrokerTimeoutError("; ".join(metadata.errors))
    missing = match_topics(settings.topics, {p.topic for p in metadata.leaders})[1]
    if missing:
        reasons = "; ".join(map(monitor.brokers.explain_missing_topic, missing))
        raise SidecarSettingError(f"--topics: {reasons}; is the name right?")


def _measure_window(
    monitor: GroupMonitor, settings: SidecarSettings, clock: Clock, report_progress: Callable[[float], None]
) -> tuple[ObservedGroup, Mapping[TopicPartition, PartitionLoad], tuple[str, ...]]:
    measured = monitor.measure()
    # a rate is the slope over several readings; a group without partitions has nothing to wait for
    for reading in range(READINGS_PER_WINDOW if measured.load.write_rates else 0):
        report_progress(reading / READINGS_PER_WINDOW)
        clock.sleep(settings.window / READINGS_PER_WINDOW)
        measured = monitor.measure()
    report_progress(1.0)
    return measured.group, measured.load.write_rates, measured.errors


def evaluate_heuristics(
    baseline: GroupBaseline, heuristics: Iterable[str], policy: AutoscalingPolicy, max_reasons: int
) -> tuple[HeuristicOutcome, ...]:
    """Return the result of each heuristic, with the reasons of its first `max_reasons` moves."""
    outcomes: list[HeuristicOutcome] = []
    for name in heuristics:
        placement = replace(policy.placement, heuristic=name)
        model = model_baseline(baseline, replace(policy, placement=placement))
        plan = _place_as_sized(model)
        reasons = tuple(f"{m.partition} -> {m.target}: {m.reason}" for m in plan.moves[:max_reasons])
        figures = (plan.consumers, len(plan.moves), plan.r_score, plan.fill)
        # for heuristics that ignore racks, too: it is their cost
        traffic = _compute_cross_rack(baseline, model, plan)
        rate = None if traffic is None else traffic.load
        outcomes.append(HeuristicOutcome(name, *figures, rate, reasons, plan.notes))
    return tuple(outcomes)


def _place_as_sized(model: GroupModel) -> PlacementPlan:
    """Return the placement that a sidecar would publish at the count that the load needs."""
    used = {name for name, owned in model.size_active().assignment.items() if owned}
    kept = used.intersection(model.active)
    return model.place_on(kept, added=len(used - kept))


def _compute_cross_rack(
    baseline: GroupBaseline, model: GroupModel, plan: PlacementPlan
) -> CrossRackTraffic | None:
    racks = {name: member.rack for name, member in model.members.items()}
    members = (  # added members have no rack yet
        ObservedMember(name, name, frozenset(owned), racks.get(name))
        for name, owned in plan.assignment.items()
    )
    return compute_cross_rack_traffic(members, baseline.write_rates, baseline.replica_racks)


def describe_oversized_partitions(baseline: GroupBaseline, policy: AutoscalingPolicy) -> tuple[str, ...]:
    """Describe the partitions that exceed a consumer's usable capacity."""
    warning = model_baseline(baseline, policy).describe_oversized_partitions()
    return () if warning is None else (warning,)


def describe_learned_capacities(baseline: GroupBaseline) -> tuple[str, ...]:
    """Describe the members' learned capacities if they count records, too, as the rates may not."""
    plan = baseline.plan
    unit = BYTES_ALONE if plan is None else RecordWeights(*plan.record_weights)
    if plan is None or not unit.counts_records:
        return ()
    names = {m.instance for m in baseline.group.members if m.capacity is None}
    learned = [capacity for name, capacity in plan.capacities.items() if name in names]
    if not learned:
        return ()
    text = (
        f"learned capacities of {format_count(len(learned), 'consumer')}: {format_rate(min(learned))} to "
        f"{format_rate(max(learned))}, counting {unit.format_unit()}"
    )
    if baseline.rate_source == SOURCE_PUBLISHED:
        return (f"{text}, as the published rates and backlogs do: not bytes on the wire",)
    return (f"{text}; the rates measured here count bytes alone: the fill of these consumers is inexact",)


def model_baseline(baseline: GroupBaseline, policy: AutoscalingPolicy) -> GroupModel:
    """Return the decision model of the measured group; all members count as replicas."""
    members = baseline.group.members
    rates = baseline.write_rates
    replicas = tuple(ReplicaInstance(m.instance, alive=True, started_at=0.0) for m in members)
    observation = Observation(
        rates, baseline.group, replicas, baseline.plan, replica_racks=baseline.replica_racks
    )
    plan = baseline.plan or GroupPlan("", 0, 0.0, len(replicas), "", 0.0)
    # a hypothetical placement ignores a drain in progress
    policy = replace(policy, consumers_per_replica=1)
    return build_group_model(observation, policy, replace(plan, draining=()))
