"""Checks of `trimtab doctor`, and its output."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from support.hostile import encode_subscription
from support.named_rounds import JoinedMember, assign_by_name
from trimtab.assignor.model import Load, PlacementPolicy, TopicPartition
from trimtab.assignor.rebalance.leader import LeaderView
from trimtab.assignor.rebalance.user_data import MemberUserData
from trimtab.cli.doctor.run import check_consumer_settings, format_finding
from trimtab.cli.main import main
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.plan_target import PlanTarget
from trimtab.sidecar.decision.decision import DecisionMetrics, ScalingAction
from trimtab.sidecar.diagnostics.doctor import all_checks
from trimtab.sidecar.diagnostics.doctor.checks import (
    ASSIGNOR_NAME,
    MAX_CLOCK_SKEW_S,
    PLAN_PROPAGATION_S,
    REBALANCING,
    Finding,
    FindingLevel,
    MemberMetadata,
    check_access,
    check_clock,
    check_control_topic,
    check_last_decision,
    check_members,
    check_plan_followed,
    check_rights,
    check_sidecar_clock,
    has_failed_checks,
)
from trimtab.sidecar.diagnostics.doctor.kubernetes_checks import list_needed_rights
from trimtab.sidecar.records.decision_record import DecisionRecord
from trimtab.sidecar.targets.kubernetes.api_client import ScaleTargetRef
from trimtab.sidecar.targets.kubernetes.workload import WorkloadKind

NOW = 10_000.0
PLAN = GroupPlan("g", 4, NOW - 100, 2, "steady", 100.0, 0.9)
PARTITIONS = tuple(TopicPartition("t", n) for n in range(4))
LAST = DecisionRecord(
    "g", 1, 900.0, NOW - 5, 1, 10.0, 4, ScalingAction.HOLD, ("2 is right",), DecisionMetrics(), 100.0, 0.9
)


def test_missing_rights_are_named() -> None:
    """Each missing operation is named; unreported rights are no failure."""
    assert check_rights("topic t", ("Describe", "Read"), {"Read", "Describe"}).level is FindingLevel.OK
    assert check_rights("topic t", ("Read",), None).level is FindingLevel.NOTE
    failure = check_rights("topic t", ("Describe", "Read", "Write"), {"Describe"})
    assert failure.level is FindingLevel.FAILED
    assert failure.remedy == "grant Read and Write on topic t"


@pytest.mark.parametrize(
    ("partitions", "policy", "level"),
    [
        (1, "compact", FindingLevel.OK),
        (1, "delete", FindingLevel.FAILED),
        (1, "compact,delete", FindingLevel.FAILED),
        (3, "compact", FindingLevel.NOTE),
        (1, None, FindingLevel.NOTE),
    ],
)
def test_control_topics_must_be_compacted(partitions: int, policy: str | None, level: FindingLevel) -> None:
    """Deletion fails the check; several partitions are a note."""
    assert check_control_topic("c", partitions, policy).level is level


def test_clock_behind_is_detected() -> None:
    """A timestamp in the future shows that a clock is wrong."""
    assert check_clock(NOW, {"a": NOW - 50, "b": NOW + MAX_CLOCK_SKEW_S}).level is FindingLevel.OK
    failure = check_clock(NOW, {"a": NOW + 7, "b": NOW + 30})
    assert (failure.level, failure.message) == (FindingLevel.FAILED, "b is 30 s ahead of this machine")
    assert check_clock(NOW, {}).level is FindingLevel.NOTE
    assert check_sidecar_clock(NOW, NOW + 2).level is FindingLevel.OK
    assert check_sidecar_clock(NOW + 20, NOW).level is FindingLevel.FAILED
    assert check_sidecar_clock(NOW - 20, NOW).level is FindingLevel.OK  # another group's came since


@pytest.mark.parametrize(
    ("last", "plan", "level", "text"),
    [
        (LAST, PLAN, FindingLevel.OK, "decision 5 s ago: hold: 2 is right"),
        (None, None, FindingLevel.NOTE, "no sidecar manages"),
        (None, PLAN, FindingLevel.FAILED, "no decision"),
        (replace(LAST, until=NOW - 600), PLAN, FindingLevel.FAILED, "silent for 10 min"),
    ],
)
def test_last_decision_shows_the_sidecars_state(
    last: DecisionRecord | None, plan: GroupPlan | None, level: FindingLevel, text: str
) -> None:
    """The last decision is fresh, silent, with errors, or missing."""
    finding = check_last_decision(last, plan, NOW)
    assert finding.level is level
    assert text in finding.message
    assert bool(finding.remedy) == (level is FindingLevel.FAILED)


def member_metadata(plan: GroupPlan | None) -> dict[str, MemberMetadata]:
    """Two members with the assignment of a leader that has this plan."""
    joined = [JoinedMember(f"id{n}", frozenset({"t"}), MemberUserData(instance=f"w{n}")) for n in range(2)]
    given = assign_by_name(joined, PARTITIONS, LeaderView(Load(), plan), PlacementPolicy()).encode()
    return {
        j.id: MemberMetadata(
            ConsumerProtocolSubscription(
                version=1, topics=["t"], user_data=j.data.encode(), owned_partitions=[]
            ).encode(),
            given[j.id],
        )
        for j in joined
    }


def test_assignment_of_the_plan_passes() -> None:
    """The assignment was computed from the current plan, whatever was drained since."""
    finding = check_plan_followed(PLAN, ASSIGNOR_NAME, member_metadata(PLAN), PARTITIONS, NOW)
    assert (finding.level, finding.message) == (
        FindingLevel.OK,
        "all 2 members have the assignment of epoch 4",
    )
    other = [*PARTITIONS, TopicPartition("else", 0)]
    assert (
        check_plan_followed(PLAN, ASSIGNOR_NAME, member_metadata(PLAN), other, NOW).level is FindingLevel.OK
    )


def test_partitions_that_are_elsewhere_than_planned_are_counted() -> None:
    """A consumer of the plan's target is not there: noted, for its partitions are read by others."""
    numbers = tuple(1 if n % 2 else 2 for n in range(len(PARTITIONS)))
    for consumers, level in ((("w0", "w1"), FindingLevel.OK), (("gone", "w0", "w1"), FindingLevel.NOTE)):
        planned = replace(PLAN, target=PlanTarget(1, consumers, 0, {"t": numbers}))
        finding = check_plan_followed(planned, ASSIGNOR_NAME, member_metadata(planned), PARTITIONS, NOW)
        assert finding.level is level
    expected = f"; {numbers.count(1)} partitions are on other consumers than planned"
    assert finding.message == f"all 2 members have the assignment of epoch 4{expected}"


def test_assignment_of_another_plan_fails() -> None:
    """Another epoch, or no plan at the leader, fails unless the plan is new."""
    for theirs in (None, replace(PLAN, epoch=3)):
        finding = check_plan_followed(PLAN, ASSIGNOR_NAME, member_metadata(theirs), PARTITIONS, NOW)
        assert finding.level is FindingLevel.FAILED
        assert "trimtab.plan.topic" in finding.remedy
    new = replace(PLAN, time=NOW - PLAN_PROPAGATION_S + 1)
    assert (
        check_plan_followed(new, ASSIGNOR_NAME, member_metadata(None), PARTITIONS, NOW).level
        is FindingLevel.NOTE
    )


def test_a_group_that_rebalances_is_not_blamed() -> None:
    """The brokers tell neither its assignor nor its assignments meanwhile."""
    hidden = dict.fromkeys(("a", "b"), MemberMetadata(b"", b""))
    finding = check_plan_followed(PLAN, "", hidden, PARTITIONS, NOW)
    assert (finding.level, finding.message) == (FindingLevel.NOTE, REBALANCING)


def test_a_failed_decision_of_the_leader_is_reported() -> None:
    """The finding has the leader's words; the members cannot carry out this plan."""
    unknown = replace(PLAN, heuristic="nope")
    finding = check_plan_followed(unknown, ASSIGNOR_NAME, member_metadata(unknown), PARTITIONS, NOW)
    assert finding.level is FindingLevel.FAILED
    assert "plan 4: heuristic 'nope' is not known" in finding.message
    assert "choose another heuristic" in finding.remedy


def test_a_member_with_unreadable_data_is_reported() -> None:
    """Each by its id; the others' assignment is still compared with the plan."""
    members = member_metadata(PLAN)
    assert list(check_members(ASSIGNOR_NAME, members)) == []
    odd = replace(members["id0"], subscription=encode_subscription(b"\0", ("t",)))
    cut = replace(members["id0"], subscription=b"\0")
    found = list(check_members(ASSIGNOR_NAME, {**members, "odd": odd, "cut": cut}))
    assert [(f.check, f.level) for f in found] == [
        ("member cut", FindingLevel.FAILED),
        ("member odd", FindingLevel.FAILED),
    ]
    assert "counts as a member without user data" in found[1].message
    assert list(check_members("range", {"odd": odd})) == []
    finding = check_plan_followed(PLAN, ASSIGNOR_NAME, {**members, "odd": odd}, PARTITIONS, NOW)
    assert "not computed from epoch 4" in finding.message  # it has joined since


def test_unfollowable_plan_is_reported() -> None:
    """Members with another assignor fail; without plan or members it is a note."""
    assert (
        check_plan_followed(PLAN, "range", member_metadata(PLAN), PARTITIONS, NOW).level
        is FindingLevel.FAILED
    )
    assert (
        check_plan_followed(None, "range", member_metadata(None), PARTITIONS, NOW).level is FindingLevel.NOTE
    )
    assert (
        check_plan_followed(None, ASSIGNOR_NAME, member_metadata(None), PARTITIONS, NOW).level
        is FindingLevel.NOTE
    )
    assert check_plan_followed(PLAN, ASSIGNOR_NAME, {}, PARTITIONS, NOW).level is FindingLevel.NOTE
    waiting = {**member_metadata(PLAN), "id9": MemberMetadata(b"", b"")}
    assert check_plan_followed(PLAN, ASSIGNOR_NAME, waiting, PARTITIONS, NOW).level is FindingLevel.NOTE


def test_consumer_and_sidecar_settings_must_match() -> None:
    """Group and control topics must match; missing settings have their defaults."""
    ours = {"group.id": "g", "trimtab.plan.topic": "trimtab.plans"}
    assert [f.level for f in check_consumer_settings({"group.id": "g"}, ours)] == [FindingLevel.OK]
    (failure,) = check_consumer_settings({"group.id": "g"}, {**ours, "trimtab.plan.topic": "mine"})
    assert (failure.level, "'mine' for the sidecar" in failure.message) == (FindingLevel.FAILED, True)


def test_checked_rights_are_the_documented_role() -> None:
    """The doctor checks exactly the least role of docs/kubernetes.md."""
    page = (Path(__file__).parents[4] / "docs" / "kubernetes.md").read_text()
    shown = re.search(r"```yaml\n(apiVersion: rbac.*?)```", page, re.DOTALL)
    assert shown is not None
    rules: list[dict[str, Any]] = yaml.safe_load(shown[1])["rules"]
    role = {
        (r["apiGroups"][0], resource, verb)
        for r in rules
        for resource in r["resources"]
        for verb in r["verbs"]
    }
    place = ScaleTargetRef(WorkloadKind.DEPLOYMENT, "lake", "default")
    assert {right[:3] for right in list_needed_rights(place, elect=True)} == role
    assert {of for _, _, _, of in list_needed_rights(place, elect=True)} == {"", "lake", place.lease_name}
    with_keda = list_needed_rights(place, elect=True, scale=False)
    assert role - {right[:3] for right in with_keda} == {("apps", "deployments/scale", "update")}
    assert (
        len(list_needed_rights(ScaleTargetRef(WorkloadKind.STATEFULSET, "lake", "default"), elect=False)) == 5
    )
    assert check_access("list", "pods", allowed=True).level is FindingLevel.OK
    assert "role" in check_access("list", "pods", allowed=False).remedy


OK = Finding("brokers", FindingLevel.OK, "1 reached")
BAD = Finding("topic t", FindingLevel.FAILED, "Read not allowed", "grant Read on topic t")


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run `trimtab doctor` with these findings."""

    def call(findings: list[Finding], *words: str) -> tuple[int, str]:
        monkeypatch.setattr(f"{all_checks.__name__}.run_broker_checks", lambda *_: findings)
        code = main(["doctor", "--bootstrap", "nowhere:1", "--group", "g", *words])
        return code, capsys.readouterr().out

    return call


def test_failures_are_printed_with_remedies(doctor: Any) -> None:
    """Each finding is a line with its remedy below; a failure sets the exit code."""
    assert has_failed_checks([OK, BAD])
    assert format_finding(OK) == ["ok       brokers: 1 reached"]
    code, out = doctor([OK, BAD])
    assert code == 1
    assert "FAILED   topic t: Read not allowed\n         -> grant Read on topic t\n" in out
    assert "1 of 2 checks failed" in out
    code, out = doctor([OK])
    assert code == 0
    assert "all checks passed" in out


def test_findings_as_json(doctor: Any) -> None:
    """JSON has the findings, and whether any check failed."""
    code, out = doctor([OK, BAD], "--format", "json")
    body = json.loads(out)
    assert (code, body["failed"], body["group"]) == (1, True, "g")
    assert body["findings"][1]["remedy"] == "grant Read on topic t"
