"""Racks in the sidecar: it places as the leader does, and reports cross-rack traffic."""

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from support.named_rounds import JoinedMember, assign_by_name, assignments
from support.policies import build_policy
from trimtab.assignor.heuristics import registry
from trimtab.assignor.model import Load, PlacementPolicy, TopicPartition
from trimtab.assignor.model.replica_racks import ReplicaRacks
from trimtab.assignor.modes.decisions import place_partitions
from trimtab.assignor.racks.cross_rack_traffic import CrossRackTraffic
from trimtab.assignor.rebalance.consumer_protocol import SubscriptionDecoder
from trimtab.assignor.rebalance.leader import LeaderView
from trimtab.assignor.rebalance.user_data import MemberUserData
from trimtab.cli.main import main
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.decision.decide import make_decision
from trimtab.sidecar.decision.decision import ScalingDecision
from trimtab.sidecar.decision.decision_memory import DecisionMemory
from trimtab.sidecar.decision.group_model import build_group_model
from trimtab.sidecar.diagnostics.doctor.checks import FindingLevel
from trimtab.sidecar.diagnostics.doctor.rack_checks import check_racks, check_replica_selectors
from trimtab.sidecar.diagnostics.explanation import build_explanation, explain_placement
from trimtab.sidecar.diagnostics.group_status import LiveGroupSnapshot, build_group_status
from trimtab.sidecar.diagnostics.what_if import GroupBaseline, evaluate_heuristics
from trimtab.sidecar.kafka.broker_client import _parse_described
from trimtab.sidecar.model.cross_rack import compute_cross_rack_traffic
from trimtab.sidecar.model.observation import (
    GroupState,
    Observation,
    ObservedGroup,
    ObservedMember,
    ReplicaInstance,
)
from trimtab.sidecar.records.decision_record import DecisionRecord, RecordTerms, build_decision_record
from trimtab.sidecar.records.iteration_report import IterationReport
from trimtab.sidecar.reporting.group_conditions import GroupFacts, find_conditions

NOW = 1000.0
P = tuple(TopicPartition("t", n) for n in range(9))
NEAR: dict[TopicPartition, tuple[str | None, ...]] = {
    p: ("abc"[p.partition % 3], "abc"[(p.partition + 1) % 3]) for p in P
}
"""Two replicas of each partition, in three racks."""

LOADS = {p: PartitionLoad(10.0 + p.partition) for p in P}
HEURISTICS = ("rack-aware", "rack-aware:balance_subtopology", "steady:rack_cost=2")


def readers(*racks: str | None) -> tuple[ObservedMember, ...]:
    """Return members w0, w1, … in these racks with equal numbers of partitions."""
    held = (frozenset(P[n * 3 : n * 3 + 3]) for n in range(len(racks)))
    return tuple(ObservedMember(f"id{n}", f"w{n}", next(held), rack) for n, rack in enumerate(racks))


def observed(heuristic: str, there: tuple[ObservedMember, ...]) -> Observation:
    plan = GroupPlan("g", 1, 0.0, len(there), heuristic, 100.0)
    replicas = tuple(ReplicaInstance(r.instance, alive=True, started_at=0.0) for r in there)
    group = ObservedGroup(GroupState.STABLE, there)
    return Observation(LOADS, group, replicas, plan, replica_racks=NEAR)


def decide_in_racks(heuristic: str, there: tuple[ObservedMember, ...]) -> ScalingDecision:
    policy = build_policy(placement=PlacementPolicy(heuristic, 100.0, consolidate=True))
    return make_decision(observed(heuristic, there), policy, DecisionMemory(), NOW)[0]


def describe_racks(heuristic: str, there: tuple[ObservedMember, ...]) -> str:
    """Return the message of the condition of racks; empty without one."""
    policy = build_policy(placement=PlacementPolicy(heuristic, 100.0, consolidate=True))
    decided = decide_in_racks(heuristic, there)
    facts = GroupFacts(observed(heuristic, there), policy, decided, DecisionMemory(), NOW)
    return "".join(one.message for one in find_conditions(facts) if one.type == "RacksUncovered")


@pytest.mark.parametrize("heuristic", HEURISTICS)
@pytest.mark.parametrize("racks", ["abc", "aab", "zzz"])
def test_the_sidecar_places_as_the_leader_does(heuristic: str, racks: str) -> None:
    """Racks of members and replicas enter its placement as they enter a rebalance."""
    there = readers(*racks)
    policy = PlacementPolicy(heuristic, 100.0, consolidate=True)
    seen = observed(heuristic, there)
    assert seen.plan is not None
    model = build_group_model(seen, build_policy(placement=policy), seen.plan)
    ours = place_partitions(model.build_group(), model.build_load(), policy)
    data = {r.instance: MemberUserData(instance=r.instance, rack=r.rack) for r in there}
    joined = [
        JoinedMember(r.instance, frozenset({"t"}), data[r.instance], r.owned_partitions, 1) for r in there
    ]
    load = Load({p: s.weight for p, s in LOADS.items()})
    view = LeaderView(load, seen.plan, lambda universe: ReplicaRacks.from_partitions(universe, NEAR))
    theirs = assignments(assign_by_name(joined, P, view, policy))
    assert {name: frozenset(mine) for name, mine in ours.assignment.items()} == {
        name: share.assigned | share.promised for name, share in theirs.items()
    }
    group = replace(model.build_group(), replica_racks={})
    unaware = place_partitions(group, model.build_load(), policy)
    assert (racks == "zzz") == (unaware.assignment == ours.assignment)


def test_cross_rack_traffic_is_a_metric_of_the_decision() -> None:
    """Traffic, partitions without a local replica and racks without a consumer, with every heuristic."""
    decision = decide_in_racks("steady", readers("a", "a", "a"))
    crossing = sum(LOADS[p].weight or 0.0 for p in P if "a" not in NEAR[p])
    assert decision.metrics.cross_rack_rate == pytest.approx(crossing)
    assert (decision.metrics.partitions_without_local_replica, decision.metrics.racks_without_consumer) == (
        3,
        2,
    )
    assert f"{crossing:.0f} B/s across racks" in decision.format_line()
    assert not any("rack" in reason for reason in decision.reasons)


def test_a_rack_aware_heuristic_reports_unavoidable_traffic() -> None:
    """A rack without a member, partitions without a local replica, and members of unknown rack."""
    text = describe_racks("rack-aware", readers("a", "a", "a"))
    assert "replicas are in b, c, but no member is" in text
    assert "no member is in a rack with a replica of t-1, t-4, t-7" in text
    text = describe_racks("rack-aware", readers("a", None, "q"))
    assert "unknown rack of w1 (client.rack): their reads do not count as cross-rack" in text
    assert "; no replica is in the rack of w2 (q): all they" in text
    assert describe_racks("steady", readers("a", "a", "a")) == ""


def test_without_racks_no_traffic_is_reported() -> None:
    """The metric is unknown then, not zero."""
    decision = decide_in_racks("steady", readers(None, None, None))
    assert (decision.metrics.cross_rack_rate, decision.metrics.partitions_without_local_replica) == (
        None,
        None,
    )
    assert "across racks" not in decision.format_line()
    assert compute_cross_rack_traffic(readers(None), LOADS, NEAR) is None


def subscription(user_data: bytes, rack: str | None) -> bytes:
    """Return the JoinGroup metadata as kafka-python sends it."""
    sent = ConsumerProtocolSubscription(
        version=3, topics=["t"], user_data=user_data, owned_partitions=[], generation_id=-1,
        rack_id=rack,
    )  # fmt: skip
    return bytes(sent.encode())


@pytest.mark.parametrize(
    ("metadata", "rack"),
    [
        (subscription(b"", "a"), "a"),
        (subscription(MemberUserData(rack="b").encode(), None), "b"),
        (subscription(MemberUserData(rack="b").encode(), "a"), "a"),
        (subscription(b"another's", None), None),
        (subscription(b'{"v":1,"rack":7}', None), None),
        (b"", None),
        (b"\0\0\0", None),
        (None, None),
    ],
)
def test_a_members_rack_is_read(metadata: bytes | None, rack: str | None) -> None:
    """It comes from the subscription (KIP-881) or our user data; undecodable data gives none."""
    member = SimpleNamespace(id="m", client_id="w", client_host="", assignment=None, metadata=metadata)
    assert _parse_described(member, SubscriptionDecoder()).rack == rack


def test_top_shows_cross_rack_traffic() -> None:
    """The heading has the live traffic, and the notes explain it."""
    group = ObservedGroup(GroupState.STABLE, readers("a", "b", None))
    made = build_group_status(LiveGroupSnapshot(NOW, group, LOADS, "given", replica_racks=NEAR))
    assert made.cross_rack_traffic is not None
    assert made.cross_rack_traffic.racks_without_members == ("c",)
    assert made.cross_rack_traffic.notes[0].startswith("unknown rack of w2")


def test_explain_shows_cross_rack_traffic() -> None:
    """It shows the placement with the figures of the last decision."""
    decision = decide_in_racks("steady", readers("a", "a", "a"))
    record = build_decision_record(
        IterationReport(NOW, decision, LOADS, 1, True, 0.0, 0.0),  # noqa: FBT003 - as above
        RecordTerms("g", 10.0, 100.0, 1.0),
    )
    found = build_explanation([DecisionRecord.decode(record.encode())], None, 0)
    assert found is not None
    assert explain_placement(found, NOW) == (
        "Cross-rack traffic: 42 B/s, 33% of the required rate.",
        "3 partitions without a replica in any consumer's rack.",
        "Racks with replicas but without a consumer: 2.",
    )


def survey(*racks: str | None) -> GroupBaseline:
    return GroupBaseline(ObservedGroup(GroupState.STABLE, readers(*racks)), LOADS, "given", None, NEAR)


def test_plan_compares_cross_rack_traffic() -> None:
    """Heuristics that do not weigh racks are compared, too."""
    policy = build_policy(placement=PlacementPolicy("steady", 100.0))
    unaware, aware = evaluate_heuristics(survey("b", "c", "a"), ["steady", "rack-aware"], policy, 3)
    assert unaware.cross_rack_bytes_per_s is not None
    assert unaware.cross_rack_bytes_per_s > 0
    assert aware.cross_rack_bytes_per_s == 0
    assert (
        evaluate_heuristics(survey(None, None, None), ["steady"], policy, 3)[0].cross_rack_bytes_per_s is None
    )


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run `trimtab plan` on a group with racks and return its output."""

    def call(group: GroupBaseline, *words: str) -> str:
        monkeypatch.setattr("trimtab.cli.plan.run.measure_baseline", lambda *_, **__: group)
        monkeypatch.setenv("COLUMNS", "200")
        given = ("plan", "--bootstrap", "nowhere:1", "--group", "g", "--capacity", "100")
        assert main([*given, *words]) == 0
        return capsys.readouterr().out

    return call


def test_plan_prints_cross_rack_traffic(plan: Any) -> None:
    """A column appears if a member reports its rack, with notes below."""
    output = plan(survey("a", "a", "a"), "--heuristic", "sticky", "rack-aware")
    assert "across racks" in output
    assert "replicas are in b, c, but no member is" in output
    assert "across racks" not in plan(survey(None, None, None), "--heuristic", "sticky")
    body = json.loads(plan(survey("b", "c", "a"), "--heuristic", "rack-aware", "--format", "json"))
    assert body["cross_rack_bytes_per_s"] > 0
    assert body["heuristics"]["rack-aware"]["cross_rack_bytes_per_s"] == 0


def test_plan_works_without_the_solver(plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without OR-tools, rack-aware is left out unless it is requested by name."""
    assert "rack-aware" in json.loads(plan(survey("a"), "--format", "json"))["heuristics"]
    monkeypatch.setattr(registry, "find_spec", lambda _: None)
    assert "rack-aware" not in json.loads(plan(survey("a"), "--format", "json"))["heuristics"]


FAR = CrossRackTraffic(30.0, 2, 1, ("c",), ("replicas are in c, but no member is",))


def test_the_doctor_checks_racks() -> None:
    """It checks nothing without racks, and fails if the heuristic weighs racks that no member reports."""
    assert not list(check_racks(None, is_rack_aware=False))
    (found,) = check_racks(None, is_rack_aware=True)
    assert (found.level, found.remedy[:15]) == (FindingLevel.FAILED, "set client.rack")
    (found,) = check_racks(FAR, is_rack_aware=True)
    assert found.level is FindingLevel.NOTE
    assert found.message == f"partitions read from other racks: 2; {FAR.notes[0]}"
    (found,) = check_racks(replace(FAR, notes=()), is_rack_aware=False)
    assert found.level is FindingLevel.OK


@pytest.mark.parametrize(
    ("selectors", "weighed", "level"),
    [
        ({1: "x", 2: "x"}, True, FindingLevel.OK),
        ({1: "x", 2: ""}, True, FindingLevel.FAILED),
        ({1: "x", 2: ""}, False, FindingLevel.NOTE),
        ({1: "x", 2: None}, True, FindingLevel.NOTE),
    ],
)
def test_the_doctor_checks_the_brokers_replica_selector(
    selectors: dict[int, str | None],
    weighed: bool,  # noqa: FBT001 - a value of the cases
    level: FindingLevel,
) -> None:
    """Without a replica selector consumers read from leaders, and racks save nothing."""
    assert check_replica_selectors(selectors, is_rack_aware=weighed).level is level
