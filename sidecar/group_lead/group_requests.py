"""Requests of a classic group's member (JoinGroup, SyncGroup, Heartbeat, LeaveGroup), by kafka-python.

The versions are those that broker and library have in common: with JoinGroup 9 (KIP-814, Kafka 3.2) a
static member that returns learns whether it leads; with LeaveGroup 3 (KIP-345, Kafka 2.4) it may ask
another member to leave.
"""

# ruff: noqa: SLF001 - kafka-python sends only to coordinators it knows by private calls

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Event
from typing import Any, Final

from kafka import errors as kafka_errors
from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.consumer import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from kafka.protocol.metadata import MetadataRequest

from trimtab.assignor.rebalance.consumer_protocol import ReceivedAssignment, SubscriptionDecoder
from trimtab.common.clock import Clock
from trimtab.common.errors import InvalidPayloadError
from trimtab.sidecar.errors import GroupRequestAbortedError
from trimtab.sidecar.group_lead.lead_round import KnownTopics
from trimtab.sidecar.kafka.coordinator_client import CoordinatorClient
from trimtab.sidecar.model.member_names import MemberIdentity
from trimtab.sidecar.plan_carrier import CARRIER_CLIENT_IDS, LEAD_CLIENT_ID
from trimtab.sidecar.settings.settings import SidecarSettings

PROTOCOL_TYPE: Final = "consumer"
REBALANCE_TIMEOUT_S: Final = 10.0  # of this member; the group waits for the longest of its members
JOIN_TIMEOUT_S: Final = 60.0  # of one try; the broker may answer after many minutes
STOP_CHECK_INTERVAL_S: Final = 0.2
_DELETED_TOPIC_CODE: Final = kafka_errors.UnknownTopicOrPartitionError.errno
_GONE_MEMBER_CODES: Final = frozenset(
    {kafka_errors.UnknownMemberIdError.errno, kafka_errors.FencedInstanceIdError.errno}
)


@dataclass(frozen=True, slots=True)
class GroupGeneration:
    """Answer to a JoinGroup request."""

    generation: int
    member_id: str  # of this member
    leader_id: str
    assignor: str
    is_complete: bool = False  # the assignments of this generation exist already (KIP-814)
    subscriptions: Mapping[str, bytes] | None = None  # by member id; None unless this member leads

    @property
    def leads(self) -> bool:
        """Whether this member is the leader."""
        return self.member_id == self.leader_id

    @property
    def must_assign(self) -> bool:
        """Whether the group waits for this member's assignments."""
        return self.leads and not self.is_complete


class GroupRequests:
    """Requests of one member; for one thread. All raise KafkaError and GroupRequestAbortedError."""

    def __init__(self, settings: SidecarSettings, clock: Clock, stop: Event) -> None:
        self._settings = settings
        self._clock = clock
        self._coordinator = CoordinatorClient(settings, clock, client_id=LEAD_CLIENT_ID)
        self._stop = stop

    def join(self, member_id: str, metadata: bytes) -> GroupGeneration:
        """Join and wait until all members have joined; an empty member id takes the static id over."""
        s = self._settings
        request = JoinGroupRequest(
            group_id=s.group,
            session_timeout_ms=round(s.lead_session_timeout * 1000),
            rebalance_timeout_ms=round(REBALANCE_TIMEOUT_S * 1000),
            member_id=member_id,
            group_instance_id=LEAD_CLIENT_ID,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name, metadata) for name in s.lead_assignors
            ],
        )
        r = self._wait_for_members(request)
        members = {m.member_id: bytes(m.metadata) for m in r.members}
        leads = r.leader == r.member_id
        return GroupGeneration(
            r.generation_id,
            r.member_id,
            r.leader,
            r.protocol_name or "",
            bool(r.skip_assignment),
            members if leads else None,
        )

    def sync(self, joined: GroupGeneration, assignments: Mapping[str, bytes]) -> None:
        """Hand over the assignments (none of a follower) and wait for the leader's."""
        request = SyncGroupRequest(
            group_id=self._settings.group,
            generation_id=joined.generation,
            member_id=joined.member_id,
            group_instance_id=LEAD_CLIENT_ID,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.assignor,
            assignments=[SyncGroupRequest.SyncGroupRequestAssignment(*one) for one in assignments.items()],
        )
        self._wait_for_members(request)

    def heartbeat(self, joined: GroupGeneration) -> None:
        """Keep this member in the group. Raises RebalanceInProgressError if it is to join again."""
        request = HeartbeatRequest(
            group_id=self._settings.group,
            generation_id=joined.generation,
            member_id=joined.member_id,
            group_instance_id=LEAD_CLIENT_ID,
        )
        self._send(request, self._settings.timeout)

    def remove_members(self, members: Iterable[MemberIdentity], reason: str) -> None:
        """Make other members leave, in this order; they join again unless their clients are stopped."""
        identities = [
            LeaveGroupRequest.MemberIdentity(member_id=m.id, group_instance_id=m.instance_id, reason=reason)
            for m in members
        ]
        request = LeaveGroupRequest(group_id=self._settings.group, members=identities, min_version=3)
        response = self._send(request, self._settings.timeout)
        for one in response.members:
            if one.error_code not in _GONE_MEMBER_CODES:
                _raise_for(one.error_code)

    def describe_members(self) -> tuple[MemberIdentity, ...]:
        """Return the group's members without plan carriers."""
        return tuple(
            MemberIdentity(m.member_id, m.client_id, m.client_host.lstrip("/"), m.group_instance_id)
            for m in self._describe_group()
            if m.client_id not in CARRIER_CLIENT_IDS
        )

    def describe_assignments(self) -> dict[str, ReceivedAssignment]:
        """Return the assignments of a stable group by member id, without user data and unreadable ones.

        They tell where partitions are to be, not who reads them: another leader's only round lists
        a partition with its next owner before the release. Readers are those who claim it when they join.
        """
        decoder = SubscriptionDecoder()
        assigned: dict[str, ReceivedAssignment] = {}
        for member in self._describe_group():
            with suppress(InvalidPayloadError):
                decoded = decoder.decode_assignment(bytes(member.member_assignment or b""))
                # another leader may have decided, with user data of its own
                assigned[member.member_id] = replace(decoded, user_data=None)
        return assigned

    def _describe_group(self) -> Sequence[Any]:
        request = DescribeGroupsRequest(groups=[self._settings.group], include_authorized_operations=False)
        (group,) = self._send(request, self._settings.timeout).groups
        _raise_for(group.error_code)
        members: Sequence[Any] = group.members
        return members

    def fetch_topics(self, names: Collection[str]) -> KnownTopics:
        """Return the partitions of these topics."""
        topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(names)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        response = self._send(request, self._settings.timeout, to_coordinator=False)
        found = {
            t.name: [p.partition_index for p in t.partitions] for t in response.topics if not t.error_code
        }
        failed = {t.name: t.error_code for t in response.topics if t.error_code}
        deleted = frozenset(name for name, code in failed.items() if code == _DELETED_TOPIC_CODE)
        unknown = {n: _explain_topic_error(n, code) for n, code in failed.items() if n not in deleted}
        return KnownTopics(found, deleted, unknown)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        self._coordinator.close()

    def _wait_for_members(self, request: Any) -> Any:
        """Return the response, however long the group's members take."""
        while True:  # a coordinator that has gone without a word answers no try; the next one finds another
            with suppress(kafka_errors.RequestTimedOutError):
                return self._send(request, JOIN_TIMEOUT_S)

    def _send(self, request: Any, timeout: float, *, to_coordinator: bool = True) -> Any:
        group = self._settings.group if to_coordinator else None
        response = self._coordinator.call(lambda admin: self._await(admin, group, request, timeout))
        _raise_for(getattr(response, "error_code", 0))
        return response

    def _await(self, admin: Any, group: str | None, request: Any, timeout: float) -> Any:
        """Return the response; the sidecar's stop ends the wait, which may last for minutes."""

        async def send() -> Any:
            node = None if group is None else await admin._find_coordinator_id(group)
            return await admin._manager.send(request, node_id=node, request_timeout_ms=timeout * 1000)

        answered = Event()
        future = admin._manager.call_soon(send)
        future.add_callback(lambda _response: answered.set())  # pyright: ignore[reportUnknownLambdaType]
        future.add_errback(lambda _error: answered.set())  # pyright: ignore[reportUnknownLambdaType]
        # kafka-python's IO loop keeps to its timeouts, of this request and of the one for the coordinator
        # before it, unless it has crashed
        deadline = self._clock.monotonic() + timeout + 2 * self._settings.timeout
        while not answered.wait(STOP_CHECK_INTERVAL_S):
            if self._stop.is_set():
                raise GroupRequestAbortedError("the sidecar stops before the group has answered")
            if self._clock.monotonic() >= deadline:
                raise kafka_errors.KafkaConnectionError("kafka-python has not answered in time")
        if future.exception is not None:
            raise future.exception
        return future.value


def _explain_topic_error(topic: str, code: int) -> str:
    error = kafka_errors.for_code(code)
    if error is kafka_errors.TopicAuthorizationFailedError:
        return f"grant Describe on topic {topic}"
    return f"topic {topic}: {error.__name__}"


def _raise_for(code: int) -> None:
    if code:
        raise kafka_errors.for_code(code)  # a class
