"""Racks in the sidecar: it places as the leader would, and tells what crosses, or must."""

import json
from dataclasses import replace
from typing import Any

import pytest
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from trimtab.assignor.heuristics import registry
from trimtab.assignor.model import Load, Policy, TopicPartition
from trimtab.assignor.racks.cross_rack_traffic import Crossing
from trimtab.assignor.racks.replica_racks import Replicas
from trimtab.assignor.rebalance.consumer_protocol import Decoder
from trimtab.assignor.rebalance.leader import Joined, View, lead
from trimtab.assignor.rebalance.user_data import MemberData
from trimtab.cli.main import main
from trimtab.common.control_topics.values import GroupPlan, PartitionSpeed
from trimtab.sidecar.decision.decide import decide
from trimtab.sidecar.decision.decision import Verdict
from trimtab.sidecar.decision.group_model import situation
from trimtab.sidecar.decision.scaling_policy import Memory, ScalePolicy
from trimtab.sidecar.diagnostics.doctor.checks import Level
from trimtab.sidecar.diagnostics.doctor.rack_checks import of_racks, of_selectors
from trimtab.sidecar.diagnostics.explanation import explained, why_placement
from trimtab.sidecar.diagnostics.group_status import Seen, frame
from trimtab.sidecar.diagnostics.what_if import Survey, rows
from trimtab.sidecar.kafka.broker_client import _rack
from trimtab.sidecar.measurement.cross_rack import across
from trimtab.sidecar.measurement.observation import (
    GroupState,
    GroupView,
    Instance,
    Observation,
    Reader,
)
from trimtab.sidecar.reporting.decision_record import Terms, VerdictRecord, recorded
from trimtab.sidecar.reporting.iteration_report import Report

NOW = 1000.0
P = tuple(TopicPartition("t", n) for n in range(9))
NEAR: dict[TopicPartition, tuple[str | None, ...]] = {
    p: ("abc"[p.partition % 3], "abc"[(p.partition + 1) % 3]) for p in P
}
"""Two replicas of each partition, in three racks."""

SPEEDS = {p: PartitionSpeed(10.0 + p.partition) for p in P}
HEURISTICS = ("rack-aware", "rack-aware:balance_subtopology", "steady:rack_cost=2")


def readers(*racks: str | None) -> tuple[Reader, ...]:
    """Members w0, w1, … in these racks, with as many partitions each, so that some cross."""
    held = (frozenset(P[n * 3 : n * 3 + 3]) for n in range(len(racks)))
    return tuple(Reader(f"id{n}", f"w{n}", next(held), rack) for n, rack in enumerate(racks))


def observed(heuristic: str, there: tuple[Reader, ...]) -> Observation:
    plan = GroupPlan("g", 1, 0.0, len(there), heuristic, 100.0)
    replicas = tuple(Instance(r.instance, alive=True, started=0.0) for r in there)
    group = GroupView(GroupState.STABLE, there)
    return Observation(SPEEDS, group, replicas, plan, racks=NEAR)


def judged(heuristic: str, there: tuple[Reader, ...]) -> Verdict:
    policy = ScalePolicy(Policy(heuristic, 100.0, consolidate=True))
    return decide(observed(heuristic, there), policy, Memory(), NOW)[0]


@pytest.mark.parametrize("heuristic", HEURISTICS)
@pytest.mark.parametrize("racks", ["abc", "aab", "zzz"])
def test_it_places_as_the_leader_would(heuristic: str, racks: str) -> None:
    """Members' racks and replicas' racks are in its placement, as they are in a rebalance."""
    there = readers(*racks)
    policy = Policy(heuristic, 100.0, consolidate=True)
    seen = observed(heuristic, there)
    assert seen.plan is not None
    ours = situation(seen, ScalePolicy(policy), seen.plan).without(())
    data = {r.instance: MemberData(instance=r.instance, rack=r.rack) for r in there}
    joined = [Joined(r.instance, frozenset({"t"}), data[r.instance], r.owned, 1) for r in there]
    load = Load({p: s.weight for p, s in SPEEDS.items()})
    view = View(load, seen.plan, lambda universe: Replicas.named(universe, NEAR))
    theirs = lead(joined, P, view, policy).shares
    assert {name: frozenset(mine) for name, mine in ours.assignment.items()} == {
        name: share.now | share.promised for name, share in theirs.items()
    }
    blind = situation(replace(seen, racks={}), ScalePolicy(policy), seen.plan).without(())
    assert (racks == "zzz") == (blind.assignment == ours.assignment)


def test_what_crosses_is_a_figure_of_the_verdict() -> None:
    """Load, partitions that must cross, racks without a consumer: whatever decides."""
    verdict = judged("steady", readers("a", "a", "a"))
    crossing = sum(SPEEDS[p].weight or 0.0 for p in P if "a" not in NEAR[p])
    assert verdict.numbers.crossing == pytest.approx(crossing)
    assert (verdict.numbers.stranded, verdict.numbers.unmanned) == (3, 2)
    assert f"{crossing:.0f} B/s across racks" in verdict.line()
    assert not any("rack" in reason for reason in verdict.reasons)


def test_a_heuristic_that_weighs_racks_says_what_cannot_be_helped() -> None:
    """A rack without a member, partitions near nobody, and whose rack is not known."""
    said = judged("rack-aware", readers("a", "a", "a")).reasons
    assert "replicas are in b, c, but no member says it is" in said
    assert "no member is in a rack with a replica of t-1, t-4, t-7" in said
    said = judged("rack-aware", readers("a", None, "q")).reasons
    assert "no rack is known of w1 (client.rack): nothing is far from them" in said
    assert any(s.startswith("no replica is in the rack of w2 (q): all that they") for s in said)


def test_where_nobody_says_a_rack_nothing_is_told() -> None:
    """No figure, rather than none that crosses."""
    verdict = judged("steady", readers(None, None, None))
    assert (verdict.numbers.crossing, verdict.numbers.stranded) == (None, None)
    assert "across racks" not in verdict.line()
    assert across(readers(None), SPEEDS, NEAR) is None


def subscription(user_data: bytes, rack: str | None) -> bytes:
    """A JoinGroup's metadata as kafka-python sends it."""
    sent = ConsumerProtocolSubscription(
        version=3, topics=["t"], user_data=user_data, owned_partitions=[], generation_id=-1,
        rack_id=rack,
    )  # fmt: skip
    return bytes(sent.encode())


@pytest.mark.parametrize(
    ("metadata", "rack"),
    [
        (subscription(b"", "a"), "a"),
        (subscription(MemberData(rack="b").encode(), None), "b"),
        (subscription(MemberData(rack="b").encode(), "a"), "a"),
        (subscription(b"another's", None), None),
        (subscription(b'{"v":1,"rack":7}', None), "7"),
        (b"", None),
        (b"\0\0\0", None),
        (None, None),
    ],
)
def test_a_members_rack_is_read(metadata: bytes | None, rack: str | None) -> None:
    """From the subscription (KIP-881) or our user data; what is not understood says none."""
    assert _rack(metadata, Decoder()) == rack


def test_top_has_it_in_the_heading_and_below() -> None:
    """What crosses is live, and the notes say why it does."""
    group = GroupView(GroupState.STABLE, readers("a", "b", None))
    made = frame(Seen(NOW, group, SPEEDS, "given", racks=NEAR))
    assert made.crossing is not None
    assert made.crossing.unmanned == ("c",)
    assert made.crossing.notes[0].startswith("no rack is known of w2")


def test_explain_tells_what_crosses() -> None:
    """With the placement, in figures of the last verdict."""
    verdict = judged("steady", readers("a", "a", "a"))
    record = recorded(Report(NOW, verdict, SPEEDS, 1, True, 0.0, 0.0), Terms("g", 10.0, 100.0, 1.0))  # noqa: FBT003
    found = explained([VerdictRecord.decode(record.encode())], None, 0)
    assert found is not None
    assert why_placement(found, NOW) == (
        "42 B/s are read from other racks, 33% of what is needed.",
        "3 partitions cannot be near: no replica is in a consumer's rack.",
        "Racks with replicas and without a consumer: 2.",
    )


def survey(*racks: str | None) -> Survey:
    return Survey(GroupView(GroupState.STABLE, readers(*racks)), SPEEDS, "given", None, NEAR)


def test_plan_compares_what_would_cross() -> None:
    """Of those, too, that do not weigh it."""
    policy = Policy("steady", 100.0)
    blind, aware = rows(survey("b", "c", "a"), ["steady", "rack-aware"], policy, 3)
    assert blind.crossing is not None
    assert blind.crossing > 0
    assert aware.crossing == 0
    assert rows(survey(None, None, None), ["steady"], policy, 3)[0].crossing is None


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Call `trimtab plan` on a group in racks; gives what it prints."""

    def call(group: Survey, *words: str) -> str:
        monkeypatch.setattr("trimtab.sidecar.diagnostics.what_if.survey", lambda *_, **__: group)
        monkeypatch.setenv("COLUMNS", "200")
        given = ("plan", "--bootstrap", "nowhere:1", "--group", "g", "--capacity", "100")
        assert main([*given, *words]) == 0
        return capsys.readouterr().out

    return call


def test_plan_prints_what_crosses(plan: Any) -> None:
    """A column where somebody says a rack, and the notes below."""
    told = plan(survey("a", "a", "a"), "--heuristic", "sticky", "rack-aware")
    assert "across racks" in told
    assert "replicas are in b, c, but no member says it is" in told
    assert "across racks" not in plan(survey(None, None, None), "--heuristic", "sticky")
    body = json.loads(plan(survey("b", "c", "a"), "--heuristic", "rack-aware", "--format", "json"))
    assert body["crossing_bytes_per_s"] > 0
    assert body["heuristics"]["rack-aware"]["crossing"] == 0


def test_plan_goes_without_what_is_not_installed(
    plan: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where OR-tools is missing, rack-aware is left out unless it is asked for by name."""
    assert "rack-aware" in json.loads(plan(survey("a"), "--format", "json"))["heuristics"]
    monkeypatch.setattr(registry, "find_spec", lambda _: None)
    assert "rack-aware" not in json.loads(plan(survey("a"), "--format", "json"))["heuristics"]


FAR = Crossing(30.0, 2, 1, ("c",), ("replicas are in c, but no member says it is",))


def test_the_doctor_judges_racks() -> None:
    """Nothing where nobody asks; wrong where a heuristic weighs what nobody says."""
    assert not list(of_racks(None, weighed=False))
    (found,) = of_racks(None, weighed=True)
    assert (found.level, found.do[:15]) == (Level.WRONG, "set client.rack")
    (found,) = of_racks(FAR, weighed=True)
    assert found.level is Level.NOTE
    assert found.says == f"partitions read from other racks: 2; {FAR.notes[0]}"
    (found,) = of_racks(replace(FAR, notes=()), weighed=False)
    assert found.level is Level.OK


@pytest.mark.parametrize(
    ("selectors", "weighed", "level"),
    [
        ({1: "x", 2: "x"}, True, Level.OK),
        ({1: "x", 2: ""}, True, Level.WRONG),
        ({1: "x", 2: ""}, False, Level.NOTE),
        ({1: "x", 2: None}, True, Level.NOTE),
    ],
)
def test_the_doctor_asks_brokers_for_their_selector(
    selectors: dict[int, str | None],
    weighed: bool,  # noqa: FBT001 - a value of the cases
    level: Level,
) -> None:
    """Without one consumers read from leaders, and racks save nothing."""
    assert of_selectors(selectors, weighed=weighed).level is level
