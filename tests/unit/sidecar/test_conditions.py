"""Conditions: each type is found in a group that has it, and shown by every surface."""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from prometheus_client import generate_latest
from rich.console import Console

from support.page.paged import TERMS, create_web_server
from support.policies import build_policy
from trimtab.assignor.model import PlacementPolicy, TopicPartition
from trimtab.cli.doctor.run import format_finding, format_summary
from trimtab.cli.explain.run import format_explanation
from trimtab.cli.top.run import build_status_body, build_status_table
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.custom_resource.resource_status import build_status, find_condition
from trimtab.sidecar.custom_resource.scaler_resource import ScalerResource
from trimtab.sidecar.decision.condition import Condition, ConditionType, restore_conditions, track_conditions
from trimtab.sidecar.decision.decide import DRAIN_RETRIED, make_decision
from trimtab.sidecar.decision.decision_memory import ConsumptionLimit, DecisionMemory, ScaleUpSuspension
from trimtab.sidecar.diagnostics.doctor.checks import FindingLevel, report_condition
from trimtab.sidecar.diagnostics.explanation import build_explanation
from trimtab.sidecar.diagnostics.group_status import LiveGroupSnapshot, build_group_status
from trimtab.sidecar.measurement.freshness import AgeSample
from trimtab.sidecar.model.hpa_behavior import Direction
from trimtab.sidecar.model.observation import (
    GroupState,
    Observation,
    ObservedGroup,
    ObservedMember,
    ReplicaInstance,
    RequestedReplicas,
    TargetStatus,
)
from trimtab.sidecar.plan_carrier import CarrierStatus
from trimtab.sidecar.records.decision_record import DecisionRecord, build_decision_record
from trimtab.sidecar.records.iteration_report import IterationReport, LogReporter
from trimtab.sidecar.records.plan_outcome import PlanOutcome, UnfollowedPlan
from trimtab.sidecar.reporting.group_conditions import GroupFacts, find_conditions
from trimtab.sidecar.reporting.metrics import SidecarMetrics

NOW: Final = 1.7e9
P: Final = tuple(TopicPartition("t", n) for n in range(8))
OWNERS: Final = {"a": P[:4], "b": P[4:]}
PLAN: Final = GroupPlan("g", 7, NOW - 500, 2, "steady", 100.0, 0.9)
ALERTS: Final = Path(__file__).parents[3] / "deploy" / "prometheus" / "rules.yaml"


def observe(written: float = 15.0, backlog: float = 0.0, **changes: Any) -> Observation:
    """Return a healthy group of two consumers at 60 %, with `changes`."""
    members = tuple(ObservedMember(f"id-{n}", n, frozenset(owned)) for n, owned in OWNERS.items())
    loads = {p: PartitionLoad(written, written, backlog, int(backlog), written + backlog / 30) for p in P}
    replicas = tuple(ReplicaInstance(n, alive=True, started_at=NOW - 400) for n in OWNERS)
    seen = Observation(loads, ObservedGroup(GroupState.STABLE, members), replicas, PLAN)
    return replace(seen, **changes)


def decide(seen: Observation, memory: DecisionMemory | None = None, **changes: Any) -> GroupFacts:
    """Return the facts of an iteration; policy fields are changed by `changes`."""
    placement = PlacementPolicy("steady", 100.0, 0.9, consolidate=True)
    policy = build_policy(**{"placement": placement, "min_replicas": 1, "max_replicas": 9, **changes})
    decision, after = make_decision(seen, policy, memory or DecisionMemory(last_change=NOW - 500), NOW, "g")
    return GroupFacts(seen, policy, decision, after, NOW)


def change_group(seen: Observation, *members: ObservedMember) -> Observation:
    return replace(seen, group=replace(seen.group, members=members))


def pause(direction: Direction, written: float) -> GroupFacts:
    return decide(observe(written), paused_directions=frozenset({direction}))


def drain_for_long() -> GroupFacts:
    plan = replace(
        PLAN, replicas=1, draining=("b",), reasons=(f"b still owns 4 partitions, {DRAIN_RETRIED}",)
    )
    return decide(observe(10.0, plan=plan))


def miss_freshness() -> GroupFacts:
    ages = tuple(AgeSample(NOW - n, (200.0,) * 100) for n in range(30))
    return decide(observe(), DecisionMemory(last_change=NOW - 500, age_samples=ages), freshness_slo=30.0)


def lose_target() -> GroupFacts:
    requested = RequestedReplicas(4, "trimtab", NOW - 500, is_ours=True)
    seen = observe(plan=replace(PLAN, replicas=4), target_status=TargetStatus(requested))
    return decide(seen, DecisionMemory(last_change=NOW - 500, short_since=NOW - 400))


def suspend() -> GroupFacts:
    suspension = ScaleUpSuspension(NOW + 60, "4 consumers read no more than 2")
    return decide(observe(), DecisionMemory(last_change=NOW - 500, scale_up_suspension=suspension))


def add_replica() -> Observation:
    seen = observe(plan=replace(PLAN, replicas=3))
    return replace(
        seen, replicas=(*(seen.replicas or ()), ReplicaInstance("c", alive=True, started_at=NOW - 400))
    )


def add_stranger() -> Observation:
    seen = observe()
    a, b = seen.group.members
    stranger = ObservedMember("id-x", "x", frozenset(P[:1]))
    return change_group(seen, replace(a, owned_partitions=a.owned_partitions - {P[0]}), b, stranger)


def cross_racks() -> GroupFacts:
    seen = observe(replica_racks=dict.fromkeys(P, ("r1",)))
    seen = change_group(seen, *(replace(m, rack="r2") for m in seen.group.members))
    return decide(seen, placement=PlacementPolicy("rack-aware", 100.0, 0.9))


SCENARIOS: Final[dict[ConditionType, Callable[[], GroupFacts]]] = {
    ConditionType.GROUP_UNKNOWN: lambda: decide(observe(group=ObservedGroup())),
    ConditionType.REQUESTS_FAILED: lambda: decide(observe(errors=("broker 2 does not answer",))),
    ConditionType.DECISION_FAILED: lambda: replace(
        (facts := decide(observe(40.0))), decision=replace(facts.decision, failure="quota exceeded")
    ),
    ConditionType.PARTITIONS_HALTED: lambda: decide(observe(halts=dict.fromkeys(P[:2], "no column ts"))),
    ConditionType.PARTITIONS_STUCK: lambda: decide(observe(backlog=50.0, stuck_partitions=frozenset(P[:2]))),
    ConditionType.CONSUMERS_STUCK: lambda: decide(observe(backlog=50.0, stuck_partitions=frozenset(P[:4]))),
    ConditionType.NOTHING_CONSUMED: lambda: decide(change_group(observe(backlog=5000.0))),
    ConditionType.TRANSACTION_OPEN: lambda: decide(observe(open_transactions={P[0]: "producer 4711"})),
    ConditionType.CONSUMER_OVERLOADED: lambda: decide(observe(30.0), max_replicas=2),
    ConditionType.PARTITION_OVERSIZED: lambda: decide(observe(95.0)),
    ConditionType.BACKLOG_OVERDUE: lambda: decide(observe(backlog=5000.0)),
    ConditionType.FRESHNESS_MISSED: miss_freshness,
    ConditionType.WRITE_RATE_UNKNOWN: lambda: decide(
        (seen := observe()) and replace(seen, write_rates={**seen.write_rates, P[0]: PartitionLoad()})
    ),
    ConditionType.SCALE_UP_SUSPENDED: suspend,
    ConditionType.SCALE_UP_LIMITED: lambda: decide(observe(40.0), max_replicas=2),
    ConditionType.SCALE_DOWN_BLOCKED: drain_for_long,
    ConditionType.SCALING_PAUSED: lambda: pause(Direction.DOWN, 15.0),
    ConditionType.REPLICAS_MISSING: lose_target,
    ConditionType.REPLICAS_NOT_JOINED: lambda: decide(add_replica()),
    ConditionType.FOREIGN_MEMBERS: lambda: decide(add_stranger()),
    ConditionType.GROUP_UNSTEERED: lambda: replace(
        decide(observe()), carrier=CarrierStatus(is_steering=False, text="unsteered: led by a-1")
    ),
    ConditionType.PLAN_NOT_FOLLOWED: lambda: replace(
        decide(observe()),
        unfollowed=UnfollowedPlan(NOW - 120, PlanOutcome(7, 1, 5, 0.7, 0.9, 2, is_settled=True)),
    ),
    ConditionType.RACKS_UNCOVERED: cross_racks,
}


def find(facts: GroupFacts, kind: ConditionType) -> Condition:
    """Return the condition of this type, as of an iteration."""
    tracked = track_conditions((), find_conditions(facts), NOW, is_observed=facts.is_observed)
    (one,) = (c for c in tracked if c.type == kind)
    return one


@dataclass(frozen=True)
class Shown:
    """What each surface shows of a report."""

    report: IterationReport

    @property
    def record(self) -> DecisionRecord:
        made = build_decision_record(self.report, TERMS)
        return DecisionRecord.decode(made.encode())  # as another process reads it

    def log(self, caplog: pytest.LogCaptureFixture) -> list[str]:
        reporter = LogReporter()
        ended = replace(self.report, time=NOW + 60, conditions=())
        for report in (self.report, self.report, ended):  # it is logged when it begins and ends
            reporter(report)
        return [one.getMessage() for one in caplog.records if "condition " in one.getMessage()]

    def metrics(self) -> str:
        metrics = SidecarMetrics()
        metrics.record_iteration("g", self.report)
        return generate_latest(metrics.registry).decode()

    def doctor(self) -> tuple[str, str]:
        findings = [report_condition(one, NOW) for one in self.record.conditions]
        return "\n".join(line for one in findings for line in format_finding(one)), format_summary(findings)

    def explain(self) -> str:
        explanation = build_explanation((self.record,), None, 0)
        assert explanation is not None
        return "\n".join(format_explanation(explanation, (), NOW))

    def top(self) -> tuple[str, dict[str, Any]]:
        group = ObservedGroup(GroupState.STABLE, (ObservedMember("id-a", "a", frozenset(P)),))
        snapshot = LiveGroupSnapshot(NOW, group, dict.fromkeys(P, PartitionLoad()), "", PLAN, (self.record,))
        status = build_group_status(snapshot)
        console = Console(width=1000, record=True)
        console.print(build_status_table(status, "g"))
        return console.export_text(), build_status_body(status, "g")

    def page(self) -> tuple[str, str, str]:
        server = create_web_server()
        server(self.report)
        paths = ("/history", "/decisions", "/groups")
        history, decisions, groups = (server.handle_path(path)[2].decode() for path in paths)
        return history, decisions, groups

    def resource(self) -> tuple[dict[str, Any], dict[str, Any]]:
        one = ScalerResource("shop", "u", "u", 4, "2026-11-25T00:00:00Z", {"group": "g"}, {})
        status = build_status(one, None, self.report, None, NOW)
        after = build_status(
            replace(one, status=status), None, replace(self.report, conditions=()), None, NOW
        )
        return status, after


@pytest.mark.parametrize("kind", ConditionType)
def test_each_type_is_on_every_surface(kind: ConditionType, caplog: pytest.LogCaptureFixture) -> None:
    """A new type without a group that has it, or without a surface, fails here."""
    caplog.set_level(logging.INFO, "trimtab.sidecar")
    facts = SCENARIOS[kind]()
    one = find(facts, kind)
    assert one.message
    assert one.remedy
    report = IterationReport(
        NOW, facts.decision, facts.observation.write_rates, 7, is_group_known=True, decision_seconds=0.1,
        iteration_seconds=0.1, conditions=(one,), capacity=100.0,
    )  # fmt: skip
    shown = Shown(report)
    assert shown.record.conditions == (one,)
    assert shown.log(caplog) == [f"condition {one.format_line()}", f"condition {kind} has ended after 60 s"]
    assert f'trimtab_condition{{group="g",severity="{one.severity}",type="{kind}"}} 1.0' in shown.metrics()
    lines, summary = shown.doctor()
    assert f"{kind}: {one.message} (for 0 s)\n         -> {one.remedy}" in lines
    assert "all checks passed" not in summary
    assert one.format_line() in shown.explain()
    text, body = shown.top()
    assert one.format_line() in " ".join(text.split())
    assert body["conditions"][0]["type"] == kind
    for answer in shown.page():
        assert json.dumps(one.message) in answer
    status, after = shown.resource()
    assert find_condition(status, "Degraded")["reason"] == kind
    assert find_condition(status, kind)["status"] == "True"
    assert one.remedy in find_condition(status, kind)["message"]
    assert find_condition(after, kind)["status"] == find_condition(after, "Degraded")["status"] == "False"


def test_a_healthy_group_has_no_condition() -> None:
    """Neither while it is idle, nor while it scales."""
    for written, backlog in ((15.0, 0.0), (0.0, 0.0), (21.0, 100.0), (30.0, 0.0)):
        found = find_conditions(decide(observe(written, backlog)))
        assert [one.type for one in found if one.type != ConditionType.CONSUMER_OVERLOADED] == []


def test_each_severity_has_an_alert() -> None:
    """The rules select conditions by severity, so a new type has its alert."""
    rules = [r for g in yaml.safe_load(ALERTS.read_text())["groups"] for r in g["rules"]]
    told = {r["labels"]["severity"]: r["expr"] for r in rules if "trimtab_condition" in r["expr"]}
    assert told.keys() == {"warning", "critical"}
    for severity, text in told.items():
        assert f'trimtab_condition{{severity="{severity}"' in text


def test_a_condition_keeps_its_begin_and_becomes_unknown_with_the_group() -> None:
    """An outage ends no condition: what is not observed may still hold."""
    stuck = decide(observe(backlog=50.0, stuck_partitions=frozenset(P[:2])))
    first = track_conditions((), find_conditions(stuck), NOW, is_observed=True)
    away = decide(observe(group=ObservedGroup()))
    second = track_conditions(first, find_conditions(away), NOW + 30, is_observed=False)
    by_type = {one.type: one for one in second}
    assert by_type["GroupUnknown"].since == NOW + 30
    assert (by_type["PartitionsStuck"].since, by_type["PartitionsStuck"].status) == (NOW, "Unknown")
    third = track_conditions(second, find_conditions(stuck), NOW + 60, is_observed=True)
    assert [(one.since, one.status) for one in third if one.type == "PartitionsStuck"] == [(NOW, "True")]
    assert all(one.type != "GroupUnknown" for one in third)


def test_recorded_conditions_keep_their_begin_and_wait_to_be_found() -> None:
    """After a restart what was recorded is unknown for a while; what is found again began long ago."""
    found = find_conditions(decide(observe(backlog=50.0, stuck_partitions=frozenset(P[:2]))))
    recorded = track_conditions((), found, NOW - 900, is_observed=True)
    new = track_conditions((), find_conditions(lose_target()), NOW, is_observed=True)
    restored = restore_conditions(new, recorded)
    told = track_conditions(restored, (), NOW + 1, is_observed=True, keeps_unknown=True)
    assert [(one.type, one.since, one.status) for one in told] == [("PartitionsStuck", NOW - 900, "Unknown")]
    again = track_conditions(told, found, NOW + 2, is_observed=True, keeps_unknown=True)
    assert [(one.since, one.status) for one in again] == [(NOW - 900, "True")]
    assert track_conditions(again, (), NOW + 3, is_observed=True, keeps_unknown=True) == ()
    assert track_conditions(told, (), NOW + 99, is_observed=True) == ()
    assert [one.since for one in restore_conditions(again, recorded)] == [NOW - 900]


def test_changed_figures_are_no_news(caplog: pytest.LogCaptureFixture) -> None:
    """A line when a condition changes, not when its figures do."""
    caplog.set_level(logging.INFO, "trimtab.sidecar")
    facts = decide(observe(backlog=5000.0))
    report = IterationReport(
        NOW, facts.decision, {}, 7, is_group_known=True, decision_seconds=0.1, iteration_seconds=0.1
    )
    one = find(facts, ConditionType.BACKLOG_OVERDUE)
    more = replace(one, message=one.message.replace("38.2 kB", "41.7 kB"))
    assert more != one
    reporter = LogReporter()
    for conditions in ((one,), (more,), (replace(more, reason="Other"),)):
        reporter(replace(report, conditions=conditions))
    assert sum("condition BacklogOverdue" in record.getMessage() for record in caplog.records) == 2


def test_critical_conditions_fail_the_doctor() -> None:
    """A stuck partition is a failure, a limit a warning."""
    for kind, level in (
        (ConditionType.PARTITIONS_STUCK, FindingLevel.FAILED),
        (ConditionType.SCALE_UP_LIMITED, FindingLevel.WARNING),
    ):
        assert report_condition(find(SCENARIOS[kind](), kind), NOW).level is level


def test_a_trial_of_fewer_replicas_is_no_limit_yet() -> None:
    """It asks to wait; what it has shown has the sink checked."""
    for tried, reason, remedy in ((6, "Measuring", "wait: "), (4, "NoEffect", "check the sink")):
        suspension = ScaleUpSuspension(NOW + 60, "why", ConsumptionLimit(90.0, 4, tried, NOW, 6), 4)
        memory = DecisionMemory(last_change=NOW - 500, scale_up_suspension=suspension)
        one = find(decide(observe(), memory), ConditionType.SCALE_UP_SUSPENDED)
        assert (one.reason, one.remedy[: len(remedy)]) == (reason, remedy)


def test_what_lasts_a_moment_is_no_condition() -> None:
    """Replicas that have just started are neither late nor stuck, and a halted partition is not stuck."""
    young = tuple(ReplicaInstance(n, alive=True, started_at=NOW - 20) for n in "abc")
    seen = replace(add_replica(), replicas=young, stuck_partitions=frozenset(P[:2]))
    assert find_conditions(decide(seen)) == ()
    halted = observe(backlog=50.0, stuck_partitions=frozenset(P[:2]), halts=dict.fromkeys(P[:2], "no column"))
    assert [one.type for one in find_conditions(decide(halted))] == ["PartitionsHalted"]


def test_messages_name_what_to_look_at() -> None:
    """The consumer, the partition and the number of others."""
    expected = {
        ConditionType.PARTITIONS_STUCK: "t-0 (and 1 more) seems stuck: a has committed nothing of it",
        ConditionType.CONSUMERS_STUCK: "a has committed nothing of any partition",
        ConditionType.PARTITIONS_HALTED: "t-0 (and 1 more) are not read: no column ts",
        ConditionType.FRESHNESS_MISSED: "p99 freshness is 200 s, the SLO 30 s: batches take",
        ConditionType.REPLICAS_NOT_JOINED: "c has not joined within 120 s",
        ConditionType.FOREIGN_MEMBERS: "x owns partitions and is not of the replicas",
        ConditionType.CONSUMER_OVERLOADED: "the fullest consumer, a, is at 120% of its capacity",
        ConditionType.SCALING_PAUSED: "scale-down is paused by the settings",
        ConditionType.REPLICAS_MISSING: "2 of 4 running, the target has not started the others within 120 s",
    }
    for kind, text in expected.items():
        assert find(SCENARIOS[kind](), kind).message.startswith(text)


def test_another_worst_partition_is_no_news() -> None:
    """Errors are told by their text, overloads by their type."""
    one = find(SCENARIOS[ConditionType.CONSUMER_OVERLOADED](), ConditionType.CONSUMER_OVERLOADED)
    assert replace(one, message=one.message.replace(" a,", " b,")).key == one.key
    failed = find(SCENARIOS[ConditionType.REQUESTS_FAILED](), ConditionType.REQUESTS_FAILED)
    assert replace(failed, message="TopicAuthorizationFailed").key != failed.key


def test_who_stands_by_ends_no_condition(caplog: pytest.LogCaptureFixture) -> None:
    """A standby knows none, and a sidecar that has just started knows none yet."""
    caplog.set_level(logging.INFO, "trimtab.sidecar")
    shown = SCENARIOS[ConditionType.PARTITIONS_STUCK]()
    one = find(shown, ConditionType.PARTITIONS_STUCK)
    report = IterationReport(
        NOW, shown.decision, {}, 7, is_group_known=True, decision_seconds=0.1, iteration_seconds=0.1
    )
    reporter = LogReporter()
    reporter(replace(report, conditions=(one,)))
    reporter(replace(report, is_leader=False))
    assert "has ended" not in caplog.text
    resource = ScalerResource("shop", "u", "u", 4, "2026-11-25T00:00:00Z", {"group": "g"}, {})
    status = build_status(resource, None, replace(report, conditions=(one,)), None, NOW)
    restarted = build_status(replace(resource, status=status), None, None, None, NOW)
    assert find_condition(restarted, one.type)["status"] == "Unknown"
    assert find_condition(restarted, one.type)["message"].startswith(one.message)


def test_consumers_of_a_replica_are_named_and_no_strangers() -> None:
    """Two consumers a replica: the fullest one is named, and all are ours."""
    halves = {f"{n}/{k}": owned[k - 1 :: 2] for n, owned in OWNERS.items() for k in (1, 2)}
    members = tuple(ObservedMember(f"id-{n}", n, frozenset(owned)) for n, owned in halves.items())
    facts = decide(change_group(observe(60.0), *members), consumers_per_replica=2, max_replicas=2)
    types = {one.type for one in find_conditions(facts)}
    assert ConditionType.FOREIGN_MEMBERS not in types
    overload = find(facts, ConditionType.CONSUMER_OVERLOADED)
    assert overload.message.startswith("the fullest consumer, a/1, is at 120%")


def test_a_start_that_failed_is_told_between_its_attempts() -> None:
    """`DecisionFailed` ended in each pause, "after 0 s", although no replica had been started."""
    memory = DecisionMemory(last_change=NOW - 500, replacements=(NOW - 1,), failed_start="no such file")
    dead = (ReplicaInstance("a", alive=True, started_at=NOW - 400),)
    pausing = decide(observe(replicas=dead), memory)
    assert pausing.decision.action == "hold"
    assert "no such file" in find(pausing, ConditionType.DECISION_FAILED).message
    assert find_conditions(decide(observe(), memory)) == ()  # somebody has started it
