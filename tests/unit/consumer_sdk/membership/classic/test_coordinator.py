"""Order of the membership callbacks, on which the lease depends; odd bytes of other members."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.coordinator.base import Generation
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.coordinator.heartbeat import Heartbeat
from kafka.errors import IllegalGenerationError, KafkaConnectionError, RebalanceInProgressError
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaPartition
from kafka.util import ensure_valid_topic_name

from support.hostile import UNREADABLE_USER_DATA, encode_subscription
from trimtab.consumer_sdk.membership.classic.coordinator import (
    MemberCoordinator,
    MembershipListener,
    skip_rejoin,
)


class RecordingCoordinator(ConsumerCoordinator):  # type: ignore[misc] # kafka-python has no types
    """Records the calls; the names are kafka-python's."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.heartbeat = Heartbeat()
        self.rejoining = True
        self.rejoin_needed = False
        self.refuses = False
        self.config = {"group_id": "g", "group_instance_id": None, "api_version": (4, 0)}
        self._generation = Generation(13, "m", "cooperative-sticky")
        self._sensors = None

    async def _send_heartbeat_request(self) -> None:
        if self.refuses:
            raise RebalanceInProgressError

    async def maybe_leave_group_async(self, reason: str = "") -> None:
        self.calls.append(f"leave: {reason}")
        self.reset_generation()

    async def _on_join_complete_async(
        self, generation: int, member_id: str, protocol: str, assignment: bytes
    ) -> None:
        assert (generation, member_id) == (1, "m")
        assert protocol in ("trimtab", "cooperative-sticky")
        self.calls.append(f"assigned {ConsumerProtocolAssignment.decode(assignment).partitions()}")

    def _handle_metadata_update(self, cluster: Any) -> None:
        self.calls.append(f"denied {cluster.unauthorized_topics}")

    def _perform_assignment(self, leader_id: str, protocol: str, members: Any) -> Any:
        assert (leader_id, protocol) == ("good", "trimtab")
        (everyone,) = members
        for topic in ConsumerProtocolSubscription.decode(everyone.metadata).topics:
            ensure_valid_topic_name(topic)  # as its cluster does
        return sorted(everyone.subscriptions)

    def reset_generation(self, member_id: str = "") -> None:
        self.calls.append(f"reset {member_id}".rstrip())


class WatchedCoordinator(MemberCoordinator, RecordingCoordinator):
    """Our overrides on top of the recorder."""


@pytest.fixture
def watched() -> Any:
    calls: list[str] = []
    listener = MembershipListener(
        on_stable_heartbeat=lambda sent: calls.append(f"stable {sent}"),
        on_leaving=lambda: calls.append("leaving"),
        on_lost=lambda: calls.append("lost"),
        on_rejoin_needed=lambda: None,
        on_fenced=lambda: None,
    )
    coordinator = WatchedCoordinator(listener, "trimtab")
    coordinator.calls = calls
    coordinator.heartbeat.last_send = 7.0
    return coordinator


def test_leaving_is_reported_before_the_request(watched: Any) -> None:
    """Once the group knows, other members read: the lease must be over by then."""
    asyncio.run(watched.maybe_leave_group_async("why"))
    assert watched.calls == ["leaving", "leave: why", "lost", "reset"]


def test_a_loss_during_a_join_makes_the_next_attempt_prepare_again(watched: Any) -> None:
    """The rebalance listener then gets the partitions of the old membership as lost."""
    watched.reset_generation("given-id")
    assert watched.calls == ["lost", "reset given-id"]
    assert not watched.rejoining


@pytest.mark.parametrize(("instance", "calls"), [(None, []), ("static", ["lost", "reset m"])])
def test_a_dynamic_member_of_a_later_generation_has_lost_nothing(
    watched: Any, instance: str | None, calls: list[str]
) -> None:
    """It joins again with its partitions; a static one may have missed a rebalance."""
    watched.config["group_instance_id"] = instance
    with pytest.raises(IllegalGenerationError):
        watched._handle_heartbeat_response(SimpleNamespace(error_code=IllegalGenerationError.errno), 0.0)
    assert watched.calls == calls
    assert watched.rejoin_needed == (not calls)


def test_only_a_heartbeat_without_a_rebalance_is_stable(watched: Any) -> None:
    """The rebalance timeout starts at the last stable heartbeat."""
    asyncio.run(watched._send_heartbeat_request())
    watched.refuses = True
    with pytest.raises(RebalanceInProgressError):
        asyncio.run(watched._send_heartbeat_request())
    assert watched.calls == ["stable 7.0"]


@pytest.mark.parametrize("topic", ["", ".", "a/b", "ü", "x" * 300])
def test_an_impossible_topic_of_one_member_does_not_end_the_leader(watched: Any, topic: str) -> None:
    """kafka-python refuses such a name in its leader; the others are assigned."""
    members = [
        SimpleNamespace(member_id=name, metadata=encode_subscription(None, topics))
        for name, topics in (("good", ("t",)), ("odd", ("t", topic)))
    ]
    assert watched._perform_assignment("good", "trimtab", members) == ["good", "odd"]


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\0",
        b"\xff\xff\0\0\0\0",
        b"\0\0" + b"\xff" * 8,
        b"\0\0\x7f\xff\xff\xff",
        b"\0\0\0\0\0\1\0\1\xff",
    ],
)
def test_an_unreadable_assignment_assigns_nothing(
    watched: Any, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The member stays in the group, for the next leader; the log shows the bytes."""
    asyncio.run(watched._on_join_complete_async(1, "m", "trimtab", sent))
    assert watched.calls == ["assigned []"]
    assert f"assignment is unreadable: {sent!r}" in caplog.text


def test_a_readable_assignment_is_passed_on(watched: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Unchanged."""
    entry = ConsumerProtocolAssignment.TopicPartition(topic="t", partitions=[3])
    sent = ConsumerProtocolAssignment(version=0, assigned_partitions=[entry], user_data=b"").encode()
    asyncio.run(watched._on_join_complete_async(1, "m", "trimtab", sent))
    assert watched.calls == ["assigned [TopicPartition(topic='t', partition=3)]"]
    assert not caplog.records


@pytest.mark.parametrize(
    "user_data", [UNREADABLE_USER_DATA[name] for name in ("deep", "promised null", "not JSON", "megabytes")]
)
def test_unreadable_user_data_of_the_leader_assigns_nothing(
    watched: Any, user_data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Any partition could be promised, and its owner still read it; another assignor promises none."""
    entry = ConsumerProtocolAssignment.TopicPartition(topic="t", partitions=[3])
    sent = ConsumerProtocolAssignment(version=0, assigned_partitions=[entry], user_data=user_data).encode()
    asyncio.run(watched._on_join_complete_async(1, "m", "trimtab", sent))
    assert watched.calls == ["assigned []"]
    assert "the leader's user data is unreadable" in caplog.text
    asyncio.run(watched._on_join_complete_async(1, "m", "cooperative-sticky", sent))
    assert watched.calls[1:] == ["assigned [TopicPartition(topic='t', partition=3)]"]


def test_a_release_before_a_join_does_not_suppress_the_rejoin_after_it(watched: Any) -> None:
    """kafka-python revokes the partitions of a topic that is left before it joins, without a request."""
    skip_rejoin(SimpleNamespace(_coordinator=watched))
    sent = ConsumerProtocolAssignment(version=0, assigned_partitions=[], user_data=b"").encode()
    asyncio.run(watched._on_join_complete_async(1, "m", "trimtab", sent))
    watched.request_rejoin()
    assert watched.rejoin_needed


def test_kafka_python_sends_a_commit_once() -> None:
    """The confirmation of a release relies on that: what was answered takes effect no second time."""
    sent: list[Any] = []

    async def send(request: Any, **_named: Any) -> None:
        sent.append(request)
        raise KafkaConnectionError

    group: Any = object.__new__(ConsumerCoordinator)
    group.config = {"group_id": "g", "group_instance_id": None, "api_version": (4, 0)}
    group.coordinator, group.coordinator_id = lambda: 1, None
    group.generation_if_stable = lambda: Generation(7, "m", "trimtab")
    group._subscription = SimpleNamespace(partitions_auto_assigned=lambda: True)
    group._manager = SimpleNamespace(send=send)
    with pytest.raises(KafkaConnectionError):
        asyncio.run(group._send_offset_commit_request({KafkaPartition("t", 0): OffsetAndMetadata(1, "", -1)}))
    assert len(sent) == 1


def test_a_denied_topic_does_not_hide_new_partitions(watched: Any) -> None:
    """kafka-python ignores the whole update; the own topics are checked by `find_missing_topics`."""
    cluster = SimpleNamespace(unauthorized_topics={"secret"})
    watched._handle_metadata_update(cluster)
    assert watched.calls == ["denied set()"]
    assert cluster.unauthorized_topics == {"secret"}
