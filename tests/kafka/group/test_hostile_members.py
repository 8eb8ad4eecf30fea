"""A group on a real broker goes on beside a member that sends odd bytes, and under an odd plan."""

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer
from kafka.errors import UnknownError

from support.hostile import UNREADABLE_USER_DATA
from trimtab.assignor.clients.kafka_python import TrimtabAssignor
from trimtab.common.clock import SystemClock
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.consumer_sdk.membership.classic import coordinator
from trimtab.sidecar.diagnostics.doctor.broker_checks import run_broker_checks
from trimtab.sidecar.diagnostics.doctor.checks import PLAN_FOLLOWED_CHECK, FindingLevel
from trimtab.sidecar.kafka.control_topic_store import ControlTopicStore
from trimtab.sidecar.settings.settings import load_settings

pytestmark = pytest.mark.broker

Eventually = Callable[..., None]
COUNT = 6  # partitions
STORED = {name: data for name, data in UNREADABLE_USER_DATA.items() if len(data) < 500_000}
ODD_TOPICS = ("", ".", "a/b", "x" * 300, "\0", "no-such-topic")


@pytest.fixture(autouse=True)
def joins(caplog: pytest.LogCaptureFixture) -> None:
    """The report of a failure has each join and heartbeat of kafka-python's consumers."""
    caplog.set_level(logging.DEBUG, "kafka.coordinator")


class HostileAssignor(TrimtabAssignor):
    """Follows its assignments, but sends other user data and further topics."""

    def __init__(self) -> None:
        super().__init__()
        self.user_data = b""
        self.topics: list[str] = []
        self.assignment = b""  # of everybody else, if it leads

    def metadata(self, topics: Any) -> Any:
        sent = super().metadata(topics)
        sent.user_data, sent.topics = self.user_data, [*sent.topics, *self.topics]
        return sent

    def assign(self, cluster: Any, members: Any) -> dict[str, bytes]:
        sent = super().assign(cluster, members)
        odd = {m: self.assignment for m in sent if not m.startswith("hostile-")} if self.assignment else {}
        return sent | odd


class Hostile:
    """A member with odd bytes that polls in a thread."""

    def __init__(self, bootstrap: str, group: str, topic: str, user_data: bytes) -> None:
        self.assignor = HostileAssignor()
        self.assignor.user_data = user_data
        self.consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            client_id="hostile",
            partition_assignment_strategy=[self.assignor],
            heartbeat_interval_ms=100,
            session_timeout_ms=6000,
        )
        self.consumer.subscribe([topic])
        self.stopping = Event()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def rejoin(self) -> None:
        coordinator.request_rejoin(self.consumer)

    @property
    def generation(self) -> int:
        return coordinator.generation_id(self.consumer)

    @property
    def owned(self) -> set[int]:
        return {tp.partition for tp in self.consumer.assignment()}

    def _run(self) -> None:
        while not self.stopping.is_set():
            with suppress(UnknownError):  # what the broker cannot store
                # kafka-python's own poll may forget a join that outlasts it; no later join would follow.
                coordinator.poll_coordinator(self.consumer, 0.1)
        self.consumer.close()

    def stop(self) -> None:
        self.stopping.set()
        self._thread.join(30)


@contextmanager
def joined(bootstrap: str, group: str, topic: str, user_data: bytes = b"") -> Iterator[Hostile]:
    member = Hostile(bootstrap, group, topic, user_data)
    try:
        yield member
    finally:
        member.stop()


def is_shared_again(workers: list[Any], hostile: Hostile, before: int) -> bool:
    """Rejoin until a generation after `before`; return whether each partition has one owner in it."""
    if hostile.generation <= before:
        hostile.rejoin()  # has no effect during a join
        return False
    return is_shared(workers, hostile)


def is_shared(workers: list[Any], hostile: Hostile) -> bool:
    """Return whether each partition has one owner in the generation that all are in."""
    owned = [*({p.partition for p in tuple(w.owned)} for w in workers), tuple(hostile.owned)]
    same = all(w.consumer.generation_id() == hostile.generation for w in workers)
    return same and all(owned) and sorted(n for numbers in owned for n in numbers) == [*range(COUNT)]


def test_a_group_goes_on_beside_a_member_with_unreadable_user_data(
    topic: Any, start: Any, bootstrap: str, group: str, eventually: Eventually
) -> None:
    """One such member after the other: everyone keeps reading, no consumer ends."""
    name = topic(partitions=COUNT)
    workers = [start(f"w{n}", [name]) for n in range(3)]
    eventually(lambda: sorted(len(w.owned) for w in workers) == [2, 2, 2])
    with joined(bootstrap, group, name) as hostile:
        for data in STORED.values():
            before = hostile.generation
            hostile.assignor.user_data = data
            eventually(lambda: is_shared_again(workers, hostile, before))  # noqa: B023 - called at once
    eventually(lambda: sorted(len(w.owned) for w in workers) == [2, 2, 2])


def test_a_group_goes_on_beside_a_member_with_impossible_topics(
    topic: Any, start: Any, bootstrap: str, group: str, eventually: Eventually
) -> None:
    """kafka-python's own leader would end at such a name."""
    name = topic(partitions=COUNT)
    workers = [start(f"w{n}", [name]) for n in range(3)]
    eventually(lambda: sorted(len(w.owned) for w in workers) == [2, 2, 2])
    with joined(bootstrap, group, name) as hostile:
        for odd in ODD_TOPICS:
            before = hostile.generation
            hostile.assignor.topics = [odd]
            eventually(lambda: is_shared_again(workers, hostile, before))  # noqa: B023 - called at once


def test_a_group_recovers_from_user_data_that_the_broker_cannot_store(
    topic: Any,
    start: Any,
    bootstrap: str,
    group: str,
    eventually: Eventually,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The broker fails each SyncGroup while that member stays; the others retry and name the cause."""
    name = topic(partitions=COUNT)
    workers = [start(f"w{n}", [name]) for n in range(3)]
    eventually(lambda: sorted(len(w.owned) for w in workers) == [2, 2, 2])
    with joined(bootstrap, group, name) as hostile:
        eventually(lambda: is_shared_again(workers, hostile, -1))
        hostile.assignor.user_data = UNREADABLE_USER_DATA["megabytes"]
        hostile.rejoin()
        eventually(lambda: len(re.findall("UnknownError.*may exceed .*; retrying", caplog.text)) >= 3)
    eventually(lambda: sorted(len(w.owned) for w in workers) == [2, 2, 2], 60)


def test_a_group_recovers_from_a_leader_with_unreadable_assignments(
    topic: Any, start: Any, bootstrap: str, group: str, eventually: Eventually
) -> None:
    """Its members read nothing until another one leads; none of them ends."""
    name = topic(partitions=COUNT)
    with joined(bootstrap, group, name) as hostile:
        eventually(lambda: len(hostile.owned) == COUNT)
        hostile.assignor.assignment = b"\0\1\xff"
        workers = [start(f"w{n}", [name]) for n in range(2)]
        eventually(lambda: all(w.consumer.generation_id() > 0 for w in workers))
        assert not any(w.owned for w in workers)
    eventually(lambda: sorted(len(w.owned) for w in workers) == [3, 3], 60)


@pytest.mark.parametrize("heuristic", ["nope", "rack-aware:nope"])
def test_a_plan_that_no_consumer_can_carry_out(
    heuristic: str, topic: Any, start: Any, bootstrap: str, group: str, eventually: Eventually
) -> None:
    """The group goes on by its own heuristic, without the drained member; the doctor says why."""
    name, plans = topic(partitions=COUNT), topic(partitions=1, cleanup_policy="compact")
    values = {"bootstrap": bootstrap, "group": group, "capacity": "1 MB/s", "topics": name}
    settings = load_settings(None, {**values, "plan-topic": plans})
    workers = [start(f"w{n}", [name], trimtab_plan_topic=plans) for n in range(3)]
    eventually(lambda: sorted(len(w.owned) for w in workers) == [2, 2, 2])
    plan = GroupPlan(group, 1, SystemClock().wall(), 2, heuristic, 1e6, draining=("w0",))
    ControlTopicStore(settings, AdminClient(settings.client_config)).publish([plan])
    eventually(lambda: sorted(len(w.owned) for w in workers) == [0, 3, 3])
    assert not workers[0].owned
    faults = {worker.consumer.decision_fault() for worker in workers}
    assert len(faults) == 1
    assert faults.pop().startswith("plan 1: ")
    workers.append(start("late", [name], trimtab_plan_topic=plans))  # it reads the plan before it joins
    eventually(lambda: sorted(len(w.owned) for w in workers) == [0, 2, 2, 2])
    found = {f.check: f for f in run_broker_checks(settings, SystemClock())}[PLAN_FOLLOWED_CHECK]
    assert found.level is FindingLevel.FAILED
    assert "the leader's decision failed: plan 1: " in found.message
    assert "decided instead by plan 1 with steady" in found.message


def test_the_doctor_names_a_member_with_unreadable_user_data(
    topic: Any, start: Any, bootstrap: str, group: str, eventually: Eventually
) -> None:
    """By its id, which begins with its client id."""
    name = topic(partitions=COUNT)
    worker = start("w0", [name])
    settings = load_settings(None, {"bootstrap": bootstrap, "group": group, "capacity": "1 MB/s"})
    # it joins once, with these bytes: the brokers hide them during a rebalance
    with joined(bootstrap, group, name, UNREADABLE_USER_DATA["capacity NaN"]) as hostile:
        eventually(lambda: is_shared([worker], hostile))
        failed = [f for f in run_broker_checks(settings, SystemClock()) if f.level is FindingLevel.FAILED]
        odd = [f for f in failed if f.check.startswith("member ")]
        assert [f.check.startswith("member hostile-") for f in odd] == [True]
        assert "capacity is nan" in odd[0].message
