"""What the group's coordinator answers, and what it does not."""

from collections.abc import Callable
from threading import Event
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from kafka import errors
from kafka.future import Future
from ticking import Ticking

from trimtab.sidecar.errors import GroupRequestAbortedError
from trimtab.sidecar.group_lead import group_requests
from trimtab.sidecar.group_lead.group_requests import JOIN_TIMEOUT_S, GroupGeneration, GroupRequests
from trimtab.sidecar.model.member_names import MemberIdentity
from trimtab.sidecar.settings.settings import load_settings

SETTINGS = load_settings(None, {"bootstrap": "b:1", "group": "g", "capacity": 1, "lead": True})
JOINED = GroupGeneration(1, "ours", "a", "range")
NO_ERROR = SimpleNamespace(error_code=0)


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., GroupRequests]:
    """Return requests that get these answers, one after the other."""

    def build(*answers: Any) -> GroupRequests:
        client = Mock(call=Mock(side_effect=answers))
        monkeypatch.setattr(group_requests, "CoordinatorClient", Mock(return_value=client))
        return GroupRequests(SETTINGS, Ticking(), Event())

    return build


@pytest.mark.parametrize("gone", [errors.UnknownMemberIdError, errors.FencedInstanceIdError])
def test_a_member_that_has_gone_meanwhile_cannot_leave(
    answer: Any, gone: type[errors.BrokerResponseError]
) -> None:
    """The sidecar took that for the loss of its own membership."""
    members = [SimpleNamespace(error_code=gone.errno), NO_ERROR]
    answer(SimpleNamespace(error_code=0, members=members)).remove_members([], "")
    members.append(SimpleNamespace(error_code=errors.GroupAuthorizationFailedError.errno))
    with pytest.raises(errors.GroupAuthorizationFailedError):
        answer(SimpleNamespace(error_code=0, members=members)).remove_members([], "")


def test_plan_carriers_are_no_members_of_the_group(answer: Any) -> None:
    """A consumer that shares the sidecar's address is named by it, in the plan and for the leader."""
    described = [
        SimpleNamespace(member_id=m, client_id=m, client_host="/10.0.0.7", group_instance_id=None)
        for m in ("app", "trimtab-lead")
    ]
    requests = answer(SimpleNamespace(groups=[SimpleNamespace(error_code=0, members=described)]))
    assert requests.describe_members() == (MemberIdentity("app", "app", "10.0.0.7", None),)


def test_a_topic_that_the_brokers_do_not_tell_has_a_reason(answer: Any) -> None:
    """Unlike a deleted one, it keeps its owners."""
    codes = {
        "t": 0,
        "gone": errors.UnknownTopicOrPartitionError.errno,
        "secret": errors.TopicAuthorizationFailedError.errno,
        "new": errors.LeaderNotAvailableError.errno,
    }
    topics = [SimpleNamespace(name=t, error_code=code, partitions=[]) for t, code in codes.items()]
    found = answer(SimpleNamespace(topics=topics)).fetch_topics(codes)
    assert (found.partitions, found.deleted) == ({"t": []}, {"gone"})
    assert found.unknown == {
        "secret": "grant Describe on topic secret",
        "new": "topic new: LeaderNotAvailableError",
    }


def test_a_wait_for_members_is_repeated(answer: Any) -> None:
    """Each try finds the coordinator anew: the one of before may have gone without a word."""
    joined = SimpleNamespace(
        error_code=0, members=[], leader="a", member_id="ours", generation_id=1, protocol_name="range"
    )
    joined.skip_assignment = False
    timeout = errors.RequestTimedOutError()
    assert answer(timeout, timeout, joined).join("", b"") == JOINED
    answer(timeout, NO_ERROR).sync(JOINED, {})
    with pytest.raises(errors.RequestTimedOutError):
        answer(timeout).heartbeat(JOINED)


def test_an_io_loop_that_has_crashed_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """kafka-python then never ends the request."""
    clock, stop = Ticking(), Event()
    monkeypatch.setattr(group_requests, "STOP_CHECK_INTERVAL_S", 0.001)

    def call_soon(_send: object) -> Future:
        clock.now += 10 * JOIN_TIMEOUT_S
        return Future()

    admin = Mock(_manager=Mock(call_soon=call_soon))
    client = Mock(call=lambda request: request(admin))  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(group_requests, "CoordinatorClient", Mock(return_value=client))
    monkeypatch.setattr(clock, "monotonic", Mock(side_effect=[0.0, 1.0, 10 * JOIN_TIMEOUT_S]))
    with pytest.raises(errors.KafkaConnectionError, match="has not answered"):
        GroupRequests(SETTINGS, clock, stop).heartbeat(JOINED)
    stop.set()
    with pytest.raises(GroupRequestAbortedError):
        GroupRequests(SETTINGS, Ticking(), stop).heartbeat(JOINED)
