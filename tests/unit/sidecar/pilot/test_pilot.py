"""When a pilot sends heartbeats, and what it tells of them."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock
from uuid import UUID

import pytest

from support.ticking import Ticking
from trimtab.assignor.model import Load
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.plan_target import PlanTarget
from trimtab.common.kafka_protocol import apis
from trimtab.common.kafka_protocol.apis import Api
from trimtab.common.kafka_protocol.errors import (
    GroupDeniedError,
    GroupNotFoundError,
    NotCoordinatorError,
    TopicDeniedError,
    UnsupportedAssignorError,
)
from trimtab.sidecar.kafka.consumer_group import parse_group
from trimtab.sidecar.pilot import pilot
from trimtab.sidecar.pilot.membership import LEAVE_EPOCH
from trimtab.sidecar.pilot.pilot import (
    CARRY_TIMEOUT_S,
    HEARTBEAT_INTERVAL_S,
    IDLE_INTERVAL_S,
    PilotSession,
    PilotTask,
    PlanPilot,
)
from trimtab.sidecar.settings.settings import load_settings

TOPIC_ID = UUID(int=7)
GIVEN = {"bootstrap": "b:1", "group": "g", "capacity": 10}


def make_plan(epoch: int, *numbers: int) -> GroupPlan:
    target = PlanTarget(epoch, ("a", "b"), 0, {"t": numbers})
    return GroupPlan("g", epoch, 0.0, 2, "steady", 10.0, target=target)


class FakeGroup:
    """A coordinator with one group of two members, whose assignor does as the pilot's rack says or not."""

    def __init__(self) -> None:
        self.assignor = "trimtab"
        self.topic_id = TOPIC_ID
        self.targets = {"a": [0], "b": [1]}
        self.exists = True
        self.epoch = 5
        self.heartbeats: list[dict[str, Any]] = []
        self.failures: list[Exception] = []
        self.descriptions = 0
        self.ties = False  # whether a vote for the plugin ties with that of a member
        self.votes: set[str] = set()  # member ids
        self.installed: str | None = "uniform,range"  # assignors of the broker

    def close(self) -> None:
        """Nothing to close."""

    def ask(self, api: Api, fields: dict[str, Any]) -> Any:
        assert api is apis.METADATA
        partitions = [SimpleNamespace(partition_index=n) for n in range(2)]
        found = {"error_code": 0, "topic_id": self.topic_id, "partitions": partitions}
        return SimpleNamespace(topics=[SimpleNamespace(name=t["name"], **found) for t in fields["topics"]])

    def read_installed(self, _brokers: Any, _group: str) -> str | None:
        return self.installed

    def ask_coordinator(self, group: str, api: Api, fields: dict[str, Any]) -> Any:
        if api is apis.CONSUMER_GROUP_DESCRIBE:
            self.descriptions += 1
            return SimpleNamespace(groups=[self._build(group, 0 if self.exists else GroupNotFoundError.code)])
        assert (api, fields.pop("group_id")) == (apis.CONSUMER_GROUP_HEARTBEAT, group)
        if self.failures:
            raise self.failures.pop()
        self.heartbeats.append(fields)
        return SimpleNamespace(member_epoch=self._count_vote(fields))

    def _count_vote(self, fields: dict[str, Any]) -> int:
        """A member that names none keeps its vote; in a tie each heartbeat raises the epoch."""
        if fields["member_epoch"] == LEAVE_EPOCH:
            self.votes.discard(fields["member_id"])
            return LEAVE_EPOCH
        if fields["server_assignor"] is not None:
            self.votes.add(fields["member_id"])
        self.epoch += self.ties and bool(self.votes)
        return self.epoch

    def _build(self, group: str, code: int = 0) -> Any:
        members = [_build_member(name, numbers) for name, numbers in self.targets.items()]
        described = {"group_id": group, "group_state": "Stable", "assignor_name": self.assignor}
        return SimpleNamespace(error_code=code, error_message=None, members=members, **described)


def _build_member(name: str, numbers: list[int]) -> Any:
    topic = SimpleNamespace(topic_id=TOPIC_ID, topic_name="t", partitions=numbers)
    assigned = SimpleNamespace(topic_partitions=[topic])
    return SimpleNamespace(
        member_id=f"id-{name}",
        instance_id=None,
        rack_id=None,
        member_epoch=5,
        client_id=name,
        client_host="/127.0.0.1",
        subscribed_topic_names=["t"],
        subscribed_topic_regex=None,
        assignment=assigned,
        target_assignment=assigned,
    )


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> FakeGroup:
    group = FakeGroup()
    monkeypatch.setattr(pilot, "shorten_group_heartbeat", Mock(return_value=""))
    monkeypatch.setattr(pilot, "read_installed_assignors", group.read_installed)
    return group


def open_session(group: Any, clock: Ticking | None = None, **more: Any) -> PilotSession:
    return PilotSession(load_settings(None, {**GIVEN, **more}), clock or Ticking(), group)


def run(session: PilotSession, plan: GroupPlan, steps: int = 4) -> None:
    for _ in range(steps):
        session.step(PilotTask(plan, Load(), {}))


def list_racks(group: FakeGroup) -> list[str]:
    return [beat["rack_id"] for beat in group.heartbeats if "rack_id" in beat]


def test_a_plan_is_carried_out_once_the_brokers_target_is_the_plans(group: FakeGroup) -> None:
    """Until then the group is described again and again; afterwards a heartbeat is all it takes."""
    session, plan = open_session(group), make_plan(1, 2, 1)
    run(session, plan)
    assert not session.is_steering
    assert "gives 2 partitions to others" in session.describe(plan)
    group.targets = {"a": [1], "b": [0]}
    run(session, plan)
    assert session.is_steering
    described, sent = group.descriptions, len(list_racks(group))
    run(session, plan)
    assert (group.descriptions, len(list_racks(group))) == (described, sent)


def test_a_changed_epoch_makes_the_group_described_again(group: FakeGroup) -> None:
    """It rises when a member joins or leaves."""
    session, plan = open_session(group), make_plan(1, 1, 2)
    run(session, plan)
    described, racks = group.descriptions, len(list_racks(group))
    group.epoch += 1
    group.targets["c"] = []
    run(session, plan)
    assert group.descriptions > described
    assert len(list_racks(group)) > racks


def test_no_heartbeat_converts_a_classic_group(group: FakeGroup) -> None:
    """Neither does it without members, which may come with either protocol."""
    session, plan = open_session(group, protocol="consumer"), make_plan(1, 1, 2)
    group.exists = False
    run(session, plan)
    assert "no group of the new protocol" in session.describe(plan)
    group.exists, group.targets = True, {}
    run(session, plan)
    assert "no members" in session.describe(plan)
    assert group.heartbeats == []


def test_another_assignor_is_left_alone_unless_the_protocol_is_set(group: FakeGroup) -> None:
    """With `protocol: consumer` the pilot asks for the plugin by name."""
    group.assignor, plan = "uniform", make_plan(1, 1, 2)
    session = open_session(group)
    run(session, plan)
    assert "assigns by 'uniform'" in session.describe(plan)
    assert group.heartbeats == []
    run(open_session(group, protocol="consumer"), plan)
    assert group.heartbeats[0]["server_assignor"] == "trimtab"
    group.assignor, group.heartbeats = "trimtab", []
    run(open_session(group), plan)
    assert group.heartbeats[0]["server_assignor"] is None


@pytest.mark.parametrize("protocol", ["auto", "consumer"])
def test_the_plugin_may_be_called_uniform(group: FakeGroup, protocol: str) -> None:
    """For clients that ask for that name; the coordinator's settings tell, and nobody has to vote."""
    group.assignor, plan = "uniform", make_plan(1, 1, 2)
    group.installed = "io.trimtab.PlannedAssignor, io.trimtab.PlannedUniformAssignor"
    session = open_session(group, protocol=protocol)
    run(session, plan)
    assert session.is_steering
    assert {beat["server_assignor"] for beat in group.heartbeats} == {None}


def test_settings_that_may_not_be_read_are_named(group: FakeGroup) -> None:
    """The group may have the plugin under another name."""
    group.assignor, group.installed, plan = "uniform", None, make_plan(1, 1, 2)
    session = open_session(group)
    run(session, plan)
    assert "grant DescribeConfigs on the cluster" in session.describe(plan)
    assert group.heartbeats == []
    group.installed = "io.trimtab.PlannedUniformAssignor"
    run(session, plan)
    assert session.is_steering


def test_a_group_that_has_the_plugin_needs_no_vote(group: FakeGroup) -> None:
    """Whether by the brokers' order or by an earlier vote; without it the pilot asks."""
    session, plan = open_session(group, protocol="consumer"), make_plan(1, 1, 2)
    run(session, plan)
    assert group.votes == set()
    group.assignor = "uniform"
    group.epoch += 1
    run(session, plan)
    assert group.votes == {"trimtab-pilot-1"}


def test_a_tied_vote_is_taken_back(group: FakeGroup) -> None:
    """Otherwise the group would start one assignment after the other; the plan stays with the group."""
    group.assignor, group.ties = "uniform", True
    clock, plan = Ticking(), make_plan(1, 2, 1)
    session = open_session(group, clock, protocol="consumer")
    run(session, plan, steps=20)
    assert group.votes == set()
    epoch, racks = group.epoch, list_racks(group)
    run(session, plan, steps=20)
    assert group.epoch == epoch
    assert group.heartbeats[-1]["member_epoch"] == epoch
    clock.sleep(CARRY_TIMEOUT_S)
    run(session, plan)
    assert list_racks(group)[-1] > racks[-1]
    assert "by the assignor 'uniform', which members name" in session.describe(plan)


def test_many_joins_are_no_tie(group: FakeGroup) -> None:
    """Each raises the epoch, too."""
    group.assignor = "uniform"
    session, plan = open_session(group, protocol="consumer"), make_plan(1, 1, 2)
    for number in range(30):
        group.targets[f"c{number}"] = []
        group.epoch += 1
        run(session, plan, steps=1)
    assert group.votes == {"trimtab-pilot-1"}


def test_an_ignored_plan_is_sent_again(group: FakeGroup) -> None:
    """As a higher one, since that of another sidecar may be in force; less often if that does not help."""
    clock, plan = Ticking(), make_plan(1, 2, 1)
    session = open_session(group, clock)
    run(session, plan)
    assert session.step(PilotTask(plan, Load(), {})) == HEARTBEAT_INTERVAL_S
    (first,) = set(list_racks(group))
    clock.sleep(CARRY_TIMEOUT_S)
    run(session, plan)
    second = list_racks(group)[-1]
    assert second > first
    assert session.step(PilotTask(plan, Load(), {})) == IDLE_INTERVAL_S
    assert session.describe(plan) == "unsteered: the broker gives 2 partitions to others than plan 1 does"
    clock.sleep(CARRY_TIMEOUT_S)
    run(session, plan)
    assert list_racks(group)[-1] == second
    group.targets = {"a": [1], "b": [0]}
    run(session, plan)
    assert session.is_steering


def test_a_sidecar_that_restarts_within_a_second_sends_a_higher_plan(group: FakeGroup) -> None:
    """However many texts the one before has sent: the plugin carries out the highest."""
    clock, plan = Ticking(), make_plan(1, 1, 2)
    before = open_session(group, clock)
    for number in range(8, 12):
        run(before, plan)
        group.topic_id = UUID(int=number)
        group.epoch += 1
    clock.sleep(0.3)
    last = list_racks(group)[-1]
    run(open_session(group, clock), plan)
    assert list_racks(group)[-1].split(":")[1] > last.split(":")[1]


def test_a_recreated_topic_is_carried_by_its_new_id(group: FakeGroup) -> None:
    """The plan is the same, but the broker knows the topic's partitions by its id."""
    session, plan = open_session(group), make_plan(1, 1, 2)
    run(session, plan)
    group.topic_id = UUID(int=8)
    group.epoch += 1
    run(session, plan)
    assert len(set(list_racks(group))) == 2


def test_members_are_named_by_their_replicas_address(group: FakeGroup) -> None:
    """As in the plan; two members of one address keep their own names."""
    described = group.ask_coordinator("g", apis.CONSUMER_GROUP_DESCRIBE, {}).groups[0]
    described.members[0].client_host = "/10.0.0.1"
    named = parse_group(described, {"10.0.0.1": "pod-1", "127.0.0.1": "node"})
    assert [(m.instance, m.host) for m in named.members] == [("pod-1", "10.0.0.1"), ("node", "127.0.0.1")]
    described.members[0].client_host = "/127.0.0.1"
    assert [m.instance for m in parse_group(described, {"127.0.0.1": "node"}).members] == ["a", "b"]


def test_after_an_error_the_pilot_joins_again_with_its_plan(group: FakeGroup) -> None:
    """As after the coordinator has moved, or has fenced the member."""
    session, plan = open_session(group), make_plan(1, 1, 2)
    run(session, plan)
    group.failures, group.heartbeats = [NotCoordinatorError()], []
    with pytest.raises(NotCoordinatorError):
        run(session, plan)
    run(session, plan)
    assert group.heartbeats[0]["member_epoch"] == 0
    assert len(set(list_racks(group))) == 1
    first, second = (beat["subscribed_topic_names"] for beat in group.heartbeats[:2])
    assert first != second


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (UnsupportedAssignorError(), "install the broker plugin"),
        (GroupDeniedError(), "grant Read on group g"),
        (TopicDeniedError(), "grant Describe on topics trimtab.plans.pilot-1"),
        (AttributeError("a bug of ours"), "a bug of ours"),
    ],
)
def test_an_error_says_what_is_missing(
    group: FakeGroup, eventually: Any, monkeypatch: pytest.MonkeyPatch, error: Exception, text: str
) -> None:
    """The sidecar goes on, and tries again."""
    monkeypatch.setattr(pilot, "connect_brokers", Mock(return_value=group))
    monkeypatch.setattr(group, "ask_coordinator", Mock(side_effect=error))
    carrier = PlanPilot(load_settings(None, {**GIVEN, "protocol": "consumer"}), Ticking(), lambda: "uniform")
    plan = make_plan(1, 1, 2)
    eventually(lambda: text in str(getattr(carrier.carry_out(plan, {}), "errors", "")))
    carrier.close()


def test_a_classic_group_has_no_carrier() -> None:
    """Nothing is started for it, and nothing reported."""
    carrier = PlanPilot(load_settings(None, GIVEN), Ticking(), lambda: None)
    assert carrier.carry_out(make_plan(1, 1, 2), {}) is None
    assert carrier.stand_by() is None
    carrier.close()
