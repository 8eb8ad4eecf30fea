"""The lead's thread outlives every error, and says what to do."""

import re
from collections.abc import Callable
from threading import Event
from typing import Any
from unittest.mock import Mock

import pytest

from support.ticking import Ticking
from trimtab.assignor.model import Load
from trimtab.common.kafka_protocol import errors
from trimtab.sidecar.group_lead import group_lead
from trimtab.sidecar.group_lead.group_lead import (
    FENCED_RETRY_S,
    WAIT_REPORT_S,
    GroupLead,
    explain_failure,
    explain_follower,
)
from trimtab.sidecar.group_lead.group_requests import GroupGeneration
from trimtab.sidecar.group_lead.lead_member import LeadTask
from trimtab.sidecar.settings.settings import load_settings

SETTINGS = load_settings(None, {"bootstrap": "b:1", "group": "g", "capacity": 1, "lead": True})


class FailingRequests:
    """Requests that fail, and count the joins."""

    def __init__(self, failure: Exception) -> None:
        self.failure = failure
        self.joins = 0

    def join(self, *_: Any) -> Any:
        self.joins += 1
        raise self.failure

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (errors.GroupDeniedError(), "grant Read on group g"),
        (
            errors.InconsistentGroupProtocolError(),
            "use none of cooperative-sticky, sticky, range, roundrobin",
        ),
        (errors.FencedInstanceError(), "another sidecar has taken the lead of group g"),
        (errors.ConnectionFailedError("b:1 is away"), "cannot lead group g: .*b:1 is away"),
        (ValueError(), "cannot lead group g: ValueError"),
    ],
)
def test_a_failure_says_what_to_do(failure: Exception, text: str) -> None:
    """In the status, and so in log, explain, top and doctor."""
    assert re.search(text, explain_failure(failure, SETTINGS))


@pytest.mark.parametrize(
    ("leader", "text"),
    [("a-1", "member a-1 leads with its own range assignor"), ("", "uses group.protocol=consumer")],
)
def test_a_follower_says_who_assigns(leader: str, text: str) -> None:
    """Another member, or in a group of the new protocol, which names no leader, the brokers."""
    assert text in explain_follower(GroupGeneration(1, "ours", leader, "range"))


@pytest.mark.parametrize("failure", [ValueError("a bug"), errors.ConnectionFailedError()])
def test_the_thread_goes_on_after_an_error(
    failure: Exception, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., None]
) -> None:
    """Also after one that nobody has foreseen."""
    requests, clock = FailingRequests(failure), Ticking()
    monkeypatch.setattr(group_lead, "GroupRequests", Mock(return_value=requests))
    lead = GroupLead(SETTINGS, clock)
    try:
        eventually(lambda: "cannot lead" in lead.carry_out(None, {}).text)
        assert lead.carry_out(None, {}).errors
        joins, clock.now = requests.joins, clock.now + FENCED_RETRY_S
        eventually(lambda: lead.carry_out(None, {}) and requests.joins > joins)
    finally:
        lead.close()


def test_a_fenced_member_waits(monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., None]) -> None:
    """Two sidecars that both try to lead would otherwise fence each other in turn."""
    requests, clock = FailingRequests(errors.FencedInstanceError()), Ticking()
    monkeypatch.setattr(group_lead, "GroupRequests", Mock(return_value=requests))
    monkeypatch.setattr(group_lead, "STEP_INTERVAL_S", 0.001)
    lead = GroupLead(SETTINGS, clock)
    try:
        eventually(lambda: "another sidecar" in lead.carry_out(None, {}).text)
        clock.now += FENCED_RETRY_S / 2
        for _ in range(100):
            lead.carry_out(None, {})
        assert requests.joins == 1
        clock.now += FENCED_RETRY_S
        eventually(lambda: lead.carry_out(None, {}) and requests.joins == 2)
    finally:
        lead.close()


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """The sidecar's member, which leads."""
    joined = GroupGeneration(1, "ours", "ours", "range")
    made = Mock(joined=joined, must_join=False, topic_errors=())
    monkeypatch.setattr(group_lead, "LeadMember", Mock(return_value=made))
    monkeypatch.setattr(group_lead, "STEP_INTERVAL_S", 0.001)
    return made


def test_what_was_before_a_standby_is_not_told_after_it(
    member: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another sidecar may lead by then."""
    monkeypatch.setattr(group_lead, "CarrierThread", Mock())
    lead = GroupLead(SETTINGS, Ticking())
    lead.carry_out(None, {})
    lead._try_step(LeadTask(None, Load()))
    assert member.joined.leads
    assert lead.carry_out(None, {}).is_steering
    assert not lead.stand_by().is_steering
    assert not lead.carry_out(None, {}).is_steering


def test_a_long_wait_for_the_members_is_told(member: Mock, eventually: Callable[..., None]) -> None:
    """The group has no assignments until all have joined."""
    clock, waits, goes_on = Ticking(), Event(), Event()
    lead = GroupLead(SETTINGS, clock)
    try:
        eventually(lambda: lead.carry_out(None, {}).is_steering)
        member.run_step = lambda _: (waits.set(), goes_on.wait())
        eventually(waits.is_set)
        assert lead.carry_out(None, {}).is_steering
        clock.now += WAIT_REPORT_S
        status = lead.carry_out(None, {})
        assert (status.is_steering, "for the group's members to join" in status.text) == (False, True)
        goes_on.set()
        eventually(lambda: lead.carry_out(None, {}).is_steering)
    finally:
        goes_on.set()
        lead.close()


def test_a_topic_without_the_right_to_describe_it_is_told(
    member: Mock, eventually: Callable[..., None]
) -> None:
    """In a group that the sidecar leads nobody else would say why nobody reads it."""
    lead = GroupLead(SETTINGS, Ticking())
    try:
        eventually(lambda: lead.carry_out(None, {}).is_steering)
        member.topic_errors = ("grant Describe on topic t",)
        eventually(lambda: lead.carry_out(None, {}).errors == ("grant Describe on topic t",))
        member.topic_errors = ()
        eventually(lambda: lead.carry_out(None, {}).errors == ())
    finally:
        lead.close()
