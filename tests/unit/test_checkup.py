"""How `trimtab doctor` judges what it was told, and what it prints."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from trimtab.assignor.model import Load, Policy, TopicPartition
from trimtab.assignor.rebalance.leader import Joined, View, lead
from trimtab.assignor.rebalance.user_data import MemberData
from trimtab.cli.doctor.run import lines, of_consumers, paused, summed
from trimtab.cli.main import main
from trimtab.common.control_topics.values import GroupPlan
from trimtab.sidecar.decision.decision import Action, Numbers
from trimtab.sidecar.diagnostics.doctor.checks import (
    JUST_NOW,
    PROTOCOL,
    SKEW,
    Finding,
    Level,
    Seat,
    is_wrong,
    of_access,
    of_clock,
    of_control,
    of_count,
    of_following,
    of_pause,
    of_rights,
    of_sidecar_clock,
    of_verdict,
)
from trimtab.sidecar.diagnostics.doctor.kubernetes_checks import needed
from trimtab.sidecar.measurement.observation import Asked
from trimtab.sidecar.reporting.decision_record import VerdictRecord
from trimtab.sidecar.settings.settings import load
from trimtab.sidecar.targets.kubernetes.api_client import Place
from trimtab.sidecar.targets.kubernetes.workload import Kind

NOW = 10_000.0
PLAN = GroupPlan("g", 4, NOW - 100, 2, "steady", 100.0, 0.9)
PARTITIONS = tuple(TopicPartition("t", n) for n in range(4))
LAST = VerdictRecord(
    "g", 1, 900.0, NOW - 5, 1, 10.0, 4, Action.HOLD, ("2 is right",), Numbers(), 100.0, 0.9
)


def test_rights_that_are_missing_are_named() -> None:
    """Each operation that is needed is looked for; who does not tell is not accused."""
    assert of_rights("topic t", ("Describe", "Read"), {"Read", "Describe"}).level is Level.OK
    assert of_rights("topic t", ("Read",), None).level is Level.NOTE
    wrong = of_rights("topic t", ("Describe", "Read", "Write"), {"Describe"})
    assert wrong.level is Level.WRONG
    assert wrong.do == "grant Read and Write on topic t"


@pytest.mark.parametrize(
    ("partitions", "policy", "level"),
    [
        (1, "compact", Level.OK),
        (1, "delete", Level.WRONG),
        (1, "compact,delete", Level.WRONG),
        (3, "compact", Level.NOTE),
        (1, None, Level.NOTE),
    ],
)
def test_control_topics_are_compacted(partitions: int, policy: str | None, level: Level) -> None:
    """What deletes is wrong; more than one partition only costs."""
    assert of_control("c", partitions, policy).level is level


def test_a_clock_that_is_behind_is_noticed() -> None:
    """Who says that something happened in our future has another clock."""
    assert of_clock(NOW, {"a": NOW - 50, "b": NOW + SKEW}).level is Level.OK
    wrong = of_clock(NOW, {"a": NOW + 7, "b": NOW + 30})
    assert (wrong.level, wrong.says) == (Level.WRONG, "b is 30 s ahead of this machine")
    assert of_clock(NOW, {}).level is Level.NOTE
    assert of_sidecar_clock(NOW, NOW + 2).level is Level.OK
    assert of_sidecar_clock(NOW + 20, NOW).level is Level.WRONG
    assert of_sidecar_clock(NOW - 20, NOW).level is Level.OK  # another group's came since


@pytest.mark.parametrize(
    ("last", "plan", "level", "says"),
    [
        (LAST, PLAN, Level.OK, "verdict 5 s ago: hold: 2 is right"),
        (None, None, Level.NOTE, "nothing steers"),
        (None, PLAN, Level.WRONG, "no verdict"),
        (replace(LAST, until=NOW - 600), PLAN, Level.WRONG, "silent for 10 min"),
        (replace(LAST, trouble=("broker 2 is away",)), PLAN, Level.WRONG, "broker 2 is away"),
    ],
)
def test_a_sidecar_is_at_work_or_not(
    last: VerdictRecord | None, plan: GroupPlan | None, level: Level, says: str
) -> None:
    """By its last verdict: fresh, silent, in trouble, or never there."""
    found = of_verdict(last, plan, NOW)
    assert found.level is level
    assert says in found.says
    assert bool(found.do) == (level is Level.WRONG)


def seats(plan: GroupPlan | None) -> dict[str, Seat]:
    """Two members as a leader with this plan left them."""
    joined = [Joined(f"id{n}", frozenset({"t"}), MemberData(instance=f"w{n}")) for n in range(2)]
    given = lead(joined, PARTITIONS, View(Load(), plan), Policy()).encode()
    return {
        j.id: Seat(
            ConsumerProtocolSubscription(
                version=1, topics=["t"], user_data=j.data.encode(), owned_partitions=[]
            ).encode(),
            given[j.id],
        )
        for j in joined
    }


def test_who_follows_the_plan() -> None:
    """What the members were given belongs to the plan in force, whatever was drained since."""
    found = of_following(PLAN, PROTOCOL, seats(PLAN), PARTITIONS, NOW)
    assert (found.level, found.says) == (Level.OK, "all 2 have what epoch 4 decided")
    other = [*PARTITIONS, TopicPartition("else", 0)]
    assert of_following(PLAN, PROTOCOL, seats(PLAN), other, NOW).level is Level.OK


def test_who_does_not_follow_the_plan() -> None:
    """Another epoch, or no plan at the leader, is told; not while the plan is only just made."""
    for theirs in (None, replace(PLAN, epoch=3)):
        found = of_following(PLAN, PROTOCOL, seats(theirs), PARTITIONS, NOW)
        assert found.level is Level.WRONG
        assert "trimtab.plan.topic" in found.do
    new = replace(PLAN, time=NOW - JUST_NOW + 1)
    assert of_following(new, PROTOCOL, seats(None), PARTITIONS, NOW).level is Level.NOTE


def test_who_cannot_follow_a_plan() -> None:
    """Members with another assignor; without a plan or members there is nothing to follow."""
    assert of_following(PLAN, "range", seats(PLAN), PARTITIONS, NOW).level is Level.WRONG
    assert of_following(None, "range", seats(None), PARTITIONS, NOW).level is Level.NOTE
    assert of_following(None, PROTOCOL, seats(None), PARTITIONS, NOW).level is Level.NOTE
    assert of_following(PLAN, PROTOCOL, {}, PARTITIONS, NOW).level is Level.NOTE
    waiting = {**seats(PLAN), "id9": Seat(b"", b"")}
    assert of_following(PLAN, PROTOCOL, waiting, PARTITIONS, NOW).level is Level.NOTE


def test_settings_of_consumers_and_sidecar_must_agree() -> None:
    """Group and control topics; what a configuration leaves out is as by default."""
    ours = {"group.id": "g", "trimtab.plan.topic": "consumer.metadata"}
    assert [f.level for f in of_consumers({"group.id": "g"}, ours)] == [Level.OK]
    (wrong,) = of_consumers({"group.id": "g"}, {**ours, "trimtab.plan.topic": "mine"})
    assert (wrong.level, "'mine' at the sidecar" in wrong.says) == (Level.WRONG, True)


def test_kubernetes_rights_are_those_of_the_documented_role() -> None:
    """The doctor asks for exactly what docs/operate.md shows as the least role."""
    page = (Path(__file__).parents[2] / "docs" / "operate.md").read_text()
    shown = re.search(r"```yaml\n(apiVersion: rbac.*?)```", page, re.DOTALL)
    assert shown is not None
    rules: list[dict[str, Any]] = yaml.safe_load(shown[1])["rules"]
    role = {
        (r["apiGroups"][0], resource, verb)
        for r in rules
        for resource in r["resources"]
        for verb in r["verbs"]
    }
    place = Place(Kind.DEPLOYMENT, "lake", "default")
    assert {right[:3] for right in needed(place, elect=True)} == role
    assert {of for _, _, _, of in needed(place, elect=True)} == {"", "lake", place.lease}
    with_keda = needed(place, elect=True, scale=False)
    assert role - {right[:3] for right in with_keda} == {("apps", "deployments/scale", "update")}
    assert len(needed(Place(Kind.STATEFULSET, "lake", "default"), elect=False)) == 4
    assert of_access("list", "pods", allowed=True).level is Level.OK
    assert "role" in of_access("list", "pods", allowed=False).do


OK = Finding("brokers", Level.OK, "1 reached")
BAD = Finding("topic t", Level.WRONG, "Read not allowed", "grant Read on topic t")


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run `trimtab doctor` where this is found."""

    def call(found: list[Finding], *words: str) -> tuple[int, str]:
        monkeypatch.setattr(
            "trimtab.sidecar.diagnostics.doctor.broker_checks.examined", lambda *_: found
        )
        code = main(["doctor", "--bootstrap", "nowhere:1", "--group", "g", *words])
        return code, capsys.readouterr().out

    return call


def test_what_is_wrong_is_printed_with_what_to_do(doctor: Any) -> None:
    """A line for each finding, the way out below it; the exit code tells the same."""
    assert is_wrong([OK, BAD])
    assert lines(OK) == ["ok       brokers: 1 reached"]
    code, out = doctor([OK, BAD])
    assert code == 1
    assert "WRONG    topic t: Read not allowed\n         -> grant Read on topic t\n" in out
    assert "1 of 2 checks found something wrong" in out
    code, out = doctor([OK])
    assert code == 0
    assert "all well" in out


def test_the_same_as_json(doctor: Any) -> None:
    """Findings as values, and whether anything is wrong."""
    code, out = doctor([OK, BAD], "--format", "json")
    body = json.loads(out)
    assert (code, body["wrong"], body["group"]) == (1, True, "g")
    assert body["findings"][1]["do"] == "grant Read on topic t"


def test_a_pause_is_a_warning() -> None:
    """Somebody wanted it, so the doctor does not fail; but it does not say that all is well."""
    found = of_pause("the annotation trimtab.io/pause", ["out", "in"], "take it away")
    assert [f.level for f in found] == [Level.WARNING]
    assert "scaling in and out is paused by the annotation" in found[0].says
    assert not is_wrong(found)
    assert summed(found) == "nothing is wrong, but 1 warning"
    assert of_pause("the settings", [], "") == ()
    assert summed([]) == "all well"


def test_a_zero_that_nobody_is_known_to_have_set_is_a_note() -> None:
    """It may be the sidecar's own, where it may go to zero at all; else it is somebody's."""
    unknown = Asked(0, "somebody", 1.0, ours=False, traced=False)
    (found,) = of_count("deployment/lake", unknown, 0)
    assert (found.level, found.do) == (Level.NOTE, "")
    (found,) = of_count("deployment/lake", unknown, 1)
    assert found.level is Level.WARNING


@pytest.mark.parametrize(
    ("asked", "least", "told"),
    [
        (Asked(0, "kubectl", 1.0, ours=False), 0, 1),
        (Asked(0, "kubectl", 1.0, ours=False), 2, 1),
        (Asked(0, "trimtab", 1.0, ours=True), 0, 0),
        (Asked(1, "kubectl", 1.0, ours=False), 0, 0),
    ],
)
def test_a_workload_at_zero_is_a_warning(asked: Asked, least: int, told: int) -> None:
    """Zero that somebody else set holds the group until another count is set; ours is idle."""
    found = of_count("deployment/lake", asked, least)
    assert [f.level for f in found] == [Level.WARNING] * told
    assert all("set by kubectl" in f.says for f in found)
    assert all(f.do == f"kubectl scale deployment/lake --replicas={max(1, least)}" for f in found)


def test_a_pause_by_the_settings_is_found() -> None:
    """What the sidecar's own settings or the schedule pause is told, too."""
    entry = {"start": "0 0 1 1 *", "end": "* * * * *", "pause": "out"}
    given = {"bootstrap": "b:1", "group": "g", "capacity": 1, "pause": "in", "schedule": [entry]}
    found = [f.says for f in paused(load(None, given), NOW)]
    assert found == [
        "scaling in is paused by the settings", "scaling out is paused by the schedule",
    ]  # fmt: skip
