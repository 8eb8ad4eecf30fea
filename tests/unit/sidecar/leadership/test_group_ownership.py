"""Sidecars of one group that know each other only by their published decisions."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.ticking import Ticking
from trimtab.sidecar.decision.decision import DecisionMetrics, ScalingAction
from trimtab.sidecar.errors import BrokerTimeoutError
from trimtab.sidecar.leadership.group_ownership import GroupOwnership
from trimtab.sidecar.leadership.leader_election import SoleLeader
from trimtab.sidecar.leadership.peer_detection import PeerAwareLeadership, build_author
from trimtab.sidecar.records.decision_record import DecisionRecord, SidecarIdentity
from trimtab.sidecar.settings.settings import load_settings

SILENCE = 45.0  # three intervals of 10 s, and 15 s


def decision(by: SidecarIdentity | None, until: float, **more: Any) -> DecisionRecord:
    return DecisionRecord(
        "g",
        1,
        until,
        until,
        1,
        10.0,
        1,
        ScalingAction.HOLD,
        (),
        DecisionMetrics(),
        1.0,
        1.0,
        author=by,
        **more,
    )


class Topic:
    """The decision topic: each sidecar reads what was published since its last read."""

    def __init__(self) -> None:
        self.left: list[DecisionRecord] = []
        self.away = False


class Ear:
    """One sidecar's position in the topic."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.at = 0

    def read_new_decisions(self) -> tuple[DecisionRecord, ...]:
        if self.topic.away:
            raise BrokerTimeoutError("no broker answers")
        begin, self.at = self.at, len(self.topic.left)
        return tuple(self.topic.left[begin:])


class Sidecar:
    """Leads or stands by; publishes a decision in each iteration that it leads."""

    def __init__(self, topic: Topic, name: str, clock: Ticking, *, force: bool = False) -> None:
        self.topic, self.clock, self.led = topic, clock, False
        me = SidecarIdentity(name, f"host-{name}", 1, clock.wall())
        self.leadership = PeerAwareLeadership(me, Ear(topic), clock, SoleLeader(), take_over=force)

    def turn(self) -> bool:
        self.led = self.leadership.is_leader()
        if self.led:
            self.topic.left.append(decision(self.leadership.get_author(), self.clock.wall()))
        return self.led


@pytest.fixture
def clock() -> Ticking:
    return Ticking()


@pytest.fixture
def topic() -> Topic:
    return Topic()


def test_a_lone_sidecar_leads_at_once(topic: Topic, clock: Ticking) -> None:
    """Without decisions of others there is nothing to wait for."""
    assert Sidecar(topic, "a", clock).turn()


def test_the_second_stands_by_and_names_the_leader(topic: Topic, clock: Ticking) -> None:
    """A later sidecar changes nothing while the first is active."""
    first, second = Sidecar(topic, "a", clock), Sidecar(topic, "b", clock)
    for _ in range(20):
        assert first.turn()
        assert not second.turn()
        clock.sleep(10)
    assert "host-a (pid 1, since 2023-11-14 22:30:00 UTC)" in second.leadership.get_leader()


def test_a_silent_owner_is_replaced(topic: Topic, clock: Ticking) -> None:
    """After three intervals and 15 s, not before; an owner that returns stands by."""
    first, second = Sidecar(topic, "a", clock), Sidecar(topic, "b", clock)
    assert first.turn()
    assert not second.turn()
    clock.sleep(SILENCE)
    assert not second.turn()
    clock.sleep(1)
    assert second.turn()
    assert not first.turn()
    clock.sleep(10)
    assert second.turn()
    assert not first.turn()


def test_an_announced_end_is_replaced_at_once(topic: Topic, clock: Ticking) -> None:
    """A sidecar that published its end is replaced at once."""
    first, second = Sidecar(topic, "a", clock), Sidecar(topic, "b", clock)
    first.turn()
    assert not second.turn()
    topic.left.append(replace(topic.left[-1], is_final=True))
    assert second.turn()


def test_take_over_does_not_wait(topic: Topic, clock: Ticking) -> None:
    """With `take_over` a sidecar leads at once; the other stands by from its next iteration on."""
    first = Sidecar(topic, "a", clock)
    first.turn()
    second = Sidecar(topic, "b", clock, force=True)
    assert second.turn()
    assert not first.turn()
    clock.sleep(10)
    assert (second.turn(), first.turn()) == (True, False)


def test_an_owner_that_continues_skips_an_iteration(topic: Topic, clock: Ticking) -> None:
    """A peer's decision may mean a new plan: the loop skips an iteration and reads it."""
    first = Sidecar(topic, "a", clock)
    first.turn()
    topic.left.append(decision(SidecarIdentity("b", "host-b", 2, 0.0, ownership_term=0), clock.wall()))
    assert not first.turn()
    assert first.turn()


def test_a_broker_outage_is_no_silence(topic: Topic, clock: Ticking) -> None:
    """Brokers away for an hour are no reason to take over when they return."""
    first, second = Sidecar(topic, "a", clock), Sidecar(topic, "b", clock)
    first.turn()
    second.turn()
    topic.away = True
    for _ in range(360):
        clock.sleep(10)
        assert not second.turn()
    topic.away = False
    assert not second.turn()


def test_a_sidecar_that_has_read_nothing_does_not_lead(topic: Topic, clock: Ticking) -> None:
    """Before the first read of the topic the leader is unknown, and the report says so."""
    topic.away = True
    one = Sidecar(topic, "a", clock)
    assert not one.turn()
    assert "no broker answers" in one.leadership.get_leader()


def test_old_decisions_do_not_delay(topic: Topic, clock: Ticking) -> None:
    """Old decisions count as silence at the first read; one without an author counts, too."""
    topic.left.append(decision(None, clock.wall() - 60))
    assert Sidecar(topic, "a", clock).turn()
    topic.left.append(decision(None, clock.wall()))
    assert not Sidecar(topic, "b", clock).turn()


def test_a_shared_id_is_no_peer(topic: Topic, clock: Ticking) -> None:
    """Sidecars separated by a lease or lock take over as soon as it allows."""
    assert Sidecar(topic, "a", clock).turn()
    assert Sidecar(topic, "a", clock).turn()


def test_a_state_directory_is_an_id(tmp_path: Path) -> None:
    """A restarted process sidecar is the same; with another directory, or another container's, it is not."""
    clock = Ticking()
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()

    def named(lease: str = "", state: Path | None = None) -> str:
        given = {"bootstrap": "b:1", "group": "g", "capacity": 100}
        worker = {"target": "process", "worker-command": ["w", "{instance}"], "state-dir": state}
        return build_author(load_settings(None, {**given, **(worker if state else {})}), clock, lease).id

    first, other = named(state=one), named(state=two)
    clock.sleep(1)
    assert named(state=one) == first
    assert other != first
    one.rename(tmp_path / "before")
    two.rename(one)
    assert named(state=one) == other
    before = named()
    clock.sleep(1)
    assert named() != before
    assert named("lease n/l") == "lease n/l"


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12)), max_size=60))
def test_two_owners_never_continue_together(turns: list[tuple[int, int]]) -> None:
    """However iterations of three sidecars interleave, one owner remains soon."""
    clock, topic = Ticking(), Topic()
    sidecars = [Sidecar(topic, name, clock, force=name == "c") for name in "abc"]
    for name, seconds in turns:
        clock.sleep(seconds)
        sidecars[name].turn()
    for _ in range(3):
        for one in sidecars:
            one.turn()
    assert sum(one.led for one in sidecars) == 1


def test_ages_are_computed_at_the_first_read_only() -> None:
    """A slow clock cannot make an active sidecar silent."""
    other = SidecarIdentity("b", "h", 1, 0.0, ownership_term=1)
    claims = GroupOwnership(SidecarIdentity("a", "h", 2, 0.0)).observe_decisions(
        [decision(other, 1e9)], 0.0, 1e9
    )
    for now in range(10, 300, 10):
        claims = claims.observe_decisions(_late(other), now, 1e9 + 500).claim_ownership(now)
        assert not claims.is_owner()


def _late(by: SidecarIdentity) -> Iterable[DecisionRecord]:
    return [decision(by, 1e9 - 500)]
