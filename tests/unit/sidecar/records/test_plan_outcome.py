"""What is shown of a plan is what was done: moves, R-score, fill, and partitions off plan."""

import logging
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from support.named_rounds import JoinedMember, assign_by_name, assignments, sent_user_data
from support.policies import build_policy
from trimtab.assignor.model import Load, PlacementPolicy, TopicPartition
from trimtab.assignor.rebalance.leader import LeaderView
from trimtab.assignor.rebalance.user_data import MemberUserData
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.plan_target import PlanTarget
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.decision.decide import make_decision
from trimtab.sidecar.decision.decision import DecisionMetrics, ScalingAction, ScalingDecision
from trimtab.sidecar.decision.decision_memory import DecisionMemory, TimestampedRecommendation
from trimtab.sidecar.model.hpa_behavior import ScalingPolicy, ScalingRules
from trimtab.sidecar.model.observation import (
    GroupState,
    Observation,
    ObservedGroup,
    ObservedMember,
    ReplicaInstance,
)
from trimtab.sidecar.records.iteration_report import IterationReport, LogReporter
from trimtab.sidecar.records.plan_outcome import PartitionElsewhere, PlanOutcome, PlanTracker

NOW = 10_000.0
PLACEMENT = PlacementPolicy("steady", 100.0, 0.9, consolidate=True)
POLICY = build_policy(placement=PLACEMENT, max_replicas=9, scale_up=ScalingRules((ScalingPolicy(3),)))
PLAN = GroupPlan("g", 7, NOW - 500, 3, "steady", 100.0, 0.9)
SETTLED = DecisionMemory((TimestampedRecommendation(NOW - 50, 3),), last_change=NOW - 500)
PARTITIONS = tuple(TopicPartition(topic, n) for topic in ("clicks", "orders") for n in range(8))


@dataclass
class ScriptedGroup:
    """Consumers whose leader is the product's; a rebalance runs until nothing is promised."""

    reads: dict[str, set[TopicPartition]]
    rates: dict[TopicPartition, float]
    plan: GroupPlan = PLAN
    data: dict[str, MemberUserData] = field(default_factory=dict)

    def rebalance(self, rounds: int = 4) -> None:
        topics = frozenset(p.topic for p in self.rates)
        view = LeaderView(Load(self.rates), self.plan)
        for _ in range(rounds):
            joined = [
                JoinedMember(f"id-{n}", topics, self.data.get(n, MemberUserData(instance=n)), frozenset(p))
                for n, p in self.reads.items()
            ]
            outcome = assign_by_name(joined, tuple(self.rates), view, PLACEMENT)
            for name in self.reads:
                sent = sent_user_data(outcome, f"id-{name}")
                self.reads[name] = set(assignments(outcome)[f"id-{name}"].assigned)
                self.data[name] = MemberUserData(
                    instance=name, decision_fingerprint=sent.decision_fingerprint, promised=sent.promised
                )

    def seen(self, state: GroupState = GroupState.STABLE, starting: tuple[str, ...] = ()) -> Observation:
        members = tuple(ObservedMember(f"id-{n}", n, frozenset(p)) for n, p in self.reads.items())
        replicas = tuple(
            ReplicaInstance(n, alive=True, started_at=NOW - 99) for n in (*self.reads, *starting)
        )
        loads = {p: PartitionLoad(rate) for p, rate in self.rates.items()}
        return Observation(loads, ObservedGroup(state, members), replicas, self.plan)

    @property
    def owners(self) -> dict[TopicPartition, str]:
        return {p: name for name, held in self.reads.items() for p in held}

    def aim(self, revision: int = 1, places: int = 0, **assignment: set[TopicPartition]) -> None:
        """Give the plan a target; "new1" stands for the first place."""
        by_name = {name.replace("new", "+"): sorted(held) for name, held in assignment.items()}
        named = [name for name in by_name if not name.startswith("+")]
        target = PlanTarget.from_assignment(revision, named, places, by_name)
        self.plan = replace(self.plan, epoch=self.plan.epoch + 1, target=target)


def track(
    tracker: PlanTracker, group: ScriptedGroup, seen: Observation | None = None, now: float = NOW
) -> PlanTracker:
    return tracker.track_outcome(seen or group.seen(), group.owners, now)


def told_of(tracker: PlanTracker) -> PlanOutcome:
    assert tracker.outcome is not None
    return tracker.outcome


def overloaded(seed: int) -> ScriptedGroup:
    """Three consumers above their headroom: 16 partitions of two topics, spread by count."""
    rates = dict(zip(PARTITIONS, np.random.default_rng(seed).uniform(15.0, 32.0, 16).tolist(), strict=True))
    return ScriptedGroup({f"w{n + 1}": set(PARTITIONS[n::3]) for n in range(3)}, rates)


@pytest.mark.parametrize("seed", range(12))
def test_scale_up_is_done_as_it_was_told(seed: int) -> None:
    """Moves, R-score and fill of a decision are those of the placement that its consumers then make."""
    group = overloaded(seed)
    decision = make_decision(group.seen(), POLICY, SETTLED, NOW, "g")[0]
    assert decision.action is ScalingAction.SCALE_UP
    assert decision.plan is not None
    tracker = track(PlanTracker(), group)
    group.plan = decision.plan
    group.reads |= {f"new{n}": set() for n in range(decision.replicas_to_start)}
    group.rebalance()
    told, done = decision.metrics, told_of(track(tracker, group))
    assert (done.moves, done.r_score) == (told.moves, pytest.approx(told.r_score))
    assert done.max_fill == pytest.approx(told.planned_fill)
    assert (done.off_plan, done.is_settled) == (0, True)


A, B, C, D = PARTITIONS[:4]


def small() -> ScriptedGroup:
    """Two consumers of two partitions each."""
    return ScriptedGroup({"w1": {A, B}, "w2": {C, D}}, {A: 40.0, B: 30.0, C: 20.0, D: 10.0})


def test_outcome_is_the_placement_as_done() -> None:
    """It has moves, R-score and fill of the owners, and the consumer that took the place."""
    group = small()
    tracker = track(PlanTracker(), group)
    group.aim(places=1, w1={A}, w2={C, D}, new1={B})
    group.reads["pod-7"] = set()
    group.rebalance()
    outcome = told_of(track(tracker, group))
    assert outcome == PlanOutcome(8, 1, 1, 0.3, 0.4, 0, is_settled=True, consumer_by_place={"+1": "pod-7"})
    assert outcome.format_line() == "plan 8 carried out: 1 move, R 0.30, fullest 40%; as planned"


def test_plan_waits_for_its_consumers() -> None:
    """Until the consumer of a place has joined, its partitions are off plan, and the plan is not settled."""
    group = small()
    tracker = track(PlanTracker(), group)
    group.aim(places=1, w1={A}, w2={C, D}, new1={B})
    group.rebalance()
    waiting = told_of(track(tracker, group))
    assert (waiting.off_plan, waiting.is_settled) == (1, False)
    assert waiting.elsewhere == (PartitionElsewhere("clicks", 1, "+1", "w1", "+1 has yet to join"),)


def test_no_consumer_is_awaited_beyond_the_planned_ones() -> None:
    """A replica that was drained and stopped before it joined leaves its place to no other."""
    group = small()
    tracker = track(PlanTracker(), group)
    group.aim(places=1, w1={A}, w2={C, D}, new1={B})
    group.rebalance()
    tracker = track(tracker, group, group.seen(starting=("w3",)))
    assert not told_of(tracker).is_settled
    group.plan = replace(group.plan, replicas=2)
    stopped = told_of(track(tracker, group))
    assert stopped.is_settled
    assert stopped.describe_difference() == "1 partition elsewhere (+1 is no longer to join)"


def test_plan_that_has_not_begun_is_not_settled() -> None:
    """Before the leader has moved anything the owners are those of the plan before."""
    group = small()
    tracker = track(PlanTracker(), group)
    group.aim(w1={A}, w2={B, C, D})
    early = told_of(track(tracker, group))
    assert (early.moves, early.off_plan, early.is_settled) == (0, 1, False)
    group.rebalance()
    assert told_of(track(tracker, group)).is_settled


def test_partitions_without_an_owner_are_on_the_way() -> None:
    """Between the two rounds of a rebalance the plan is not settled."""
    group = small()
    tracker = track(PlanTracker(), group)
    group.aim(w1={A}, w2={B, C, D})
    group.rebalance(rounds=1)
    assert not told_of(track(tracker, group)).is_settled


def test_rebalance_keeps_the_last_outcome() -> None:
    """Owners are compared in a stable group only."""
    group = small()
    tracker = track(PlanTracker(), group)
    group.aim(w1={A}, w2={B, C, D})
    group.rebalance()
    settled = track(tracker, group)
    group.reads["w1"] = set()
    again = track(settled, group, group.seen(GroupState.REBALANCING))
    assert told_of(again) == told_of(settled)


def test_a_further_plan_that_is_not_followed_begins_nothing_anew() -> None:
    """Off plan since the first difference, through each new plan and its rebalance, until one is followed."""
    group = small()
    tracker = track(PlanTracker(), group)
    assert tracker.unfollowed is None
    owned = dict(group.reads)
    for now, states in ((NOW, [GroupState.STABLE]), (NOW + 5, [GroupState.REBALANCING, GroupState.STABLE])):
        group.aim(w1=set(), w2={A, B, C, D})
        for state in states:
            tracker = track(tracker, group, group.seen(state), now)
            assert tracker.unfollowed is not None
            assert tracker.unfollowed.since == NOW
    assert tracker.unfollowed == (NOW, told_of(tracker))
    restarted = track(PlanTracker(), group, now=NOW + 9)
    assert restarted.unfollowed == (group.plan.time, told_of(restarted))
    group.aim(**owned)
    assert track(tracker, group).unfollowed is None


def test_departed_consumer_explains_the_difference() -> None:
    """A settled plan keeps its figures; partitions of a consumer that left are elsewhere, and back later."""
    group = small()
    tracker = track(PlanTracker(), group)
    group.aim(w1={A}, w2={B, C, D})
    group.rebalance()
    tracker = track(tracker, group)
    settled = told_of(tracker)
    held = group.reads.pop("w2")
    del group.data["w2"]
    group.rebalance()
    tracker = track(tracker, group)
    short = told_of(tracker)
    assert (short.moves, short.r_score, short.max_fill) == (settled.moves, settled.r_score, settled.max_fill)
    assert (short.off_plan, {p.owner for p in short.elsewhere}) == (len(held), {"w1"})
    assert short.describe_difference() == "3 partitions elsewhere (w2 left)"
    group.reads["w2"] = set()
    group.rebalance()
    assert told_of(track(tracker, group)).describe_difference() == "as planned"


def test_departed_consumer_of_a_place_is_told_by_its_name() -> None:
    """Also while its successor starts, which takes the place; the plan's moves keep naming it until then."""
    group = small()
    tracker = track(PlanTracker(), group)
    group.aim(places=1, w1={A}, w2={C, D}, new1={B})
    group.plan = replace(group.plan, replicas=3)
    group.reads["w3"] = set()
    group.rebalance()
    tracker = track(tracker, group)
    del group.reads["w3"], group.data["w3"]
    group.rebalance()
    for _ in range(2):
        tracker = track(tracker, group, group.seen(starting=("w4",)))
        gone = told_of(tracker)
        assert gone.elsewhere == (PartitionElsewhere("clicks", 1, "w3", group.owners[B], "w3 left"),)
        assert gone.consumer_by_place == {"+1": "w3"}
    again = told_of(track(tracker, group, group.seen(starting=("w3",))))  # as a pod of a StatefulSet
    assert again.describe_difference() == "1 partition elsewhere (w3 has yet to join)"
    group.reads["w4"] = set()
    group.rebalance()
    done = told_of(track(tracker, group))
    assert (done.describe_difference(), done.consumer_by_place) == ("as planned", {"+1": "w4"})


def test_plan_of_an_earlier_sidecar_has_no_moves() -> None:
    """A sidecar that did not see the owners before the plan claims neither moves nor an R-score."""
    group = small()
    group.aim(w1={A, B}, w2={C, D})
    outcome = told_of(track(PlanTracker(), group))
    assert (outcome.moves, outcome.r_score, outcome.is_settled) == (None, None, True)
    assert outcome.format_line() == "plan 8 carried out: fullest 70%; as planned"


def test_line_leaves_out_what_is_unknown() -> None:
    """Right after a sidecar's start neither moves nor loads are known; of many reasons it names three."""
    reasons = ("w1 left", "w2 left", "w3 drains", "+1 has yet to join")
    elsewhere = tuple(PartitionElsewhere("t", n, "x", "y", reason) for n, reason in enumerate(reasons))
    outcome = PlanOutcome(7, 1, None, None, None, 0, is_settled=True)
    assert outcome.format_line() == "plan 7 carried out: as planned"
    off = replace(outcome, off_plan=4, is_settled=False, elsewhere=elsewhere)
    assert off.format_line() == (
        "plan 7 is being carried out: 4 partitions elsewhere "
        "(+1 has yet to join, w1 left, w2 left and 1 more)"
    )


def test_unread_topic_explains_the_difference() -> None:
    """A consumer that no longer subscribes to a topic is named with it."""
    group = small()
    group.aim(w1={A}, w2={B, C, D})
    seen = group.seen()
    members = tuple(replace(m, topics=frozenset({"orders"})) for m in seen.group.members)
    seen = replace(seen, group=ObservedGroup(GroupState.STABLE, members))
    outcome = told_of(track(PlanTracker(), group, seen))
    assert outcome.describe_difference() == "1 partition elsewhere (w2 does not subscribe to clicks)"


def test_plan_without_a_target_has_no_outcome() -> None:
    """A plan of the version before, or one without a load, leaves the placement to the leader."""
    group = small()
    assert track(PlanTracker(), group).outcome is None
    group.aim(w1={A, B}, w2={C, D})
    tracker = track(PlanTracker(), group)
    group.plan = replace(PLAN, epoch=9)
    assert track(tracker, group).outcome is None


def test_unknown_and_first_owners_count_as_in_the_plan() -> None:
    """A partition nobody had read counts as a move, without an R-score; one of unknown rate is estimated."""
    group = small()
    group.reads["w2"] = {C}
    group.rates[B] = float("nan")
    seen = group.seen()
    loads = {**seen.write_rates, B: PartitionLoad()}
    tracker = track(PlanTracker(), group, replace(seen, write_rates=loads))
    group.rates[B] = 30.0
    group.aim(w1={A}, w2={B, C, D})
    group.rebalance()
    done = told_of(track(tracker, group))
    mean = (40.0 + 20.0 + 10.0) / 3
    assert (done.moves, done.r_score) == (2, pytest.approx(mean / 100.0))


def test_new_revision_is_another_plan() -> None:
    """Within an epoch a new target starts from the owners before it."""
    group = small()
    tracker = track(PlanTracker(), group)
    group.aim(w1={A}, w2={B, C, D})
    group.rebalance()
    tracker = track(tracker, group)
    assert told_of(tracker).moves == 1
    group.aim(revision=2, w1={A, B}, w2={C, D})
    group.plan = replace(group.plan, epoch=8)
    assert told_of(track(tracker, group)).moves == 0


def test_log_says_once_what_was_done(caplog: pytest.LogCaptureFixture) -> None:
    """One line when a plan is settled, another when partitions go elsewhere; none before.

    Another target of the epoch has a line of its own, also with the same figures.
    """
    done = PlanOutcome(7, 1, 5, 0.72, 0.87, 0, is_settled=True)
    left = replace(done, off_plan=2, elsewhere=(PartitionElsewhere("t", 0, "w2", "w1", "w2 left"),))
    reporter = LogReporter()
    decision = ScalingDecision(ScalingAction.HOLD, ("3 is right",), DecisionMetrics())
    quiet = IterationReport(0, decision, {}, 7, is_group_known=True, decision_seconds=0, iteration_seconds=0)
    with caplog.at_level(logging.INFO, "trimtab.sidecar"):
        for outcome in (
            None,
            replace(done, is_settled=False),
            done,
            done,
            None,
            replace(done, revision=2),
            left,
        ):
            reporter(replace(quiet, plan_outcome=outcome))
    lines = [text for text in caplog.messages if text.startswith("plan")]
    assert lines == [
        "plan 7 carried out: 5 moves, R 0.72, fullest 87%; as planned",
        "plan 7 carried out: 5 moves, R 0.72, fullest 87%; as planned",
        "plan 7 carried out: 5 moves, R 0.72, fullest 87%; 2 partitions elsewhere (w2 left)",
    ]
