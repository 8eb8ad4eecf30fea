"""The placement that a pilot asks the broker for."""

from dataclasses import replace

from trimtab.assignor.model import Load, PlacementPolicy, TopicPartition
from trimtab.assignor.rebalance.leader import LeaderView
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.plan_target import PlanTarget
from trimtab.sidecar.model.observation import GroupState, ObservedGroup, ObservedMember
from trimtab.sidecar.pilot.carried_target import CarriedTarget, build_carried_target, has_lost_consumer

TOPIC = "t"
POLICY = PlacementPolicy("steady", 10.0)
PARTITIONS = {TOPIC: range(6)}
WEIGHTS = {TopicPartition(TOPIC, n): 1.0 for n in range(6)}


def make_group(**owned: list[int]) -> ObservedGroup:
    """A group of named consumers, whose member ids begin with "id-", with their target partitions."""
    members = [
        ObservedMember(
            f"id-{name}",
            name,
            topics=frozenset({TOPIC}),
            target_partitions=frozenset(TopicPartition(TOPIC, n) for n in numbers),
        )
        for name, numbers in owned.items()
    ]
    return ObservedGroup(GroupState.STABLE, tuple(members), assignor="trimtab")


def make_plan(consumers: tuple[str, ...], numbers: list[int], places: int = 0, **values: object) -> GroupPlan:
    target = PlanTarget(1, consumers, places, {TOPIC: tuple(numbers)})
    plan = GroupPlan("g", 7, 0.0, target.size, "steady", 10.0, target=target)
    return replace(plan, **values)  # type: ignore[arg-type]


def carry(
    group: ObservedGroup, plan: GroupPlan, last: CarriedTarget | None = None, **view: bool
) -> CarriedTarget:
    return build_carried_target(group, PARTITIONS, LeaderView(Load(WEIGHTS), plan, **view), POLICY, last)  # type: ignore[arg-type]


def list_slots(target: CarriedTarget) -> list[str]:
    """The member id, or "+1" and so on for a free slot, of each partition."""
    names = (*target.target.consumers, *(f"+{n + 1}" for n in range(target.target.places)))
    return [names[number - 1] for number in target.target.partitions[TOPIC]]


def test_a_plan_names_member_ids() -> None:
    """Each partition goes to the member of the planned name, as a leader would assign it."""
    plan = make_plan(("a", "b"), [1, 2, 1, 2, 1, 2])
    target = carry(make_group(a=[0, 1, 2], b=[3, 4, 5]), plan)
    assert list_slots(target) == ["id-a", "id-b"] * 3
    assert target.expected[TopicPartition(TOPIC, 1)] == "id-b"


def test_partitions_of_a_place_stay_until_somebody_joins() -> None:
    """They are reserved in a free slot, and expected where they are."""
    plan = make_plan(("a", "b"), [1, 1, 2, 2, 3, 3], places=1)
    target = carry(make_group(a=[0, 1, 4], b=[2, 3, 5]), plan)
    assert list_slots(target) == ["id-a", "id-a", "id-b", "id-b", "+1", "+1"]
    assert target.expected[TopicPartition(TOPIC, 4)] == "id-a"


def test_a_replica_that_restarts_gets_its_partitions_back() -> None:
    """While it is away they stay where the plugin put them, reserved; it returns with another id."""
    plan = make_plan(("a", "b"), [1, 1, 1, 2, 2, 2])
    away = make_group(a=[0, 1, 2, 3, 4, 5])
    assert has_lost_consumer(plan, away)
    target = carry(away, plan, members_overdue=True)
    assert list_slots(target) == ["id-a"] * 3 + ["+1"] * 3
    assert set(target.expected.values()) == {"id-a"}
    back = make_group(a=[0, 1, 2], b=[3, 4, 5])
    assert not has_lost_consumer(plan, back)
    assert list_slots(carry(back, plan, target)) == ["id-a"] * 3 + ["id-b"] * 3


def test_a_member_that_is_gone_overfills_nobody() -> None:
    """What the plugin gave a full member moves on to one with room."""
    plan = make_plan(("a", "b", "c"), [1, 1, 1, 1, 2, 3], capacity=4.0)
    target = carry(make_group(a=[0, 1, 2, 3, 5], b=[4]), plan, members_overdue=True)
    assert list_slots(target) == ["id-a"] * 4 + ["id-b", "id-b"]


def test_a_draining_member_gets_nothing() -> None:
    """It stays known, so that the plugin does not take it for one that has just joined."""
    plan = make_plan(("a",), [1] * 6, draining=("b",))
    target = carry(make_group(a=[0, 1, 2], b=[3, 4, 5]), plan)
    assert list_slots(target) == ["id-a"] * 6
    assert target.target.consumers == ("id-a", "id-b")


def test_one_cause_has_one_decision() -> None:
    """Changed loads and the leave of a drained member decide nothing anew; a join does."""
    plan = make_plan(("a",), [1] * 6, draining=("b",))
    first = carry(make_group(a=[0, 1, 2], b=[3, 4, 5]), plan)
    assert carry(make_group(a=[0, 1, 2, 3, 4, 5]), plan, first) is first
    assert carry(make_group(a=[0, 1, 2], b=[3, 4], c=[5]), plan, first) is not first


def test_differences_name_the_partitions_that_the_broker_gives_to_others() -> None:
    """Until there are none the plan is on its way."""
    plan = make_plan(("a", "b"), [1, 1, 1, 2, 2, 2])
    group = make_group(a=[0, 1, 2, 3], b=[4, 5])
    target = carry(group, plan)
    assert target.list_differences(group) == [TopicPartition(TOPIC, 3)]
    assert target.list_differences(make_group(a=[0, 1, 2], b=[3, 4, 5])) == []
