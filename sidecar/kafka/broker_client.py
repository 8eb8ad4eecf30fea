"""Requests to the brokers by confluent-kafka: those of `cluster_client`, and one group.

A request to a group coordinator that is loading or moving is retried until the timeout.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import KafkaError as KafkaErrors
from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.model import TopicPartition
from trimtab.assignor.model.partition_index import OwnedPartitions
from trimtab.assignor.rebalance.consumer_protocol import (
    MemberSubscription,
    ReceivedAssignment,
    SubscriptionDecoder,
)
from trimtab.assignor.rebalance.user_data import AssignmentUserData, MemberUserData
from trimtab.common.clock import Clock
from trimtab.common.errors import InvalidPayloadError
from trimtab.common.type_vars import ResultT
from trimtab.sidecar.kafka.cluster_client import ClusterClient, format_kafka_error, get_error_code
from trimtab.sidecar.model.observation import GroupState, ObservedGroup, ObservedMember
from trimtab.sidecar.plan_carrier import CARRIER_CLIENT_IDS

GROUP_STATE_BY_NAME: Final = {
    "Stable": GroupState.STABLE,
    "Empty": GroupState.EMPTY,
    "Dead": GroupState.EMPTY,  # the broker forgot an empty group
    "PreparingRebalance": GroupState.REBALANCING,
    "CompletingRebalance": GroupState.REBALANCING,
    "Assigning": GroupState.REBALANCING,  # KIP-848: the broker computes the target
    "Reconciling": GroupState.REBALANCING,  # members revoke and receive partitions
}
COORDINATOR_MOVING_CODES: Final = frozenset(
    {
        KafkaErrors.COORDINATOR_LOAD_IN_PROGRESS,  # a started broker reads the log of its groups first
        KafkaErrors.COORDINATOR_NOT_AVAILABLE,
        KafkaErrors.NOT_COORDINATOR,
    }
)
COORDINATOR_RETRY_INTERVAL_S: Final = 0.1
MAX_POLLED_EVENTS: Final = 100  # of the consumer, which only reports errors


@dataclass(frozen=True, slots=True)
class GroupCommits:
    """Committed offsets of a group and their metadata."""

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    metadata: Mapping[TopicPartition, str] = field(default_factory=dict[TopicPartition, str])
    is_known: bool = True  # false without a response
    errors: tuple[str, ...] = ()
    lags: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])  # of a share group


class BrokerClient(ClusterClient):
    """Client of one group. Raises SidecarSettingError, SaslAuthenticationError, TlsHandshakeError."""

    def __init__(
        self, client: Mapping[str, Any], group: str, timeout: float, clock: Clock | None = None
    ) -> None:
        super().__init__(client, timeout, clock)
        self._consumer = Consumer({**client, "group.id": group, "enable.auto.commit": False})
        self._describe_denied = False
        self._group = group

    def describe_group(self) -> tuple[ObservedGroup, tuple[str, ...]]:
        """Return the group and errors; the group is unknown after a failure."""
        try:
            described = self._retry(self._find_group)
        except KafkaException as error:
            return ObservedGroup(), (f"group {self._group}: {format_kafka_error(error)}",)
        if described is None and self._is_describe_denied():
            return ObservedGroup(), (self._explain_denied(),)
        if described is None:
            return ObservedGroup(GroupState.EMPTY), ()
        self._describe_denied = False
        state = GROUP_STATE_BY_NAME.get(described.state, GroupState.UNKNOWN)
        decoder = SubscriptionDecoder()
        consumers = [m for m in described.members if m.client_id not in CARRIER_CLIENT_IDS]
        if described.members and not consumers:
            return ObservedGroup(GroupState.EMPTY), ()  # but for a sidecar that leads it
        members = sorted((_parse_described(m, decoder) for m in consumers), key=lambda m: m.id)
        return ObservedGroup(state, tuple(members)), ()

    def fetch_group_commits(self, partitions: Iterable[TopicPartition] | None = None) -> GroupCommits:
        """Return the group's commits of these partitions; of all if None."""
        if partitions is None:
            partitions = self._leaders or self.fetch_cluster_metadata().leaders
        requested = [RawPartition(*partition) for partition in partitions]
        try:
            committed = self._retry(lambda: self._fetch_committed(requested)) if requested else []
        except KafkaException as error:
            # a group without Describe is reported as a timeout; the reason is in the consumer's events
            denied = self._is_describe_denied()
            text = self._explain_denied() if denied else f"committed offsets: {format_kafka_error(error)}"
            return GroupCommits(is_known=False, errors=(text,))
        self._describe_denied = False
        offsets, metadata = {}, {}
        for raw in committed:
            if raw.offset >= 0:  # negative: no commit
                partition = self.intern(raw.topic, raw.partition)
                offsets[partition] = raw.offset
                metadata[partition] = _read_metadata(raw)
        return GroupCommits(offsets, {p: text for p, text in metadata.items() if text})

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def _is_describe_denied(self) -> bool:
        # list_groups omits a group without Describe, as if it did not exist, and OffsetFetch times
        # out; librdkafka reports the authorization error as an event of the consumer only
        for event in self._consumer.consume(MAX_POLLED_EVENTS, timeout=0):
            error = event.error()
            if error is not None and error.code() == KafkaErrors.GROUP_AUTHORIZATION_FAILED:
                self._describe_denied = True
        return self._describe_denied

    def _explain_denied(self) -> str:
        return f"group {self._group} is not readable: grant Describe on group {self._group}"

    def _retry(self, request: Callable[[], ResultT]) -> ResultT:
        """Send a request; again while the coordinator is moving. Raises KafkaException."""
        deadline = self._clock.monotonic() + self._timeout
        while True:
            try:
                return request()
            except KafkaException as error:
                is_moving = get_error_code(error) in COORDINATOR_MOVING_CODES
                if not is_moving or self._clock.monotonic() >= deadline:
                    raise
            self._clock.sleep(COORDINATOR_RETRY_INTERVAL_S)

    def _fetch_committed(self, partitions: list[RawPartition]) -> list[RawPartition]:
        # AdminClient.list_consumer_group_offsets is unsafe, as describe_consumer_groups below
        committed = self._consumer.committed(partitions, timeout=self._timeout)
        for raw in committed:
            if raw.error is not None:  # offset -1001, too, like a partition without a commit
                raise KafkaException(raw.error)
        return committed

    def _find_group(self) -> Any:
        # Not describe_consumer_groups: if the coordinator is down or restarts, librdkafka 2.16 aborts
        # the process, or never receives a response for that group again (its issue 4605).
        groups: list[Any] = self._admin.list_groups(self._group, timeout=self._timeout)
        described = next((group for group in groups if group.id == self._group), None)
        if described is not None and described.error:
            raise KafkaException(described.error)
        return described


def _read_metadata(raw: RawPartition) -> str | None:
    # librdkafka's copy of a partition does not end the text (its issue 4649), and franz-go commits some
    try:
        return raw.metadata
    except UnicodeDecodeError:
        return None


def _parse_described(member: Any, decoder: SubscriptionDecoder) -> ObservedMember:
    return parse_member(
        member.id, member.client_id, member.client_host, member.metadata, member.assignment, decoder
    )


def parse_member(
    member_id: str,
    client_id: str,
    host: str,
    metadata: bytes | None,
    assignment: bytes | None,
    decoder: SubscriptionDecoder,
) -> ObservedMember:
    """Return a member of a classic group from what the coordinator tells."""
    subscription, user_data = _parse_subscription(metadata, decoder)
    received, placement = _parse_assignment(assignment, decoder)
    return ObservedMember(
        id=member_id,
        instance=client_id,
        owned_partitions=frozenset(received.owned.list_partitions()),
        # in the subscription since KIP-881, else in our user data
        rack=subscription.rack or user_data.rack or None,
        capacity=user_data.capacity,
        topics=frozenset(subscription.topics) or None,
        host=host.lstrip("/"),
        promised_partitions=placement.list_early(),
        decision_fingerprint=placement.decision_fingerprint,
    )


def _parse_assignment(
    assignment: bytes | None, decoder: SubscriptionDecoder
) -> tuple[ReceivedAssignment, AssignmentUserData]:
    """Return what a member has been assigned; nothing in a rebalance, or of another protocol's leader."""
    received = ReceivedAssignment(OwnedPartitions(), None)
    with suppress(InvalidPayloadError):
        received = decoder.decode_assignment(assignment or b"")
        return received, AssignmentUserData.decode(received.user_data)
    return received, AssignmentUserData()  # another assignor's user data is not ours


def _parse_subscription(
    metadata: bytes | None, decoder: SubscriptionDecoder
) -> tuple[MemberSubscription, MemberUserData]:
    """Return what a member has sent; nothing before it has joined, or of another protocol."""
    subscription = MemberSubscription()
    with suppress(InvalidPayloadError):
        subscription = decoder.decode(metadata or b"")
        return subscription, MemberUserData.decode(subscription.user_data)
    return subscription, MemberUserData()  # another assignor's user data is not ours
