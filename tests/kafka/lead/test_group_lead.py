"""The sidecar leads classic groups of unmodified clients, on a real broker."""

import os
import signal
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient, NewTopic

from support.foreign_clients import (
    KafkaJsClient,
    KafkaPythonClient,
    StickyClient,
    StreamsClient,
    create_librdkafka_client,
)
from support.older_broker import read_version
from trimtab.assignor.model import Load, PlacementPolicy
from trimtab.cli.broker.embedded_broker import EmbeddedBroker
from trimtab.common.clock import SystemClock
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.plan_target import PlanTarget
from trimtab.sidecar.group_lead import group_requests
from trimtab.sidecar.group_lead.group_lead import GroupLead
from trimtab.sidecar.group_lead.group_requests import GroupRequests
from trimtab.sidecar.group_lead.lead_member import LeadMember, LeadTask
from trimtab.sidecar.group_lead.succession import list_members_ahead
from trimtab.sidecar.settings.options import LEAD_ASSIGNORS
from trimtab.sidecar.settings.settings import load_settings

pytestmark = pytest.mark.broker

LIBRDKAFKA = create_librdkafka_client()
EAGER = create_librdkafka_client("range")
FURTHER_EAGER = {
    "roundrobin": create_librdkafka_client("roundrobin"),
    "sticky": StickyClient,
    "RoundRobinAssigner": KafkaJsClient,
}
"""Clients by the assignor that they name."""
PARTITIONS = 6
ROUNDS_OF_RETURN = 0 if read_version() >= (3, 2) else 1
"""Rebalances when the lead returns: none since KIP-814."""
Owners = dict[str, tuple[int, ...]]


@dataclass
class Leads:
    """Starts sidecars' members of one group."""

    group: str
    settings: dict[str, Any]
    running: list[GroupLead]

    def start(self, **more: Any) -> GroupLead:
        settings = load_settings(None, {**self.settings, **more})
        self.running.append(GroupLead(settings, SystemClock()))
        return self.running[-1]

    def plan(
        self, epoch: int, names: tuple[str, ...], *consumers: int, draining: tuple[str, ...] = ()
    ) -> GroupPlan:
        """Return a plan with the number of each partition's consumer among the names."""
        target = PlanTarget(epoch, names, 0, {self.settings["topics"]: consumers})
        return GroupPlan(
            self.group,
            epoch,
            0.0,
            len(names),
            "mbf",
            1e6,
            draining=draining,
            target=target,
            reasons=("a test",),
        )


@pytest.fixture
def leads(bootstrap: str, group: str, topic: Callable[..., str]) -> Iterator[Leads]:
    settings = {"bootstrap": bootstrap, "group": group, "topics": topic(partitions=PARTITIONS)}
    more = {"capacity": 1e6, "lead": True, "lead-session-timeout": 6}
    leads = Leads(group, {**settings, **more}, [])
    yield leads
    for lead in leads.running:
        lead.close()


def steers(lead: GroupLead, plan: GroupPlan | None = None) -> Callable[[], bool]:
    """Return a condition: the sidecar leads the group, and has been handed this plan."""
    return lambda: lead.carry_out(plan, {}).is_steering


def find_generation(lead: GroupLead) -> int:
    """Return the generation of the group that the sidecar's member is in."""
    assert lead._member.joined is not None
    return lead._member.joined.generation


def _own(expected: Owners, *workers: Any) -> bool:
    return owners(*workers) == expected


def owners(*workers: Any) -> Owners:
    return {w.name: tuple(sorted(p.partition for p in set(w.owned))) for w in workers}


@pytest.fixture
def is_settled(admin: AdminClient, group: str) -> Callable[..., bool]:
    """Return whether all have these partitions and no rebalance is to come.

    A client that was made to leave believes for a while that it is still a member, and owns what it
    owned. So the coordinator is asked, too: while a member is away or a partition withheld, it has
    another assignment. What it calls stable the lead has begun to fetch.
    """

    def check(lead: GroupLead, expected: Owners, *workers: Any) -> bool:
        described = admin.describe_consumer_groups([group])[group].result(30)
        members = [m for m in described.members if m.client_id in expected]
        assigned = {
            m.client_id: tuple(sorted(p.partition for p in m.assignment.topic_partitions)) for m in members
        }
        is_stable = described.state == ConsumerGroupState.STABLE and assigned == expected
        return is_stable and owners(*workers) == expected and lead._member.joined is not None

    return check


@pytest.mark.parametrize("kinds", [(LIBRDKAFKA, LIBRDKAFKA), (LIBRDKAFKA, KafkaPythonClient)])
def test_unmodified_clients_carry_out_a_plan(
    leads: Leads, start: Any, log: Any, feed: Any, eventually: Any, kinds: tuple[Any, ...]
) -> None:
    """Each partition goes where the plan says; what the next one does not move keeps its reader."""
    lead = leads.start()
    eventually(steers(lead))
    topic = leads.settings["topics"]
    a, b = (start(name, [topic], client=kind) for name, kind in zip("ab", kinds, strict=True))
    first = leads.plan(1, ("a", "b"), 1, 1, 1, 2, 2, 2)
    eventually(lambda: steers(lead, first)() and owners(a, b) == {"a": (0, 1, 2), "b": (3, 4, 5)})
    before = len(log.tenures)
    second = leads.plan(2, ("a", "b"), 1, 1, 2, 2, 2, 1)
    eventually(lambda: steers(lead, second)() and owners(a, b) == {"a": (0, 1, 5), "b": (2, 3, 4)})
    assert {t.partition.partition for t in log.tenures[before:]} == {2, 5}
    feed.write(topic, PARTITIONS, 60)
    eventually(lambda: sum(map(len, log.offsets().values())) == 60)


@pytest.mark.parametrize(
    ("assignor", "client"),
    [("range", EAGER), *(pytest.param(*one, marks=pytest.mark.slow) for one in FURTHER_EAGER.items())],
)
def test_an_eager_group_follows_in_one_round(
    leads: Leads, start: Any, eventually: Any, assignor: str, client: Any
) -> None:
    """Clients with an eager assignor, which tell nothing of what they read, are led as well."""
    lead = leads.start(**({} if assignor in LEAD_ASSIGNORS else {"lead-assignors": assignor}))
    eventually(steers(lead))
    a, b = (start(name, [leads.settings["topics"]], client=client) for name in "ab")
    for epoch, consumers in enumerate([(1, 1, 1, 2, 2, 2), (1, 2, 1, 2, 1, 2)], 1):
        plan = leads.plan(epoch, ("a", "b"), *consumers)
        expected = {n: tuple(p for p, c in enumerate(consumers) if c == i) for i, n in enumerate("ab", 1)}
        eventually(steers(lead, plan))
        eventually(partial(_own, expected, a, b))


def test_a_slow_member_is_waited_for(
    leads: Leads, start: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sidecar asks again meanwhile whether the coordinator is there; that starts no other round."""
    monkeypatch.setattr(group_requests, "JOIN_TIMEOUT_S", 1.0)
    lead, topic, names, told = leads.start(), leads.settings["topics"], ("a", "b"), set[str]()
    eventually(steers(lead))
    a, b = (start(name, [topic], client=EAGER) for name in names)
    first = leads.plan(1, names, 1, 1, 1, 1, 2, 2)  # uneven: without the plan they would get three each
    eventually(lambda: steers(lead, first)() and owners(a, b) == {"a": (0, 1, 2, 3), "b": (4, 5)})
    eventually(lambda: lead._member.joined is not None)  # the others may have got their assignments first
    generation, a.revocation_s = find_generation(lead), 3.0
    second = leads.plan(2, names, 2, 2, 2, 2, 1, 1)

    def follow() -> bool:
        told.add(lead.carry_out(second, {}).text)
        return owners(a, b) == {"a": (4, 5), "b": (0, 1, 2, 3)}

    eventually(follow)
    a.revocation_s = 0.0
    eventually(lambda: lead._member.joined is not None)
    assert told == {"leads the group"}
    assert find_generation(lead) == generation + 1


def test_a_restarted_sidecar_keeps_the_lead(
    leads: Leads, start: Any, log: Any, eventually: Any, is_settled: Any
) -> None:
    """No rebalance while it is away, nor when it returns; then the group follows its next plan."""
    topic, names = leads.settings["topics"], ("a", "b")
    lead = leads.start()
    eventually(steers(lead))
    a, b = (start(name, [topic], client=LIBRDKAFKA) for name in names)
    first = leads.plan(1, names, 1, 1, 1, 2, 2, 2)
    placed = {"a": (0, 1, 2), "b": (3, 4, 5)}
    eventually(lambda: steers(lead, first)() and is_settled(lead, placed, a, b))
    before, assigns = len(log.tenures), a.assigns + b.assigns
    lead.close()
    again = leads.start()
    eventually(steers(again, first))
    assert find_generation(again) == find_generation(lead) + ROUNDS_OF_RETURN
    second = leads.plan(2, names, 1, 1, 1, 1, 2, 2)
    eventually(lambda: steers(again, second)() and owners(a, b) == {"a": (0, 1, 2, 3), "b": (4, 5)})
    assert [t.partition.partition for t in log.tenures[before:]] == [3]
    assert a.assigns + b.assigns > assigns


def test_a_second_sidecar_takes_the_lead_over(leads: Leads, start: Any, eventually: Any) -> None:
    """Whoever manages the group leads it; the other one is told so."""
    topic, names = leads.settings["topics"], ("a", "b")
    one, two = leads.start(), leads.start()
    eventually(steers(one))
    a, b = (start(name, [topic], client=LIBRDKAFKA) for name in names)
    first = leads.plan(1, names, 1, 1, 1, 2, 2, 2)
    eventually(lambda: steers(one, first)() and owners(a, b) == {"a": (0, 1, 2), "b": (3, 4, 5)})
    assert not two.stand_by().is_steering
    eventually(steers(two, first))
    eventually(lambda: "another sidecar" in one.carry_out(first, {}).text)
    one.stand_by()
    second = leads.plan(2, names, 1, 1, 1, 1, 2, 2)
    eventually(lambda: steers(two, second)() and owners(a, b) == {"a": (0, 1, 2, 3), "b": (4, 5)})


def test_without_the_sidecar_another_member_leads(leads: Leads, start: Any, eventually: Any) -> None:
    """A group whose sidecar is gone for good works on after the session timeout, by its own assignor."""
    topic, names = leads.settings["topics"], ("a", "b")
    lead = leads.start()
    eventually(steers(lead))
    a, b = (start(name, [topic], client=LIBRDKAFKA) for name in names)
    plan = leads.plan(1, names, 1, 1, 1, 1, 1, 1)
    eventually(lambda: steers(lead, plan)() and owners(a, b) == {"a": (0, 1, 2, 3, 4, 5), "b": ()})
    lead.close()
    eventually(lambda: [len(w.owned) for w in (a, b)] == [3, 3])


def test_a_running_group_is_led_once_its_leaders_have_left(leads: Leads, start: Any, eventually: Any) -> None:
    """Until then the sidecar says who leads; few of the others are elected before it."""
    topic = leads.settings["topics"]
    workers = {name: start(name, [topic], client=LIBRDKAFKA) for name in "abcde"}
    eventually(partial(_have_partitions, workers.values(), PARTITIONS))
    lead = leads.start()
    eventually(lambda: "unsteered" in lead.carry_out(None, {}).text)
    assert "cooperative-sticky" in lead.carry_out(None, {}).text
    while not (status := lead.carry_out(None, {})).is_steering:
        leader = next(name for name in workers if f"member {name}-" in status.text)
        workers.pop(leader).stop()
        eventually(lambda text=f"member {leader}-": text not in lead.carry_out(None, {}).text)
    names = tuple(sorted(workers))
    plan = leads.plan(1, names, 1, 1, 1, 1, 1, 1)
    eventually(lambda: steers(lead, plan)() and len(workers[names[0]].owned) == PARTITIONS)


def test_take_lead_makes_the_leader_leave_once(leads: Leads, start: Any, log: Any, eventually: Any) -> None:
    """The leader, static or not, joins again by itself, and the group follows the sidecar's plan."""
    # the client that is made to leave learns of it by its next heartbeat, as after a lost session
    log.owner_conflicts = list
    topic, names = leads.settings["topics"], ("b", "static-a")
    a = start("a", [topic], client=LIBRDKAFKA, group_instance_id="static-a")
    eventually(lambda: len(a.owned) == PARTITIONS)
    b = start("b", [topic], client=LIBRDKAFKA)
    eventually(lambda: [len(w.owned) for w in (a, b)] == [3, 3])
    lead = leads.start(**{"take-lead": True})
    plan = leads.plan(1, names, 1, 2, 1, 2, 1, 2)
    eventually(lambda: steers(lead, plan)() and owners(a, b) == {"a": (1, 3, 5), "b": (0, 2, 4)})


@pytest.mark.parametrize("client", [LIBRDKAFKA, EAGER], ids=["cooperative", "eager"])
def test_a_lead_that_is_taken_moves_nothing(
    leads: Leads, start: Any, log: Any, eventually: Any, is_settled: Any, client: Any
) -> None:
    """Before the write rates are known its plan has no target: each client keeps what it had."""
    # the client that is made to leave learns of it by its next heartbeat, as after a lost session
    log.owner_conflicts = list
    workers = [start(name, [leads.settings["topics"]], client=client) for name in "abc"]
    eventually(lambda: [len(w.owned) for w in workers] == [2, 2, 2])
    found = owners(*workers)
    lead = leads.start(**{"take-lead": True})
    plan = replace(leads.plan(1, ("a", "b", "c"), 1, 1, 1, 1, 1, 1), target=None)
    eventually(steers(lead, plan))
    eventually(partial(is_settled, lead, found, *workers))
    lead.close()
    again = leads.start()
    eventually(steers(again, plan))
    assert find_generation(again) == find_generation(lead) + ROUNDS_OF_RETURN


def test_a_group_of_kafka_streams_is_left_alone(
    leads: Leads, start: Any, feed: Any, log: Any, eventually: Any
) -> None:
    """Its members assign by a protocol of their own: the sidecar says so, and they read on."""
    topic = leads.settings["topics"]
    a = start("a", [topic], client=StreamsClient)
    eventually(lambda: len(a.owned) == PARTITIONS)
    lead = leads.start()
    eventually(lambda: "its members use none of" in lead.carry_out(None, {}).text)
    feed.write(topic, PARTITIONS, 60)
    eventually(lambda: sum(map(len, log.offsets().values())) == 60)
    assert a.assigns == 1


@pytest.mark.slow
def test_a_lead_outlasts_a_restart_of_the_broker(
    leads: Leads, start: Any, log: Any, eventually: Any, tmp_path: Path
) -> None:
    """The coordinator keeps the group, its leader and its assignments; the next plan is carried out."""
    leads.settings |= {"topics": "t", "lead-session-timeout": 30}
    names = ("a", "b")
    with EmbeddedBroker(data=tmp_path) as broker:
        leads.settings["bootstrap"] = broker.bootstrap
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(60)
        lead = leads.start()
        eventually(steers(lead))
        own = {"bootstrap_servers": broker.bootstrap, "session_timeout_ms": 30_000, "client": LIBRDKAFKA}
        a, b = (start(name, ["t"], **own) for name in names)
        first = leads.plan(1, names, 1, 1, 1, 2, 2, 2)
        eventually(lambda: steers(lead, first)() and owners(a, b) == {"a": (0, 1, 2), "b": (3, 4, 5)})
        before, generation = len(log.tenures), find_generation(lead)
        os.kill(broker.pid, signal.SIGKILL)
        eventually(lambda: "cannot lead" in lead.carry_out(first, {}).text)
    with EmbeddedBroker(broker.port, data=tmp_path):
        eventually(steers(lead, first), 60)
        assert find_generation(lead) == generation
        second = leads.plan(2, names, 1, 1, 1, 1, 2, 2)
        eventually(lambda: steers(lead, second)() and owners(a, b) == {"a": (0, 1, 2, 3), "b": (4, 5)}, 60)
        assert [t.partition.partition for t in log.tenures[before:]] == [3]
        for worker in (a, b):
            worker.stop()


@pytest.mark.slow
def test_elections_are_as_predicted(
    bootstrap: str, topic: Any, start: Any, eventually: Any, group: str
) -> None:
    """Of groups whose leader leaves, the sidecar leads exactly those in which nobody is before it."""
    for number in range(5):
        name = f"{group}-{number}"
        settings = {"bootstrap": bootstrap, "group": name, "topics": topic(), "capacity": 1e6, "lead": True}
        workers = [start(f"c{n}", [settings["topics"]], client=LIBRDKAFKA, group_id=name) for n in range(8)]
        eventually(partial(_have_partitions, workers, 4))
        requests = GroupRequests(load_settings(None, settings), SystemClock(), Event())
        member = LeadMember(requests, PlacementPolicy(), SystemClock(), take_lead=False)
        eventually(partial(_follows, member))
        assert member.joined is not None
        leader, own = member.joined.leader_id, member.joined.member_id
        others = {m.id for m in requests.describe_members()} - {leader, own}
        next(w for w in workers if leader.startswith(f"{w.name}-")).stop()
        eventually(partial(_sees_new_leader, member, leader))
        assert member.leads == (not list_members_ahead(own, others))
        requests.close()
        for worker in workers:
            worker.stop()


def _have_partitions(workers: Collection[Any], count: int) -> bool:
    return sum(len(w.owned) for w in workers) == count


def _follows(member: LeadMember) -> bool:
    member.run_step(lambda: LeadTask(None, Load()))
    return member.joined is not None and not member.must_join


def _sees_new_leader(member: LeadMember, former: str) -> bool:
    return _follows(member) and member.joined is not None and member.joined.leader_id != former
