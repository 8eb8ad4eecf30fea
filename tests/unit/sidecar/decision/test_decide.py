"""The decision rules: one situation each, and the decision it must lead to."""

from dataclasses import dataclass, replace

import pytest

from support.policies import build_policy
from trimtab.assignor.model import PlacementPolicy, TopicPartition
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.decision.decide import make_decision, record_execution
from trimtab.sidecar.decision.decision import ScalingAction, ScalingDecision
from trimtab.sidecar.decision.decision_memory import DecisionMemory, TimestampedRecommendation
from trimtab.sidecar.model.autoscaling_policy import AutoscalingPolicy
from trimtab.sidecar.model.hpa_behavior import Direction, ScalingPolicy, ScalingRules, SelectPolicy
from trimtab.sidecar.model.observation import (
    GroupState,
    Observation,
    ObservedGroup,
    ObservedMember,
    ReplicaInstance,
)

NOW = 10_000.0
POLICY = build_policy(
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
    """A group in short: each worker's partitions and their write rates (None: unknown)."""

    reads: dict[str, dict[int, float | None]]
    plan: GroupPlan | None = PLAN
    state: GroupState = GroupState.STABLE
    starting: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    unread: dict[int, float | None] | None = None
    restart: tuple[str, ...] = ()

    def seen(self) -> Observation:
        every = [*self.reads.values(), self.unread or {}]
        loads = {
            TopicPartition("t", n): PartitionLoad(bytes_per_s=s) for reads in every for n, s in reads.items()
        }
        readers = tuple(
            ObservedMember(f"id-{name}", name, frozenset(TopicPartition("t", n) for n in reads))
            for name, reads in self.reads.items()
        )
        ours = [*(n for n in self.reads if n not in self.foreign), *self.starting]
        replicas = tuple(ReplicaInstance(n, alive=True, started_at=NOW - 5) for n in sorted(ours))
        return Observation(
            loads, ObservedGroup(self.state, readers), replicas, self.plan, pending_restarts=self.restart
        )


def decide(
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
def test_an_unknown_state_holds(seen: Observation) -> None:
    """With the plan, the replicas or the group unknown the decision is to hold."""
    assert decide(seen).action is ScalingAction.HOLD


@pytest.mark.parametrize("world", [EVEN, BUSY, IDLE])
def test_unknown_write_rates_keep_the_count(world: World) -> None:
    """With no write rate known the count stays, whatever was recommended before."""
    unknown = replace(world, reads={n: dict.fromkeys(r) for n, r in world.reads.items()})
    decision = decide(unknown, memory=replace(SETTLED, recommendations=()))
    assert decision.action is ScalingAction.HOLD
    assert decision.metrics.desired_replicas == 2


def test_unknown_partitions_prevent_scale_down_and_weigh_nothing() -> None:
    """One unknown partition prevents scale-down; known load alone may still scale up."""
    some = {**IDLE.reads, "b": {2: 5, 3: None}}
    assert decide(replace(IDLE, reads=some)).action is ScalingAction.HOLD
    many = {"a": {0: 90.0}, "b": {1: None, 2: None, 3: None}}
    assert decide(replace(IDLE, reads=many)).action is ScalingAction.HOLD
    more = {**BUSY.reads, "b": {3: 60, 4: None}}
    assert decide(replace(BUSY, reads=more)).plan is not None


def test_first_plan_is_epoch_one() -> None:
    """A group without a plan gets one within the limits, which starts no replica."""
    decision = decide(World({}, plan=None, unread={0: None}))
    assert (decision.action, decision.replicas_to_start) == (ScalingAction.ANNOUNCE, 0)
    assert decision.plan is not None
    assert (decision.plan.epoch, decision.plan.replicas, decision.plan.group) == (1, 1, "g")


def test_changed_settings_are_announced() -> None:
    """A new capacity in the settings is published in a new epoch."""
    policy = replace(POLICY, placement=replace(POLICY.placement, capacity=120.0))
    decision = decide(EVEN, policy)
    assert decision.action is ScalingAction.ANNOUNCE
    assert decision.plan is not None
    assert (decision.plan.epoch, decision.plan.capacity) == (8, 120.0)


def test_a_load_that_fits_changes_nothing() -> None:
    """A load that fits changes nothing, also after a restart without memory."""
    assert decide(EVEN).action is ScalingAction.HOLD
    assert decide(EVEN, memory=DecisionMemory()).action is ScalingAction.HOLD


def test_scale_up_keeps_the_epoch() -> None:
    """A higher load raises the count at once; the join triggers the rebalance, not a new epoch."""
    decision = decide(BUSY)
    assert (decision.action, decision.replicas_to_start) == (ScalingAction.SCALE_UP, 3)
    assert decision.plan is not None
    assert (decision.plan.epoch, decision.plan.replicas) == (7, 5)
    assert decision.metrics.moves > 0


def test_scale_up_is_bounded_by_policy_and_limit() -> None:
    """Neither the scale-up policy nor the maximum is exceeded."""
    assert decide(BUSY, replace(POLICY, scale_up=ScalingRules((ScalingPolicy(1),)))).replicas_to_start == 1
    assert decide(BUSY, replace(POLICY, max_replicas=3)).replicas_to_start == 1
    assert decide(BUSY, replace(POLICY, max_replicas=2)).action is not ScalingAction.SCALE_UP


def test_scale_up_waits_for_the_cooldown() -> None:
    """During the cooldown no replica is added, and the reason says so."""
    decision = decide(BUSY, memory=replace(SETTLED, last_change=NOW - 10))
    assert decision.action is ScalingAction.HOLD
    assert "cooldown" in " ".join(decision.reasons)


def test_scale_up_follows_the_lowest_recommendation_of_its_window() -> None:
    """With a scale-up window, one low recommendation in it holds the count down."""
    policy = replace(POLICY, scale_up=replace(POLICY.scale_up, stabilization_window=30))
    assert (
        decide(BUSY, policy, DecisionMemory((TimestampedRecommendation(NOW - 20, 2),))).action
        is ScalingAction.HOLD
    )
    assert (
        decide(
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
def test_a_load_within_the_tolerance_changes_nothing(world: World, action: ScalingAction) -> None:
    """A load close to what the current count handles changes nothing."""
    policy = replace(POLICY, placement=replace(POLICY.placement, headroom=0.9))
    plan = replace(PLAN, headroom=0.9)
    assert decide(replace(world, plan=plan), policy).action is action


def test_scale_down_waits_for_its_window() -> None:
    """The highest recommendation of the window counts; a restarted sidecar begins with the current count."""
    assert (
        decide(IDLE, memory=DecisionMemory((TimestampedRecommendation(NOW - 50, 2),))).action
        is ScalingAction.HOLD
    )
    assert decide(IDLE, memory=DecisionMemory()).action is ScalingAction.HOLD
    assert decide(IDLE).action is ScalingAction.DRAIN


@pytest.mark.parametrize(("rise", "is_awaited"), [(None, True), (0.12, True), (0.11, False), (0.0, False)])
def test_scale_down_does_not_wait_for_a_load_that_will_not_return(
    rise: float | None, *, is_awaited: bool
) -> None:
    """By a forecast; a load of 1 / (1 - tolerance) times the one now still fits: the count leaves room."""
    memory = DecisionMemory((TimestampedRecommendation(NOW - 50, 2),))
    decision = decide(replace(IDLE.seen(), forecast_rise=rise), memory=memory)
    assert decision.action is (ScalingAction.HOLD if is_awaited else ScalingAction.DRAIN)


@pytest.mark.parametrize("window", [0.0, 5.0])
def test_windows_shorter_than_an_iteration_do_not_freeze(window: float) -> None:
    """Without windows, or with empty ones, the newest recommendation decides."""
    out, back = (
        replace(POLICY.scale_up, stabilization_window=window),
        replace(POLICY.scale_down, stabilization_window=window),
    )
    policy = replace(POLICY, scale_up=out, scale_down=back)
    memory = DecisionMemory((TimestampedRecommendation(NOW - 10, 2),))
    assert decide(BUSY, policy, memory).action is ScalingAction.SCALE_UP
    assert decide(IDLE, policy, memory).action is ScalingAction.DRAIN


def test_an_unknown_state_recommends_the_current_count() -> None:
    """After an outage no replica is drained until the load was low for a whole window."""
    memory = SETTLED
    for age in range(100, 0, -5):
        lost = replace(IDLE.seen(), group=ObservedGroup())
        memory = make_decision(lost, POLICY, memory, NOW - age, "g")[1]
    assert decide(IDLE, memory=memory).action is ScalingAction.HOLD
    assert len(memory.recommendations) < 20


def test_scale_down_drains_the_replica_that_costs_least_to_move() -> None:
    """The replica with the least load is drained, not the newest, and not stopped yet."""
    cheap = World({"z": {0: 40}, "b": {1: 5}}, plan=PLAN)
    decision = decide(cheap)
    assert (decision.action, decision.replicas_to_stop) == (ScalingAction.DRAIN, ())
    assert decision.plan is not None
    assert decision.plan.draining == ("b",)
    assert (decision.plan.epoch, decision.plan.replicas) == (8, 1)


def test_draining_a_replica_that_owns_nothing_keeps_the_epoch() -> None:
    """Draining a replica without partitions triggers no rebalance."""
    decision = decide(World({"a": {0: 10}}, starting=("b",)))
    assert decision.action is ScalingAction.DRAIN
    assert decision.plan is not None
    assert (decision.plan.draining, decision.plan.epoch) == (("b",), 7)


@pytest.mark.parametrize(
    "world",
    [
        replace(IDLE, state=GroupState.REBALANCING),
        replace(IDLE, unread={9: 1}),
        replace(IDLE, reads={**IDLE.reads, "x": {9: 1}}, foreign=("x",)),
    ],
)
def test_scale_down_needs_a_stable_group(world: World) -> None:
    """During a rebalance, with unowned partitions or foreign owners, no replica is drained."""
    assert decide(world).action is ScalingAction.HOLD


def test_scale_down_never_overfills_the_others() -> None:
    """A lower count that fits by sum but not by packing is not applied."""
    plan = replace(PLAN, replicas=3, heuristic="sticky")
    policy = replace(POLICY, placement=replace(POLICY.placement, heuristic="sticky"))
    world = World({"a": {0: 55}, "b": {1: 55}, "c": {2: 55}}, plan=plan)
    decision = decide(world, policy, DecisionMemory((TimestampedRecommendation(NOW - 50, 2),)))
    assert decision.metrics.desired_replicas == 2
    assert decision.action is ScalingAction.HOLD
    assert "cannot take over" in decision.format_line()


def test_replicas_above_the_limit_are_drained() -> None:
    """Replicas above the maximum are drained even if that overfills the others."""
    policy = replace(POLICY, max_replicas=1)
    decision = decide(BUSY, policy, DecisionMemory((TimestampedRecommendation(NOW - 50, 1),)))
    assert decision.action is ScalingAction.DRAIN


def test_a_draining_owner_is_never_stopped() -> None:
    """A draining replica that owns a partition keeps running."""
    decision = decide(DRAINING, memory=replace(SETTLED, last_change=NOW - 10))
    assert (decision.action, decision.replicas_to_stop) == (ScalingAction.HOLD, ())


def test_a_drained_replica_is_stopped_in_a_stable_group() -> None:
    """A drained replica is stopped once the group is stable and every partition has an owner."""
    assert decide(DRAINED).replicas_to_stop == ("c",)
    for world in (
        replace(DRAINED, state=GroupState.REBALANCING),
        replace(DRAINED, reads={**DRAINED.reads, "a": {0: 10}}, unread={2: 10}),
    ):
        assert decide(world).action is ScalingAction.HOLD


def test_a_stopped_replica_leaves_the_plan_in_the_same_epoch() -> None:
    """Once it is gone the plan drops it, in the same epoch."""
    decision = decide(replace(DRAINED, reads={"a": {0: 10, 2: 10}, "b": {1: 10}}))
    assert decision.action is ScalingAction.ADOPT
    assert decision.plan is not None
    assert (decision.plan.draining, decision.plan.epoch) == ((), 7)


def test_a_slow_drain_is_retried() -> None:
    """After `drain_retry` seconds the drain is published again in a new epoch."""
    decision = decide(DRAINING, memory=replace(SETTLED, last_change=NOW - 61))
    assert decision.action is ScalingAction.RETRY_DRAIN
    assert decision.plan is not None
    assert (decision.plan.epoch, decision.plan.draining) == (8, ("c",))


def test_rising_load_cancels_a_drain() -> None:
    """A higher desired count keeps the draining replica instead of starting one, even during the cooldown."""
    rising = replace(DRAINING, reads={"a": {0: 90}, "b": {1: 90}, "c": {2: 90}})
    decision = decide(rising, memory=replace(SETTLED, last_change=NOW - 1))
    assert (decision.action, decision.replicas_to_start) == (ScalingAction.CANCEL_DRAIN, 0)
    assert decision.plan is not None
    assert (decision.plan.draining, decision.plan.replicas, decision.plan.epoch) == ((), 3, 8)


def test_a_death_cancels_a_drain() -> None:
    """If another replica dies, the draining one stays and none is started."""
    decision = decide(replace(DRAINING, reads={"b": {1: 10}, "c": {2: 10}}, unread={0: 10}))
    assert (decision.action, decision.replicas_to_start) == (ScalingAction.CANCEL_DRAIN, 0)
    assert decision.plan is not None
    assert (decision.plan.draining, decision.plan.replicas) == ((), 2)


def test_deaths_during_a_drain_keep_the_minimum() -> None:
    """Both others died: the draining one stays, and the plan does not fall below `min` (seed 910685)."""
    world = replace(DRAINING, reads={"c": {2: 10}}, unread={0: 10, 1: 10})
    decision = decide(world, policy=replace(POLICY, min_replicas=2))
    assert decision.action is ScalingAction.CANCEL_DRAIN
    assert decision.plan is not None
    assert (decision.plan.draining, decision.plan.replicas) == ((), 2)


def test_dead_replicas_are_replaced_at_once() -> None:
    """A missing replica is started without windows or cooldown, also with unknown write rates."""
    dead = World({"a": {0: None}}, unread={1: None})
    decision = decide(dead, memory=DecisionMemory(last_change=NOW - 1))
    assert (decision.action, decision.replicas_to_start, decision.plan) == (ScalingAction.REPLACE, 1, None)


def test_replicas_that_keep_dying_are_replaced_with_growing_delays() -> None:
    """The first replacement is immediate, then the delay doubles; old replacements no longer count."""
    dead = World({"a": {0: 10}}, unread={1: 10})
    for ages, action in (
        ((4,), ScalingAction.HOLD),
        ((6,), ScalingAction.REPLACE),
        ((30, 9), ScalingAction.HOLD),
        ((30, 11), ScalingAction.REPLACE),
        ((400, 310), ScalingAction.REPLACE),
    ):
        memory = replace(SETTLED, replacements=tuple(NOW - age for age in ages))
        assert decide(dead, memory=memory).action is action


def test_surplus_replicas_are_adopted() -> None:
    """Replicas started by others become part of the plan, in the same epoch."""
    decision = decide(World({"a": {0: 90}, "b": {1: 90}, "c": {2: 90}}))
    assert decision.action is ScalingAction.ADOPT
    assert decision.plan is not None
    assert (decision.plan.replicas, decision.plan.epoch) == (3, 7)


def test_a_restart_replaces_by_surge() -> None:
    """An extra replica joins, then the old one is drained; the planned count stays."""
    requested = replace(EVEN, restart=("a", "b"))
    surge = decide(requested)
    assert (surge.action, surge.replicas_to_start, surge.plan) == (ScalingAction.SURGE, 1, None)
    assert decide(replace(requested, starting=("c",))).action is ScalingAction.HOLD
    drain = decide(replace(requested, reads={**EVEN.reads, "c": {}}))
    assert drain.action is ScalingAction.DRAIN
    assert drain.plan is not None
    assert (drain.plan.draining, drain.plan.replicas) == (("a",), 2)


TOO_MANY = World({"a": {0: 10, 1: 9}, "b": {2: 5}, "c": {3: 20}}, plan=replace(PLAN, replicas=3))


def test_a_scale_down_goes_before_a_restart() -> None:
    """Fewer desired than planned: a replica with a pending restart is drained, and no extra one starts."""
    assert decide(TOO_MANY).plan is not None
    assert decide(TOO_MANY).plan.draining == ("b",)  # type: ignore[union-attr]  # the cheapest
    decision = decide(replace(TOO_MANY, restart=("a", "c")))
    assert (decision.action, decision.replicas_to_start) == (ScalingAction.DRAIN, 0)
    assert decision.plan is not None
    assert (decision.plan.draining, decision.plan.replicas) == (("a",), 2)
    waits = decide(replace(TOO_MANY, restart=("a",)), memory=replace(SETTLED, last_change=NOW - 1))
    assert waits.action is ScalingAction.HOLD
    assert "cooldown for another 29 s" in waits.format_line()


@pytest.mark.parametrize(
    ("world", "policy"),
    [
        (TOO_MANY, replace(POLICY, paused_directions=frozenset({Direction.DOWN}))),
        (TOO_MANY, replace(POLICY, scale_down=ScalingRules(select_policy=SelectPolicy.DISABLED))),
    ],
)
def test_a_restart_does_not_wait_for_a_scale_down_that_never_comes(
    world: World, policy: AutoscalingPolicy
) -> None:
    """Where scale-down is paused or disabled, the extra replica starts."""
    decision = decide(replace(world, restart=("a",)), policy)
    assert decision.metrics.desired_replicas < 3
    assert decision.action is ScalingAction.SURGE


def test_a_surge_that_keeps_dying_is_started_with_growing_delays() -> None:
    """In ten iterations, one second apart, a replica that dies at once is started twice."""
    seen, memory = replace(EVEN, restart=("a", "b")).seen(), SETTLED
    decisions: list[ScalingDecision] = []
    for second in range(10):
        decision, memory = make_decision(seen, POLICY, memory, NOW + second, "g")
        memory = record_execution(decision, seen, memory, NOW + second)
        decisions.append(decision)
    assert [n for n, v in enumerate(decisions) if v.action is ScalingAction.SURGE] == [0, 5]
    assert "check the logs" in decisions[1].format_line()


def test_a_successful_restart_is_not_delayed() -> None:
    """Once an old replica is stopped, the next surge starts without backoff."""
    memory = replace(SETTLED, replacements=(NOW - 3, NOW - 2))
    seen = replace(DRAINED, restart=("b", "c")).seen()
    decision, memory = make_decision(seen, POLICY, memory, NOW, "g")
    assert decision.action is ScalingAction.STOP
    memory = record_execution(decision, seen, memory, NOW)
    assert decide(replace(EVEN, restart=("b",)), memory=memory).action is ScalingAction.SURGE


OVERFULL = World({"a": {0: 50, 1: 50, 2: 20}, "b": {3: 30}})


def test_an_overfull_consumer_gets_a_better_placement() -> None:
    """With the right count but an overfilled consumer, a new epoch follows after the cooldown."""
    decision = decide(OVERFULL)
    assert (decision.action, decision.replicas_to_start) == (ScalingAction.PLACE, 0)
    assert decision.plan is not None
    assert (decision.plan.epoch, decision.plan.replicas) == (8, 2)
    assert decide(OVERFULL, memory=replace(SETTLED, last_change=NOW - 1)).action is ScalingAction.HOLD


def test_a_placement_is_not_requested_twice() -> None:
    """If the leader kept the placement on request, the request is not repeated for a while."""
    requested = record_execution(decide(OVERFULL), OVERFULL.seen(), SETTLED, NOW - 40)
    assert decide(OVERFULL, memory=requested).action is ScalingAction.HOLD
    assert decide(OVERFULL, memory=replace(requested, last_change=NOW - 61)).action is ScalingAction.PLACE


def test_a_partition_larger_than_a_consumer_moves_nothing() -> None:
    """No placement can relieve it, so none is requested."""
    world = World({"a": {0: 300}, "b": {1: 60}})
    decision = decide(world, replace(POLICY, max_replicas=2))
    assert decision.action is ScalingAction.HOLD
    assert "fullest consumer" not in decision.format_line()


def test_an_advisory_sidecar_records_the_observed_count() -> None:
    """With an advisory target the observed count is recorded and no replica is replaced."""
    policy = replace(POLICY, advisory=True)
    for reads in ({"a": {0: 10.0}}, {"a": {0: 10.0}, "b": {1: 10.0}, "c": {2: 10.0}}):
        decision = decide(World(dict(reads)), policy)
        assert decision.action is ScalingAction.ADOPT
        assert decision.plan is not None
        assert decision.plan.replicas == len(reads)


@pytest.mark.parametrize("advisory", [True, False])
def test_advice_holds_no_placement_up(advisory: bool) -> None:  # noqa: FBT001 - a case of the test
    """Where nobody scales the group down, its overfilled consumer gets a better placement all the same."""
    world = World({"a": {0: 50, 1: 60}, "b": {2: 10}, "c": {}}, replace(PLAN, replicas=3))
    decision = decide(world, replace(POLICY, advisory=advisory))
    assert decision.action is (ScalingAction.PLACE if advisory else ScalingAction.DRAIN)
    assert decision.plan is not None
    assert decision.plan.replicas == (3 if advisory else 2)


def test_an_unsteered_group_gets_no_placement_and_no_drain() -> None:
    """No consumer would follow them; a scale-up helps by the clients' own assignor."""
    for world, what in ((OVERFULL, "the fullest consumer is at 120%"), (IDLE, "1 desired")):
        decision = decide(replace(world.seen(), is_steered=False))
        assert decision.action is ScalingAction.HOLD
        assert decision.reasons[0].startswith(what)
        assert "unsteered" in decision.reasons[1]
    assert decide(replace(BUSY.seen(), is_steered=False)).action is ScalingAction.SCALE_UP


def test_unknown_figures_are_left_out_of_the_log() -> None:
    """The first lines of a new group are no row of question marks."""
    line = decide(World({}, plan=None)).format_line()
    assert line == "announce: first plan of this group, with 1 replica (0 running; load unknown; plan 1)"


def test_a_clock_set_back_does_not_freeze() -> None:
    """Recommendations and changes from the future expire."""
    memory = DecisionMemory((TimestampedRecommendation(NOW + 9e6, 6),), last_change=NOW + 9e6)
    assert make_decision(IDLE.seen(), POLICY, memory, NOW)[1].recommendations[0].time <= NOW
    assert memory.seconds_since_change(NOW) == 0.0


def test_the_log_line_has_figures_and_reasons() -> None:
    """One line has the action, the reason, counts, load and epoch."""
    line = decide(BUSY).format_line()
    assert "\n" not in line
    for part in ("scale-up: 2 -> 5", "required 300 B/s", "2 running", "plan 7: R 1.80, 3 moves, fullest 60%"):
        assert part in line
