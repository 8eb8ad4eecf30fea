"""Evaluates heuristics on a live group without changing it.

Write rates are the recently published ones; without them they are measured for one window.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final

from trimtab.assignor.decisions import size_group
from trimtab.assignor.model import ConsumerGroup, Load, PlacementPlan, PlacementPolicy, TopicPartition
from trimtab.assignor.racks.cross_rack_traffic import CrossRackTraffic
from trimtab.common.choices import QueueKind
from trimtab.common.clock import Clock
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.control_loop import distinguish_members
from trimtab.sidecar.decision.group_model import GroupModel, build_group_model
from trimtab.sidecar.decision.scaling_policy import AutoscalingPolicy
from trimtab.sidecar.errors import BrokerTimeoutError, SidecarSettingError
from trimtab.sidecar.kafka.control_topic_store import ControlTopicStore
from trimtab.sidecar.kafka.share_groups.share_group import refuse_share_group
from trimtab.sidecar.measurement.cross_rack import compute_cross_rack_traffic
from trimtab.sidecar.measurement.group_monitor import GroupMonitor, match_topics
from trimtab.sidecar.measurement.observation import (
    GroupState,
    Observation,
    ObservedGroup,
    ObservedMember,
    ReplicaInstance,
    ReplicaRacks,
)
from trimtab.sidecar.settings.settings import SidecarSettings

PUBLISHED_RATES_MAX_AGE_S: Final = 60.0
"""Seconds after which published write rates are outdated."""

SOURCE_PUBLISHED: Final = "published by a sidecar"
SOURCE_MEASURED: Final = "measured here"
READINGS_PER_WINDOW: Final = 5  # of one window, when there is nothing to read


@dataclass(frozen=True, slots=True)
class GroupBaseline:
    """Measured state of a group: members, write rates and their source, plan, replica racks."""

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

    Raises SidecarSettingError for a group that reads nothing, for a missing topic and, without a
    capacity, for a group without a plan. Raises BrokerTimeoutError, GroupTypeMismatchError.
    """
    if settings.queue is QueueKind.SHARE:
        raise SidecarSettingError(
            "queue=share: the broker hands every worker messages of every partition, so there is "
            "no placement to plan; see `trimtab sidecar --dry-run` and `trimtab explain`"
        )
    with closing(GroupMonitor(settings, clock)) as monitor:
        board = ControlTopicStore(settings, monitor.brokers.admin)
        _check_topics_exist(settings, monitor)
        plan, published = board.read_plan(), board.read_write_rates()
        refuse_share_group(settings)
        if plan is None and not capacity_known:
            raise SidecarSettingError(
                "capacity is missing, and no sidecar's plan tells it; say what one consumer "
                'sustains: --capacity "2.3 MB/s"'
            )
        horizon = clock.wall() - PUBLISHED_RATES_MAX_AGE_S
        lately = {t: s for t, s in published.items() if s.time >= horizon}
        speeds: Mapping[TopicPartition, PartitionLoad]
        if lately:
            monitor.brokers.fetch_cluster_metadata()  # as of which racks are told
            group, trouble = monitor.describe_group_with_trouble()
            speeds = {
                TopicPartition(t, number): speed
                for t, s in lately.items()
                for number, speed in s.partitions.items()
            }
            source = SOURCE_PUBLISHED
        else:
            group, speeds, trouble = _measure_window(monitor, settings, clock, report_progress)
            source = f"measured for {settings.window:g} s"
        racks, _ = monitor.brokers.fetch_replica_racks(speeds)
    if group.state is GroupState.UNKNOWN:
        raise BrokerTimeoutError("; ".join(trouble) or "no broker answers")
    if not speeds:
        raise SidecarSettingError(
            f"group {settings.group!r} reads nothing and never committed; is the name right? "
            "Name its topics (--topics) if it is new"
        )
    return GroupBaseline(distinguish_members(group), speeds, source, plan, racks)


def _check_topics_exist(settings: SidecarSettings, monitor: GroupMonitor) -> None:
    """Raise SidecarSettingError for a missing topic, BrokerTimeoutError without a response."""
    if not settings.topics:
        return
    layout = monitor.brokers.fetch_cluster_metadata()
    if not layout.leaders and layout.trouble:
        raise BrokerTimeoutError("; ".join(layout.trouble))
    missing = match_topics(settings.topics, {p.topic for p in layout.leaders})[1]
    if missing:
        said = "; ".join(map(monitor.brokers.explain_missing_topic, missing))
        raise SidecarSettingError(f"--topics: {said}; is the name right?")


def _measure_window(
    monitor: GroupMonitor, settings: SidecarSettings, clock: Clock, report_progress: Callable[[float], None]
) -> tuple[ObservedGroup, Mapping[TopicPartition, PartitionLoad], tuple[str, ...]]:
    seen = monitor.measure()
    for reading in range(READINGS_PER_WINDOW if seen.write_rates else 0):
        report_progress(reading / READINGS_PER_WINDOW)
        clock.sleep(settings.window / READINGS_PER_WINDOW)
        seen = monitor.measure()
    report_progress(1.0)
    return seen.group, seen.write_rates, seen.trouble


def evaluate_heuristics(
    baseline: GroupBaseline, heuristics: Iterable[str], policy: PlacementPolicy, max_reasons: int
) -> tuple[HeuristicOutcome, ...]:
    """Return what each heuristic would do, with the reasons of its first `max_reasons` moves."""
    at = model_baseline(baseline, policy)
    made: list[HeuristicOutcome] = []
    for name in heuristics:
        plan = size_group(at.build_group(), at.build_load(), replace(policy, heuristic=name))
        reasons = tuple(f"{m.partition} -> {m.target}: {m.reason}" for m in plan.moves[:max_reasons])
        figures = (plan.consumers, len(plan.moves), plan.r_score, plan.fill)
        crossing = _compute_cross_rack(baseline, at, plan)
        load = None if crossing is None else crossing.load
        made.append(HeuristicOutcome(name, *figures, load, reasons, plan.notes))
    return tuple(made)


def _compute_cross_rack(
    baseline: GroupBaseline, at: GroupModel, plan: PlacementPlan
) -> CrossRackTraffic | None:
    """Return the cross-rack traffic of a plan; additional members have no rack."""
    rack = {name: reader.rack for name, reader in at.members.items()}
    held = plan.assignment.items()
    readers = (ObservedMember(name, name, frozenset(mine), rack.get(name)) for name, mine in held)
    return compute_cross_rack_traffic(readers, baseline.write_rates, baseline.replica_racks)


def build_sizing_input(
    baseline: GroupBaseline, policy: PlacementPolicy
) -> tuple[ConsumerGroup, Load, PlacementPolicy]:
    """Return the arguments of `size_group` for the measured group."""
    at = model_baseline(baseline, policy)
    return at.build_group(), at.build_load(), policy


def describe_oversized_partitions(baseline: GroupBaseline, policy: PlacementPolicy) -> tuple[str, ...]:
    """Describe the partitions that exceed a consumer's usable capacity."""
    return model_baseline(baseline, policy).describe_oversized_partitions()


def model_baseline(baseline: GroupBaseline, policy: PlacementPolicy) -> GroupModel:
    """Return the decision model of the measured group; all members count as replicas."""
    replicas = tuple(ReplicaInstance(r.instance, alive=True, started_at=0.0) for r in baseline.group.members)
    seen = Observation(
        baseline.write_rates, baseline.group, replicas, baseline.plan, replica_racks=baseline.replica_racks
    )
    plan = baseline.plan or GroupPlan("", 0, 0.0, len(replicas), "", 0.0)
    return build_group_model(seen, AutoscalingPolicy(policy), replace(plan, draining=()))
