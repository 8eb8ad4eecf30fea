"""The decision, rule by rule: one situation each, and what it must lead to."""

from dataclasses import dataclass, replace

import pytest

from trimtab.assignor.model import PlacementPolicy, TopicPartition
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.decision.decide import make_decision, record_execution
from trimtab.sidecar.decision.decision import ScalingAction, ScalingDecision
from trimtab.sidecar.decision.hpa_behavior import ScalingPolicy, ScalingRules
from trimtab.sidecar.decision.scaling_policy import (
    AutoscalingPolicy,
    DecisionMemory,
    TimestampedRecommendation,
)
from trimtab.sidecar.measurement.observation import (
    GroupState,
    Observation,
    ObservedGroup,
    ObservedMember,
    ReplicaInstance,
)

NOW = 10_000.0
POLICY = AutoscalingPolicy(
    placement=PlacementPolicy("mbf", 100.0, 1.0, consolidate=True),
    min_replicas=1,
    max_replicas=6,
    scale_up=ScalingRules((ScalingPolicy(3),)),
    scale_down=ScalingRules((ScalingPolicy(1),), stabilization_window=60),
    cooldown=30,
    drain_retry=60,
)
PLAN = GroupPlan("g", 7, NOW - 500, 2, "mbf", 100.0, 1.0)
SETTLED = DecisionMemory((TimestampedRecommendation(NOW - 50, 1),), last_change=NOW - 500)


@dataclass(frozen=True)
class World:
    """A group in short: what each worker reads, at which speed (None: unknown)."""

    reads: dict[str, dict[int, float | None]]
    plan: GroupPlan | None = PLAN
    state: GroupState = GroupState.STABLE
    starting: tuple[str, ...] = ()
    strangers: tuple[str, ...] = ()
    unread: dict[int, float | None] | None = None
    restart: tuple[str, ...] = ()

    def seen(self) -> Observation:
        every = [*self.reads.values(), self.unread or {}]
        speeds = {
            TopicPartition("t", n): PartitionLoad(bytes_per_s=s) for reads in every for n, s in reads.items()
        }
        readers = tuple(
            ObservedMember(f"id-{name}", name, frozenset(TopicPartition("t", n) for n in reads))
            for name, reads in self.reads.items()
        )
        ours = [*(n for n in self.reads if n not in self.strangers), *self.starting]
        replicas = tuple(ReplicaInstance(n, alive=True, started_at=NOW - 5) for n in sorted(ours))
        return Observation(
            speeds, ObservedGroup(self.state, readers), replicas, self.plan, pending_restarts=self.restart
        )


def judge(
    world: World | Observation, policy: AutoscalingPolicy = POLICY, memory: DecisionMemory = SETTLED
) -> ScalingDecision:
    seen = world.seen() if isinstance(world, World) else world
    return make_decision(seen, policy, memory, NOW, "g")[0]


EVEN = World({"a": {0: 40, 1: 40}, "b": {2: 40, 3: 40}})
BUSY = World({"a": {0: 60, 1: 60, 2: 60}, "b": {3: 60, 4: 60}})
IDLE = World({"a": {0: 10, 1: 10}, "b": {2: 5, 3: 5}})
DRAINING = replace(World({"a": {0: 10}, "b": {1: 10}, "c": {2: 10}}), plan=replace(PLAN, draining=("c",)))
DRAINED = replace(DRAINING, reads={"a": {0: 10, 2: 10}, "b": {1: 10}, "c": {}})


@pytest.mark.parametrize(
    "seen",
    [
        replace(EVEN.seen(), plan_known=False),
        replace(EVEN.seen(), replicas=None),
        replace(EVEN.seen(), group=ObservedGroup()),
    ],
)
def test_blind_holds(seen: Observation) -> None:
    """Without the plan, the replicas or the group nothing at all is done."""
    assert judge(seen).action is ScalingAction.HOLD


@pytest.mark.parametrize("world", [EVEN, BUSY, IDLE])
def test_unknown_speeds_change_no_count(world: World) -> None:
    """With no write speed known the count stays, whatever the past wished for."""
    blind = replace(world, reads={n: dict.fromkeys(r) for n, r in world.reads.items()})
    verdict = judge(blind, memory=replace(SETTLED, recommendations=()))
    assert verdict.action is ScalingAction.HOLD
    assert verdict.metrics.desired_replicas == 2


def test_unknown_partitions_forbid_shrinking_and_weigh_nothing() -> None:
    """One unknown partition keeps every consumer, and known load alone may still add some."""
    some = {**IDLE.reads, "b": {2: 5, 3: None}}
    assert judge(replace(IDLE, reads=some)).action is ScalingAction.HOLD
    many = {"a": {0: 90.0}, "b": {1: None, 2: None, 3: None}}
    assert judge(replace(IDLE, reads=many)).action is ScalingAction.HOLD
    more = {**BUSY.reads, "b": {3: 60, 4: None}}
    assert judge(replace(BUSY, reads=more)).plan is not None


def test_first_plan_is_epoch_one() -> None:
    """A group without a plan gets one, within the limits, and nothing is started by it."""
    verdict = judge(World({}, plan=None, unread={0: None}))
    assert (verdict.action, verdict.replicas_to_start) == (ScalingAction.ANNOUNCE, 0)
    assert verdict.plan is not None
    assert (verdict.plan.epoch, verdict.plan.replicas, verdict.plan.group) == (1, 1, "g")


def test_changed_settings_are_announced() -> None:
    """Another capacity in the settings makes a new epoch with it."""
    policy = replace(POLICY, placement=replace(POLICY.placement, capacity=120.0))
    verdict = judge(EVEN, policy)
    assert verdict.action is ScalingAction.ANNOUNCE
    assert verdict.plan is not None
    assert (verdict.plan.epoch, verdict.plan.capacity) == (8, 120.0)


def test_nothing_happens_when_nothing_changed() -> None:
    """A load that fits is left alone, and so it is after a restart without any memory."""
    assert judge(EVEN).action is ScalingAction.HOLD
    assert judge(EVEN, memory=DecisionMemory()).action is ScalingAction.HOLD


def test_scale_out_keeps_the_epoch() -> None:
    """More load than fits raises the count at once; the join, not a new epoch, rebalances."""
    verdict = judge(BUSY)
    assert (verdict.action, verdict.replicas_to_start) == (ScalingAction.SCALE_UP, 3)
    assert verdict.plan is not None
    assert (verdict.plan.epoch, verdict.plan.replicas) == (7, 5)
    assert verdict.metrics.moves > 0


def test_scale_out_is_bounded_by_step_and_limit() -> None:
    """Neither the step nor the upper limit is exceeded."""
    assert judge(BUSY, replace(POLICY, scale_up=ScalingRules((ScalingPolicy(1),)))).replicas_to_start == 1
    assert judge(BUSY, replace(POLICY, max_replicas=3)).replicas_to_start == 1
    assert judge(BUSY, replace(POLICY, max_replicas=2)).action is not ScalingAction.SCALE_UP


def test_scale_out_waits_for_the_cooldown() -> None:
    """Right after a change nothing is added, and the reason says so."""
    verdict = judge(BUSY, memory=replace(SETTLED, last_change=NOW - 10))
    assert verdict.action is ScalingAction.HOLD
    assert "cooldown" in " ".join(verdict.reasons)


def test_scale_out_takes_the_lowest_wish_of_its_window() -> None:
    """With a window for growing, one low wish in it holds the count down."""
    policy = replace(POLICY, scale_up=replace(POLICY.scale_up, stabilization_window=30))
    assert (
        judge(BUSY, policy, DecisionMemory((TimestampedRecommendation(NOW - 20, 2),))).action
        is ScalingAction.HOLD
    )
    assert (
        judge(
            BUSY,
            policy,
            DecisionMemory((TimestampedRecommendation(NOW - 40, 2), TimestampedRecommendation(NOW - 20, 5))),
        ).replicas_to_start
        == 3
    )


@pytest.mark.parametrize(
    ("world", "action"),
    [
        # headroom 0.9: 92 of 90 is above it, but below 0.9 x 1.1
        (World({"a": {0: 46, 1: 46}, "b": {2: 46, 3: 44}}), ScalingAction.HOLD),
        # 84 would fit one filled to 0.9, but not to 0.9 x 0.9
        (World({"a": {0: 42}, "b": {1: 42}}), ScalingAction.HOLD),
        (World({"a": {0: 40}, "b": {1: 40}}), ScalingAction.DRAIN),
    ],
)
def test_tolerance(world: World, action: ScalingAction) -> None:
    """A load near what the count is good for changes nothing."""
    policy = replace(POLICY, placement=replace(POLICY.placement, headroom=0.9))
    plan = replace(PLAN, headroom=0.9)
    assert judge(replace(world, plan=plan), policy).action is action


def test_scale_in_waits_for_its_window() -> None:
    """The highest wish of the window counts, and a fresh sidecar has wished for what it found."""
    assert (
        judge(IDLE, memory=DecisionMemory((TimestampedRecommendation(NOW - 50, 2),))).action
        is ScalingAction.HOLD
    )
    assert judge(IDLE, memory=DecisionMemory()).action is ScalingAction.HOLD
    assert judge(IDLE).action is ScalingAction.DRAIN


@pytest.mark.parametrize("window", [0.0, 5.0])
def test_windows_shorter_than_a_turn_do_not_freeze(window: float) -> None:
    """Without windows, or with windows in which nothing was wished, the newest wish decides."""
    out, back = (
        replace(POLICY.scale_up, stabilization_window=window),
        replace(POLICY.scale_down, stabilization_window=window),
    )
    policy = replace(POLICY, scale_up=out, scale_down=back)
    memory = DecisionMemory((TimestampedRecommendation(NOW - 10, 2),))
    assert judge(BUSY, policy, memory).action is ScalingAction.SCALE_UP
    assert judge(IDLE, policy, memory).action is ScalingAction.DRAIN


def test_blindness_counts_as_wishing_for_what_there_is() -> None:
    """After an outage nobody is drained before the load was low for the whole window."""
    memory = SETTLED
    for age in range(100, 0, -5):
        lost = replace(IDLE.seen(), group=ObservedGroup())
        memory = make_decision(lost, POLICY, memory, NOW - age, "g")[1]
    assert judge(IDLE, memory=memory).action is ScalingAction.HOLD
    assert len(memory.recommendations) < 20


def test_scale_in_drains_what_costs_least_to_move() -> None:
    """Not the newest goes, but the one whose load is least, and it is drained, not stopped."""
    cheap = World({"z": {0: 40}, "b": {1: 5}}, plan=PLAN)
    verdict = judge(cheap)
    assert (verdict.action, verdict.replicas_to_stop) == (ScalingAction.DRAIN, ())
    assert verdict.plan is not None
    assert verdict.plan.draining == ("b",)
    assert (verdict.plan.epoch, verdict.plan.replicas) == (8, 1)


def test_scale_in_of_one_that_owns_nothing_needs_no_rebalance() -> None:
    """Draining a replica that reads nothing keeps the epoch."""
    verdict = judge(World({"a": {0: 10}}, starting=("b",)))
    assert verdict.action is ScalingAction.DRAIN
    assert verdict.plan is not None
    assert (verdict.plan.draining, verdict.plan.epoch) == (("b",), 7)


@pytest.mark.parametrize(
    "world",
    [
        replace(IDLE, state=GroupState.REBALANCING),
        replace(IDLE, unread={9: 1}),
        replace(IDLE, reads={**IDLE.reads, "x": {9: 1}}, strangers=("x",)),
    ],
)
def test_scale_in_needs_a_group_at_rest(world: World) -> None:
    """During a rebalance, with unread partitions or strangers reading, nobody is drained."""
    assert judge(world).action is ScalingAction.HOLD


def test_scale_in_never_overfills_the_others() -> None:
    """A count that would do by sum but not by packing is not brought about."""
    plan = replace(PLAN, replicas=3, heuristic="sticky")
    policy = replace(POLICY, placement=replace(POLICY.placement, heuristic="sticky"))
    world = World({"a": {0: 55}, "b": {1: 55}, "c": {2: 55}}, plan=plan)
    verdict = judge(world, policy, DecisionMemory((TimestampedRecommendation(NOW - 50, 2),)))
    assert verdict.metrics.desired_replicas == 2
    assert verdict.action is ScalingAction.HOLD
    assert "cannot take over" in verdict.format_line()


def test_above_the_limit_is_brought_down() -> None:
    """More replicas than allowed are drained even where that overfills the others."""
    policy = replace(POLICY, max_replicas=1)
    verdict = judge(BUSY, policy, DecisionMemory((TimestampedRecommendation(NOW - 50, 1),)))
    assert verdict.action is ScalingAction.DRAIN


def test_a_draining_owner_is_never_stopped() -> None:
    """As long as it owns something it is waited for."""
    verdict = judge(DRAINING, memory=replace(SETTLED, last_change=NOW - 10))
    assert (verdict.action, verdict.replicas_to_stop) == (ScalingAction.HOLD, ())


def test_a_drained_replica_is_stopped_when_the_group_is_at_rest() -> None:
    """Owning nothing is enough only in a stable group whose partitions all have owners."""
    assert judge(DRAINED).replicas_to_stop == ("c",)
    for world in (
        replace(DRAINED, state=GroupState.REBALANCING),
        replace(DRAINED, reads={**DRAINED.reads, "a": {0: 10}}, unread={2: 10}),
    ):
        assert judge(world).action is ScalingAction.HOLD


def test_a_stopped_replica_leaves_the_plan_quietly() -> None:
    """Once it is gone the plan forgets it, in the same epoch."""
    verdict = judge(replace(DRAINED, reads={"a": {0: 10, 2: 10}, "b": {1: 10}}))
    assert verdict.action is ScalingAction.ADOPT
    assert verdict.plan is not None
    assert (verdict.plan.draining, verdict.plan.epoch) == ((), 7)


def test_a_slow_drain_is_asked_for_again() -> None:
    """After a while the drain is published once more, with a new epoch."""
    verdict = judge(DRAINING, memory=replace(SETTLED, last_change=NOW - 61))
    assert verdict.action is ScalingAction.RETRY_DRAIN
    assert verdict.plan is not None
    assert (verdict.plan.epoch, verdict.plan.draining) == (8, ("c",))


def test_rising_load_undrains() -> None:
    """While one drains, wanting more keeps it instead of starting another, cooldown or not."""
    rising = replace(DRAINING, reads={"a": {0: 90}, "b": {1: 90}, "c": {2: 90}})
    verdict = judge(rising, memory=replace(SETTLED, last_change=NOW - 1))
    assert (verdict.action, verdict.replicas_to_start) == (ScalingAction.CANCEL_DRAIN, 0)
    assert verdict.plan is not None
    assert (verdict.plan.draining, verdict.plan.replicas, verdict.plan.epoch) == ((), 3, 8)


def test_a_death_while_draining_undrains() -> None:
    """Where one that should stay died, the draining one stays: nothing needs to be started."""
    verdict = judge(replace(DRAINING, reads={"b": {1: 10}, "c": {2: 10}}, unread={0: 10}))
    assert (verdict.action, verdict.replicas_to_start) == (ScalingAction.CANCEL_DRAIN, 0)
    assert verdict.plan is not None
    assert (verdict.plan.draining, verdict.plan.replicas) == ((), 2)


def test_the_dead_are_replaced_at_once() -> None:
    """A missing replica is started without windows or cooldown, in blindness too."""
    dead = World({"a": {0: None}}, unread={1: None})
    verdict = judge(dead, memory=DecisionMemory(last_change=NOW - 1))
    assert (verdict.action, verdict.replicas_to_start, verdict.plan) == (ScalingAction.REPLACE, 1, None)


def test_those_that_keep_dying_are_replaced_ever_more_slowly() -> None:
    """The first replacement is free, then pauses grow, and old ones are forgiven."""
    dead = World({"a": {0: 10}}, unread={1: 10})
    for ages, action in (
        ((4,), ScalingAction.HOLD),
        ((6,), ScalingAction.REPLACE),
        ((30, 9), ScalingAction.HOLD),
        ((30, 11), ScalingAction.REPLACE),
        ((400, 310), ScalingAction.REPLACE),
    ):
        memory = replace(SETTLED, replacements=tuple(NOW - age for age in ages))
        assert judge(dead, memory=memory).action is action


def test_surplus_replicas_are_recorded() -> None:
    """Replicas that somebody else started become the plan's, in the same epoch."""
    verdict = judge(World({"a": {0: 90}, "b": {1: 90}, "c": {2: 90}}))
    assert verdict.action is ScalingAction.ADOPT
    assert verdict.plan is not None
    assert (verdict.plan.replicas, verdict.plan.epoch) == (3, 7)


def test_restart_replaces_by_surge() -> None:
    """One more is started, waited for, and then the old one is drained; the count stays."""
    asked = replace(EVEN, restart=("a", "b"))
    surge = judge(asked)
    assert (surge.action, surge.replicas_to_start, surge.plan) == (ScalingAction.SURGE, 1, None)
    assert judge(replace(asked, starting=("c",))).action is ScalingAction.HOLD
    drain = judge(replace(asked, reads={**EVEN.reads, "c": {}}))
    assert drain.action is ScalingAction.DRAIN
    assert drain.plan is not None
    assert (drain.plan.draining, drain.plan.replicas) == (("a",), 2)


def test_a_surge_that_keeps_dying_is_started_ever_more_slowly() -> None:
    """In ten turns, one second apart, a new replica that dies at once is started twice."""
    seen, memory = replace(EVEN, restart=("a", "b")).seen(), SETTLED
    verdicts: list[ScalingDecision] = []
    for second in range(10):
        verdict, memory = make_decision(seen, POLICY, memory, NOW + second, "g")
        memory = record_execution(verdict, seen, memory, NOW + second)
        verdicts.append(verdict)
    assert [n for n, v in enumerate(verdicts) if v.action is ScalingAction.SURGE] == [0, 5]
    assert "check the logs" in verdicts[1].format_line()


def test_a_restart_that_works_is_not_slowed() -> None:
    """Once an old replica is told to end, the next surge need not wait."""
    memory = replace(SETTLED, replacements=(NOW - 3, NOW - 2))
    seen = replace(DRAINED, restart=("b", "c")).seen()
    verdict, memory = make_decision(seen, POLICY, memory, NOW, "g")
    assert verdict.action is ScalingAction.STOP
    memory = record_execution(verdict, seen, memory, NOW)
    assert judge(replace(EVEN, restart=("b",)), memory=memory).action is ScalingAction.SURGE


OVERFULL = World({"a": {0: 50, 1: 50, 2: 20}, "b": {3: 30}})


def test_an_overfull_consumer_gets_a_better_placement() -> None:
    """The count is right but the placement is not: a new epoch, after the cooldown."""
    verdict = judge(OVERFULL)
    assert (verdict.action, verdict.replicas_to_start) == (ScalingAction.PLACE, 0)
    assert verdict.plan is not None
    assert (verdict.plan.epoch, verdict.plan.replicas) == (8, 2)
    assert judge(OVERFULL, memory=replace(SETTLED, last_change=NOW - 1)).action is ScalingAction.HOLD


def test_a_placement_is_not_asked_for_twice() -> None:
    """Where the leader kept the placement when asked, it is not asked again for a while."""
    asked = record_execution(judge(OVERFULL), OVERFULL.seen(), SETTLED, NOW - 40)
    assert judge(OVERFULL, memory=asked).action is ScalingAction.HOLD
    assert judge(OVERFULL, memory=replace(asked, last_change=NOW - 61)).action is ScalingAction.PLACE


def test_a_partition_larger_than_a_consumer_moves_nothing() -> None:
    """No placement cures it, so none is asked for."""
    world = World({"a": {0: 300}, "b": {1: 60}})
    verdict = judge(world, replace(POLICY, max_replicas=2))
    assert verdict.action is ScalingAction.HOLD
    assert "above capacity" not in verdict.format_line()


def test_advice_takes_the_count_as_it_is_found() -> None:
    """Where replicas are not ours, more or fewer of them are recorded, never replaced."""
    policy = replace(POLICY, advisory=True)
    for reads in ({"a": {0: 10.0}}, {"a": {0: 10.0}, "b": {1: 10.0}, "c": {2: 10.0}}):
        verdict = judge(World(dict(reads)), policy)
        assert verdict.action is ScalingAction.ADOPT
        assert verdict.plan is not None
        assert verdict.plan.replicas == len(reads)


def test_a_clock_set_back_does_not_freeze() -> None:
    """Wishes and changes from the future do not count for ever."""
    memory = DecisionMemory((TimestampedRecommendation(NOW + 9e6, 6),), last_change=NOW + 9e6)
    assert make_decision(IDLE.seen(), POLICY, memory, NOW)[1].recommendations[0].time <= NOW
    assert memory.seconds_since_change(NOW) == 0.0


def test_the_line_tells_numbers_and_reasons() -> None:
    """One line holds the action, the reason, counts, load and epoch."""
    line = judge(BUSY).format_line()
    assert "\n" not in line
    for part in ("scale-up: 2 -> 5", "needed 300 B/s", "2 running", "epoch 7", "R "):
        assert part in line
