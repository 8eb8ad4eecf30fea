"""A leader's decision that fails: another one takes its place, and every partition has an owner."""

import logging
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from support.hostile import LOAD, PLAN, RawGroup, encode_subscription
from support.named_rounds import assignments
from trimtab.assignor.clients.leader_plugin import log_round
from trimtab.assignor.heuristics import registry
from trimtab.assignor.model import UNASSIGNED, Load, PlacementPolicy
from trimtab.assignor.rebalance import leader
from trimtab.assignor.rebalance.consumer_protocol import decode_assignment
from trimtab.assignor.rebalance.leader import LeaderView, RebalanceRound
from trimtab.assignor.rebalance.user_data import AssignmentUserData, MemberUserData

UNKNOWN = LeaderView(LOAD, replace(PLAN, heuristic="nope"))


def lead(view: LeaderView, heuristic: str = "steady", rounds: int = 3) -> RebalanceRound:
    """Lead some rounds of three orderly members and one without user data; return the last one."""
    group = RawGroup(encode_subscription(None))
    outcomes = [group.round(view, PlacementPolicy(heuristic)) for _ in range(rounds)]
    return outcomes[-1]


def partition_counts(outcome: RebalanceRound) -> list[int]:
    counts = np.bincount(outcome.target, minlength=len(outcome.snapshot.member_ids))
    return sorted(counts.tolist())


def test_an_unknown_heuristic_of_a_plan_gives_way_to_the_leaders_own() -> None:
    """The rest of the plan stays in force: its draining member is empty, the load is consolidated."""
    outcome = lead(UNKNOWN)
    assert not assignments(outcome)["m0"].assigned  # instance w0 drains
    assert outcome.fault.startswith("plan 3: heuristic 'nope' is not known")
    assert outcome.fault.endswith("; decided instead by plan 3 with steady")
    by_plan = lead(LeaderView(LOAD, replace(PLAN, heuristic="steady")))
    assert np.array_equal(outcome.target, by_plan.target)
    assert not by_plan.fault


def test_a_missing_solver_gives_way_to_the_leaders_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan by rack-aware, for consumers without the extra `racks`."""
    monkeypatch.setitem(sys.modules, "trimtab.assignor.heuristics.rack_aware.min_cost_flow", None)
    outcome = lead(LeaderView(LOAD, replace(PLAN, heuristic="rack-aware")))
    assert "plan 3: heuristic 'rack-aware'" in outcome.fault
    assert "trimtab[racks]" in outcome.fault


@pytest.mark.parametrize(
    "fields",
    [
        {"capacity": 10**400},
        {"capacity": float("nan")},
        {"capacity": "many"},
        {"headroom": None},
        {"draining": 5},
        {"capacities": {"w1": float("inf")}},
        {"capacities": []},
        {"epoch": {1, 2}},
    ],
    ids=str,
)
def test_figures_of_a_plan_that_cannot_be_used_give_way_to_no_plan(fields: dict[str, Any]) -> None:
    """The leader decides as if there were no plan: it spreads the load."""
    outcome = lead(LeaderView(LOAD, replace(PLAN, **fields)))
    assert outcome.fault.endswith("; decided instead by steady without a plan")
    assert np.array_equal(outcome.target, lead(LeaderView(LOAD)).target)


def raise_error(*_: object) -> Any:
    raise ZeroDivisionError


@pytest.mark.parametrize("plan", [None, PLAN])
def test_a_leader_whose_heuristics_all_fail_keeps_the_owners(
    plan: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Owners keep their partitions, the others go to the members with the fewest."""
    group = RawGroup(encode_subscription(None))
    before = group.round(LeaderView(LOAD), PlacementPolicy("steady"))
    owner = before.target.copy()
    owner[owner == before.snapshot.member_ids.index("hostile")] = UNASSIGNED  # it claims nothing
    monkeypatch.setattr(leader, "decide_placement", raise_error)
    outcome = group.round(LeaderView(LOAD, plan), PlacementPolicy("sticky"))
    kept = owner != UNASSIGNED
    assert np.array_equal(outcome.target[kept], owner[kept])
    assert max(partition_counts(outcome)) - min(partition_counts(outcome)) <= 1
    assert outcome.fault.endswith("; decided instead by keeping owners")


def test_a_load_that_cannot_be_used_keeps_the_owners() -> None:
    """As where a rate is infinite."""
    rates = dict.fromkeys(LOAD.write_rates, float("inf"))
    assert "write rate of t-0 is inf" in lead(LeaderView(Load(rates))).fault


def test_every_member_is_told_of_the_fault() -> None:
    """In each round's user data, also when the round only completes the decision."""
    group = RawGroup(b"", silent=True)
    for _ in range(4):
        outcome = group.round(UNKNOWN)
        sent = [AssignmentUserData.decode(decode_assignment(d).user_data) for d in outcome.encode().values()]
        assert {data.fault for data in sent} == {outcome.fault}
        assert outcome.fault
    assert not outcome.is_new_decision


def test_the_faults_of_a_large_group_fit_into_its_record() -> None:
    """The broker stores all assignments in one record: 2,000 members get the beginning of a long text."""
    outcome = lead(LeaderView(LOAD, replace(PLAN, heuristic="x" * 1000)))
    members = tuple(f"m-{n}" for n in range(2000))
    encoded = replace(outcome, snapshot=replace(outcome.snapshot, member_ids=members)).encode()
    assert sum(map(len, encoded.values())) < 300_000
    data = AssignmentUserData.decode(decode_assignment(encoded["m-1999"]).user_data)
    assert data.fault.startswith("plan 3: heuristic 'xxx")


def test_a_fault_of_odd_text_stays_readable_for_the_members() -> None:
    """Half a surrogate pair, or a megabyte, from the plan."""
    for name in ("\ud800", "x" * 1_000_000):
        outcome = lead(LeaderView(LOAD, replace(PLAN, heuristic=name)))
        assert 0 < len(outcome.fault.encode()) < 1000


def test_a_fault_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """With the decision, not in the rounds that complete it."""
    group = RawGroup(b"", silent=True)
    with caplog.at_level(logging.WARNING, "trimtab.assignor"):
        outcomes = [group.round(UNKNOWN) for _ in range(6)]
        for outcome in outcomes:
            log_round(outcome)
    logged = [r for r in caplog.records if "decision failed: plan 3" in r.getMessage()]
    assert len(logged) == sum(outcome.is_new_decision for outcome in outcomes) <= 2


def test_the_plan_is_followed_as_soon_as_a_leader_can() -> None:
    """A leader that has the heuristic decides anew, in the same epoch."""
    group = RawGroup(encode_subscription(MemberUserData().encode()))
    policy = PlacementPolicy("sticky")
    group.round(UNKNOWN, policy)
    registered = replace(registry.get_heuristic("mbf"), name="nope")
    registry.get_heuristic.cache_clear()
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(registry._BUILT_IN_HEURISTICS, "nope", registered)
        outcome = group.round(UNKNOWN, policy)
    registry.get_heuristic.cache_clear()
    assert outcome.is_new_decision
    assert not outcome.fault


@pytest.mark.parametrize("heuristic", ["steady", "mwf", "mwfp", "mbfp"])
def test_a_member_without_user_data_does_not_make_the_group_decide_for_ever(heuristic: str) -> None:
    """The second round of a move completes the first, although one member repeats no decision."""
    group = RawGroup(b"", silent=True)
    for epoch in (3, 4):
        view = LeaderView(LOAD, replace(PLAN, epoch=epoch, heuristic=heuristic, draining=("w1",)))
        new = [group.round(view).is_new_decision for _ in range(8)]
        assert new[:1] + new[2:] == [True] + [False] * 6  # it forgets what it is promised: decided twice
