"""A sidecar that does not lead, and one that stops leading on the way."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from ticking import Ticking

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.values import GroupPlan, PartitionSpeed, WriteSpeeds
from trimtab.sidecar.control_loop import Loop, Parts
from trimtab.sidecar.decision.decision import Action
from trimtab.sidecar.errors import BadSetting, ScalingWaits
from trimtab.sidecar.measurement.group_monitor import Measurement
from trimtab.sidecar.measurement.observation import Asked, GroupState, GroupView, Outside, Reader
from trimtab.sidecar.reporting.iteration_report import NOT_DONE, Report
from trimtab.sidecar.settings.settings import Settings, load
from trimtab.sidecar.targets.in_memory import Memory

PARTITION = TopicPartition("t", 0)


@dataclass
class Elected:
    """Leads as a test says; `steps` is how many questions are still answered with yes."""

    steps: float = 0.0

    def leads(self) -> bool:
        self.steps -= 1
        return self.steps >= 0

    def leader(self) -> str:
        return "other"


@dataclass
class World:
    """A group without members, its topics, and what was published."""

    published: list[GroupPlan] = field(default_factory=list)
    read: int = 0
    reports: list[Report] = field(default_factory=list)

    def measure(self) -> Measurement:
        return Measurement({PARTITION: PartitionSpeed(bytes_per_s=250.0)}, self.group(), {}, ())

    def group(self) -> GroupView:
        return GroupView(GroupState.STABLE, (Reader("id", "worker-1", frozenset({PARTITION})),))

    def plan(self) -> GroupPlan | None:
        self.read += 1
        return self.published[-1] if self.published else None

    def publish(self, values: Iterable[GroupPlan | WriteSpeeds]) -> None:
        self.published += [v for v in values if isinstance(v, GroupPlan)]


def settings(**more: object) -> Settings:
    values = {"bootstrap": "b:1", "group": "g", "capacity": 100, "target": "kubernetes"}
    return load(None, {**values, "workload": "deployment/lake", **more})


def loop(world: World, elected: Elected, target: Memory, outside: Outside | None = None) -> Loop:
    parts = Parts(
        world,
        world,
        target,
        (world.reports.append,),
        outside=lambda: outside or Outside(),
        leadership=elected,
    )
    return Loop(settings(), parts, Ticking())


def test_who_does_not_lead_changes_nothing() -> None:
    """It measures, says who leads, and neither reads the plan nor publishes nor starts anything."""
    world, target = World(), Memory()
    verdict = loop(world, Elected(), target).turn()
    assert verdict.action is Action.HOLD
    assert verdict.reasons == ("standing by: other leads",)
    assert (world.published, world.read, target.replicas()) == ([], 0, ())
    assert world.reports[0].reachable


def test_who_takes_over_reads_the_plan_first() -> None:
    """What the other one published meanwhile is what it goes on from."""
    world, elected, target = World(), Elected(float("inf")), Memory()
    one = loop(world, elected, target)
    one.turn()
    assert world.published[-1].epoch == 1
    elected.steps = 0
    one.turn()
    target.add(3)
    world.published.append(GroupPlan("g", 7, 1.7e9, 3, "steady", 100.0, 0.9))
    elected.steps = float("inf")
    one.turn()
    assert [plan.epoch for plan in world.published][-1] == 7


def test_who_stops_leading_on_the_way_stops_there() -> None:
    """A lease that ends during a turn ends it: nothing more is published or started."""
    world, target = World(), Memory()
    verdict = loop(world, Elected(1), target).turn()
    assert verdict.action is Action.ANNOUNCE
    assert verdict.reasons[-1].startswith(NOT_DONE)
    assert "lease" in verdict.reasons[-1]
    assert world.published == []


def test_a_standby_looks_often() -> None:
    """It turns every 2 s whatever the interval, so that it takes over quickly."""
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return len(waits) > 1

    loop(World(), Elected(), Memory()).run(wait)
    assert waits == [0.0, 2.0]


def test_what_the_target_refuses_is_said() -> None:
    """The verdict tells why it could not be carried out; the loop goes on."""

    class Waits(Memory):
        def add(self, count: int) -> tuple[str, ...]:
            raise ScalingWaits(f"{count} must wait")

    world = World()
    one = loop(world, Elected(float("inf")), Waits())
    one.turn()
    verdict = one.turn()
    assert verdict.action is Action.REPLACE
    assert verdict.reasons[-1] == f"{NOT_DONE}1 must wait"


def test_what_others_asked_is_seen() -> None:
    """A count that somebody set at the target is in the next verdict, and its trouble as well."""
    world, target = World(), Memory(lambda: 1.7e9)
    target.add(1)
    asked = Asked(2, "kubectl", 1.7e9 + 2_000, ours=False)
    one = loop(world, Elected(float("inf")), target, Outside(asked, trouble=("no image",)))
    one.turn()
    assert one.turn().action is Action.FOLLOW
    assert world.reports[-1].trouble == ("no image",)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"workload": None}, "target=kubernetes needs workload"),
        ({"workload": "lake"}, "workload"),
        ({"workload": "daemonset/lake"}, "workload"),
        ({"target": "none"}, "a workload is given, but target=none"),
        ({"foreign-scaling": "fight"}, "foreign-scaling"),
    ],
)
def test_contradictions_are_named(given: dict[str, object], said: str) -> None:
    """A workload that is missing, malformed or of no use is refused."""
    with pytest.raises(BadSetting, match=said):
        settings(**given)
