"""A read-only look at a live group: what each heuristic would do with it now.

Speeds are those a sidecar published lately; where there are none they are measured for one window.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final

from trimtab.assignor.decisions import size
from trimtab.assignor.model import Group, Load, Plan, Policy, TopicPartition
from trimtab.assignor.racks.cross_rack_traffic import Crossing
from trimtab.common.clock import Clock
from trimtab.common.control_topics.values import GroupPlan, PartitionSpeed
from trimtab.sidecar.control_loop import distinct
from trimtab.sidecar.decision.group_model import Situation, situation
from trimtab.sidecar.decision.scaling_policy import ScalePolicy
from trimtab.sidecar.errors import BadSetting, KafkaAway
from trimtab.sidecar.kafka.control_topic_store import ControlTopics
from trimtab.sidecar.kafka.share_groups.share_group import refuse_share_group
from trimtab.sidecar.measurement.cross_rack import across
from trimtab.sidecar.measurement.group_monitor import Monitor, matching
from trimtab.sidecar.measurement.observation import (
    GroupState,
    GroupView,
    Instance,
    Observation,
    Racks,
    Reader,
)
from trimtab.sidecar.measurement.queue_backlog import Kind
from trimtab.sidecar.settings.settings import Settings

FRESH: Final = 60.0
"""Seconds after which published speeds are old news."""

READINGS: Final = 5  # of one window, when there is nothing to read


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found: the group, its speeds, where they come from, the plan, replicas' racks."""

    group: GroupView
    speeds: Mapping[TopicPartition, PartitionSpeed]
    source: str
    plan: GroupPlan | None
    racks: Racks = field(default_factory=dict[TopicPartition, tuple[str | None, ...]])


@dataclass(frozen=True, slots=True)
class Row:
    """What one heuristic would do; rates and `notes` as in `Plan`.

    `crossing` is what would be read from other racks, bytes/s, whether the heuristic weighs that or
    not; None where no member says its rack. `reasons` are those of the first moves.
    """

    heuristic: str
    consumers: int
    moves: int
    r_score: float
    fill: float
    crossing: float | None
    reasons: tuple[str, ...]
    notes: tuple[str, ...]


def survey(
    settings: Settings,
    clock: Clock,
    progress: Callable[[float], None],
    *,
    capacity_known: bool = True,
) -> Survey:
    """Look at the group; `progress` is told the share done. Publishes nothing.

    Before anything is measured it raises BadSetting for a group that reads nothing, for a topic
    that does not exist and, if the settings do not know the capacity, for a group without a plan.
    Raises KafkaAway, WrongGroup.
    """
    if settings.queue is Kind.SHARE:
        raise BadSetting(
            "queue=share: the broker hands every worker messages of every partition, so there is "
            "no placement to plan; see `trimtab sidecar --dry-run` and `trimtab explain`"
        )
    with closing(Monitor(settings, clock)) as monitor:
        board = ControlTopics(settings, monitor.brokers.admin)
        _check_topics(settings, monitor)
        plan, published = board.plan(), board.speeds()
        refuse_share_group(settings)
        if plan is None and not capacity_known:
            raise BadSetting(
                "capacity is missing, and no sidecar's plan tells it; say what one consumer "
                'sustains: --capacity "2.3 MB/s"'
            )
        horizon = clock.wall() - FRESH
        lately = {t: s for t, s in published.items() if s.time >= horizon}
        speeds: Mapping[TopicPartition, PartitionSpeed]
        if lately:
            monitor.brokers.layout()  # as of which racks are told
            group, trouble = monitor.described()
            speeds = {
                TopicPartition(t, number): speed
                for t, s in lately.items()
                for number, speed in s.partitions.items()
            }
            source = "published by a sidecar"
        else:
            group, speeds, trouble = _measured(monitor, settings, clock, progress)
            source = f"measured for {settings.window:g} s"
        racks, _ = monitor.brokers.racks(speeds)
    if group.state is GroupState.UNKNOWN:
        raise KafkaAway("; ".join(trouble) or "no broker answers")
    if not speeds:
        raise BadSetting(
            f"group {settings.group!r} reads nothing and never committed; is the name right? "
            "Name its topics (--topics) if it is new"
        )
    return Survey(distinct(group), speeds, source, plan, racks)


def _check_topics(settings: Settings, monitor: Monitor) -> None:
    """Raise BadSetting if a topic that was named does not exist, KafkaAway if nobody answers."""
    if not settings.topics:
        return
    layout = monitor.brokers.layout()
    if not layout.leaders and layout.trouble:
        raise KafkaAway("; ".join(layout.trouble))
    missing = matching(settings.topics, {p.topic for p in layout.leaders})[1]
    if missing:
        said = "; ".join(map(monitor.brokers.absent, missing))
        raise BadSetting(f"--topics: {said}; is the name right?")


def _measured(
    monitor: Monitor, settings: Settings, clock: Clock, progress: Callable[[float], None]
) -> tuple[GroupView, Mapping[TopicPartition, PartitionSpeed], tuple[str, ...]]:
    seen = monitor.measure()
    for reading in range(READINGS if seen.speeds else 0):
        progress(reading / READINGS)
        clock.sleep(settings.window / READINGS)
        seen = monitor.measure()
    progress(1.0)
    return seen.group, seen.speeds, seen.trouble


def rows(found: Survey, heuristics: Iterable[str], policy: Policy, shown: int) -> tuple[Row, ...]:
    """Return what each heuristic would do, with the reasons of its first `shown` moves."""
    at = situated(found, policy)
    made: list[Row] = []
    for name in heuristics:
        plan = size(at.group(), at.load(), replace(policy, heuristic=name))
        reasons = tuple(f"{m.partition} -> {m.target}: {m.reason}" for m in plan.moves[:shown])
        figures = (plan.consumers, len(plan.moves), plan.r_score, plan.fill)
        crossing = _crossing(found, at, plan)
        load = None if crossing is None else crossing.load
        made.append(Row(name, *figures, load, reasons, plan.notes))
    return tuple(made)


def _crossing(found: Survey, at: Situation, plan: Plan) -> Crossing | None:
    """Tell what would cross racks; a member to be added has none yet."""
    rack = {name: reader.rack for name, reader in at.readers.items()}
    held = plan.assignment.items()
    readers = (Reader(name, name, frozenset(mine), rack.get(name)) for name, mine in held)
    return across(readers, found.speeds, found.racks)


def asked(found: Survey, policy: Policy) -> tuple[Group, Load, Policy]:
    """Return what `size` is asked about the group that was found."""
    at = situated(found, policy)
    return at.group(), at.load(), policy


def oversize(found: Survey, policy: Policy) -> tuple[str, ...]:
    """Say which partitions write more than a consumer may take; whatever decides, they stay."""
    return situated(found, policy).oversize()


def situated(found: Survey, policy: Policy) -> Situation:
    """Return the group that was found as decisions see it; all who read count as replicas."""
    replicas = tuple(Instance(r.instance, alive=True, started=0.0) for r in found.group.readers)
    seen = Observation(found.speeds, found.group, replicas, found.plan, racks=found.racks)
    plan = found.plan or GroupPlan("", 0, 0.0, len(replicas), "", 0.0)
    return situation(seen, ScalePolicy(policy), replace(plan, draining=()))
