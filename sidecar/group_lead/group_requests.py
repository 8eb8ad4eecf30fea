"""Requests of a classic group's member (JoinGroup, SyncGroup, Heartbeat, LeaveGroup).

With JoinGroup 9 (KIP-814, Kafka 3.2) a
static member that returns learns whether it leads; with LeaveGroup 3 (KIP-345, Kafka 2.4) it may ask
another member to leave.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Event
from typing import Any, Final

from trimtab.assignor.rebalance.consumer_protocol import ReceivedAssignment, SubscriptionDecoder
from trimtab.common.clock import Clock
from trimtab.common.errors import InvalidPayloadError
from trimtab.common.kafka_protocol import apis
from trimtab.common.kafka_protocol.apis import Api
from trimtab.common.kafka_protocol.errors import (
    FencedInstanceError,
    RequestTimeoutError,
    TopicDeniedError,
    UnknownMemberError,
    UnknownTopicError,
    name_code,
    raise_for_code,
)
from trimtab.sidecar.group_lead.lead_round import KnownTopics
from trimtab.sidecar.kafka.brokers import connect_brokers
from trimtab.sidecar.model.member_names import MemberIdentity
from trimtab.sidecar.plan_carrier import CARRIER_CLIENT_IDS, LEAD_CLIENT_ID
from trimtab.sidecar.settings.settings import SidecarSettings

PROTOCOL_TYPE: Final = "consumer"
REBALANCE_TIMEOUT_S: Final = 10.0  # of this member; the group waits for the longest of its members
JOIN_TIMEOUT_S: Final = 60.0  # of one try; the broker may answer after many minutes
_GONE_MEMBER_CODES: Final = frozenset({UnknownMemberError.code, FencedInstanceError.code})


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
    """Requests of one member; for one thread. All raise KafkaRequestError."""

    def __init__(self, settings: SidecarSettings, clock: Clock, stop: Event) -> None:
        self._settings = settings
        self._brokers = connect_brokers(settings, clock, LEAD_CLIENT_ID)
        self._stop = stop

    def join(self, member_id: str, metadata: bytes) -> GroupGeneration:
        """Join and wait until all members have joined; an empty member id takes the static id over."""
        s = self._settings
        fields = {
            "session_timeout_ms": round(s.lead_session_timeout * 1000),
            "rebalance_timeout_ms": round(REBALANCE_TIMEOUT_S * 1000),
            "member_id": member_id,
            "group_instance_id": LEAD_CLIENT_ID,
            "protocol_type": PROTOCOL_TYPE,
            "protocols": [{"name": name, "metadata": metadata} for name in s.lead_assignors],
        }
        r = self._wait_for_members(apis.JOIN_GROUP, fields)
        members = {m.member_id: m.metadata for m in r.members}
        leads = r.leader == r.member_id
        return GroupGeneration(
            r.generation_id,
            r.member_id,
            r.leader,
            r.protocol_name or "",
            r.skip_assignment,
            members if leads else None,
        )

    def sync(self, joined: GroupGeneration, assignments: Mapping[str, bytes]) -> None:
        """Hand over the assignments (none of a follower) and wait for the leader's."""
        named = [{"member_id": member, "assignment": data} for member, data in assignments.items()]
        protocol = {"protocol_type": PROTOCOL_TYPE, "protocol_name": joined.assignor}
        fields = {**_identify(joined), **protocol, "assignments": named}
        self._wait_for_members(apis.SYNC_GROUP, fields)

    def heartbeat(self, joined: GroupGeneration) -> None:
        """Keep this member in the group. Raises RebalanceInProgressError if it is to join again."""
        self._ask_coordinator(apis.HEARTBEAT, _identify(joined))

    def remove_members(self, members: Iterable[MemberIdentity], reason: str) -> None:
        """Make other members leave, in this order; they join again unless their clients are stopped."""
        identities = [
            {"member_id": m.id, "group_instance_id": m.instance_id, "reason": reason} for m in members
        ]
        response = self._ask_coordinator(apis.LEAVE_GROUP, {"members": identities})
        for one in response.members:
            if one.error_code not in _GONE_MEMBER_CODES:
                raise_for_code(one.error_code)

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
                decoded = decoder.decode_assignment(member.member_assignment)
                # another leader may have decided, with user data of its own
                assigned[member.member_id] = replace(decoded, user_data=None)
        return assigned

    def _describe_group(self) -> Sequence[Any]:
        wanted = {"groups": [self._settings.group]}
        (group,) = self._brokers.ask_coordinator(self._settings.group, apis.DESCRIBE_GROUPS, wanted).groups
        raise_for_code(group.error_code)
        members: Sequence[Any] = group.members
        return members

    def fetch_topics(self, names: Collection[str]) -> KnownTopics:
        """Return the partitions of these topics."""
        response = self._brokers.ask(apis.METADATA, {"topics": [{"name": name} for name in sorted(names)]})
        found = {
            t.name: [p.partition_index for p in t.partitions] for t in response.topics if not t.error_code
        }
        failed = {t.name: t.error_code for t in response.topics if t.error_code}
        deleted = frozenset(name for name, code in failed.items() if code == UnknownTopicError.code)
        unknown = {n: _explain_topic_error(n, code) for n, code in failed.items() if n not in deleted}
        return KnownTopics(found, deleted, unknown)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        self._brokers.close()

    def _wait_for_members(self, api: Api, fields: Mapping[str, Any]) -> Any:
        """Return the response, however long the group's members take."""
        while True:  # a coordinator that has gone without a word answers no try; the next one finds another
            with suppress(RequestTimeoutError):
                return self._ask_coordinator(api, fields, JOIN_TIMEOUT_S)

    def _ask_coordinator(self, api: Api, fields: Mapping[str, Any], timeout: float | None = None) -> Any:
        """Return the response; the sidecar's stop ends the wait, which may last for minutes."""
        group = self._settings.group
        named = {"group_id": group, **fields}
        return self._brokers.ask_coordinator(group, api, named, timeout=timeout, is_stopped=self._stop.is_set)


def _identify(joined: GroupGeneration) -> dict[str, Any]:
    return {
        "generation_id": joined.generation,
        "member_id": joined.member_id,
        "group_instance_id": LEAD_CLIENT_ID,
    }


def _explain_topic_error(topic: str, code: int) -> str:
    return (
        f"grant Describe on topic {topic}"
        if code == TopicDeniedError.code
        else f"topic {topic}: {name_code(code)}"
    )
