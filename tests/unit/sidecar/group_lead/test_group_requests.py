"""What the group's coordinator answers, and what it does not."""

from collections.abc import Callable
from threading import Event
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from support.ticking import Ticking
from trimtab.common.kafka_protocol import errors
from trimtab.sidecar.group_lead import group_requests
from trimtab.sidecar.group_lead.group_requests import GroupGeneration, GroupRequests
from trimtab.sidecar.model.member_names import MemberIdentity
from trimtab.sidecar.settings.settings import load_settings

SETTINGS = load_settings(None, {"bootstrap": "b:1", "group": "g", "capacity": 1, "lead": True})
JOINED = GroupGeneration(1, "ours", "a", "range")
NO_ERROR = SimpleNamespace(error_code=0)


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., GroupRequests]:
    """Return requests that get these answers, one after the other."""

    def build(*answers: Any) -> GroupRequests:
        asked = Mock(side_effect=answers)
        brokers = Mock(ask=asked, ask_coordinator=asked)
        monkeypatch.setattr(group_requests, "connect_brokers", Mock(return_value=brokers))
        return GroupRequests(SETTINGS, Ticking(), Event())

    return build


@pytest.mark.parametrize("gone", [errors.UnknownMemberError, errors.FencedInstanceError])
def test_a_member_that_has_gone_meanwhile_cannot_leave(
    answer: Any, gone: type[errors.ErrorResponseError]
) -> None:
    """The sidecar took that for the loss of its own membership."""
    members = [SimpleNamespace(error_code=gone.code), NO_ERROR]
    answer(SimpleNamespace(error_code=0, members=members)).remove_members([], "")
    members.append(SimpleNamespace(error_code=errors.GroupDeniedError.code))
    with pytest.raises(errors.GroupDeniedError):
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
    codes = {"t": 0, "gone": errors.UnknownTopicError.code, "secret": errors.TopicDeniedError.code, "new": 5}
    topics = [SimpleNamespace(name=t, error_code=code, partitions=[]) for t, code in codes.items()]
    found = answer(SimpleNamespace(topics=topics)).fetch_topics(codes)
    assert (found.partitions, found.deleted) == ({"t": []}, {"gone"})
    assert found.unknown == {
        "secret": "grant Describe on topic secret",
        "new": "topic new: LEADER_NOT_AVAILABLE",
    }


def test_a_wait_for_members_is_repeated(answer: Any) -> None:
    """Each try finds the coordinator anew: the one of before may have gone without a word."""
    joined = SimpleNamespace(
        error_code=0, members=[], leader="a", member_id="ours", generation_id=1, protocol_name="range"
    )
    joined.skip_assignment = False
    timeout = errors.RequestTimeoutError()
    assert answer(timeout, timeout, joined).join("", b"") == JOINED
    answer(timeout, NO_ERROR).sync(JOINED, {})
    with pytest.raises(errors.RequestTimeoutError):
        answer(timeout).heartbeat(JOINED)
