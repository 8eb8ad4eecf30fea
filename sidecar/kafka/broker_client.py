"""Requests to the brokers by confluent-kafka: cluster metadata, offsets, and one group.

1. A result may be partial: what no broker returned within the timeout is absent, and `errors` says
   why. An unreachable broker neither stops the loop nor looks like an idle partition.
2. A request to a group coordinator that is loading or moving is retried until the timeout.
"""

import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, admin
from confluent_kafka import KafkaError as KafkaErrors
from confluent_kafka import TopicPartition as RawPartition
from confluent_kafka.admin import AdminClient

from trimtab.assignor.model import TopicPartition
from trimtab.assignor.rebalance.consumer_protocol import MemberSubscription, SubscriptionDecoder
from trimtab.assignor.rebalance.user_data import MemberUserData
from trimtab.common.clock import Clock, SystemClock
from trimtab.common.errors import InvalidPayloadError
from trimtab.common.kafka_security import client_config
from trimtab.common.kafka_security.preflight import check_connection
from trimtab.common.suggestions import suggest_name
from trimtab.common.type_vars import ResultT
from trimtab.sidecar.errors import SidecarSettingError
from trimtab.sidecar.measurement.observation import GroupState, ObservedGroup, ObservedMember, ReplicaRacks
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
_UNTYPED_ADMIN: Any = admin  # OffsetSpec is documented, but not in the package's __all__
LATEST_OFFSET_SPEC: Final[Any] = _UNTYPED_ADMIN.OffsetSpec.latest()
EARLIEST_OFFSET_SPEC: Final[Any] = _UNTYPED_ADMIN.OffsetSpec.earliest()
CONNECTION_ERROR_CODES: Final = frozenset(  # of the client itself: no broker responded
    {KafkaErrors._TRANSPORT, KafkaErrors._TIMED_OUT, KafkaErrors._ALL_BROKERS_DOWN, KafkaErrors._RESOLVE}  # noqa: SLF001 - the names they are documented by
)
COORDINATOR_MOVING_CODES: Final = frozenset(
    {
        KafkaErrors.COORDINATOR_LOAD_IN_PROGRESS,  # a started broker reads the log of its groups first
        KafkaErrors.COORDINATOR_NOT_AVAILABLE,
        KafkaErrors.NOT_COORDINATOR,
    }
)
AUTHORIZATION_ERROR_CODES: Final = frozenset(
    {
        KafkaErrors.TOPIC_AUTHORIZATION_FAILED,
        KafkaErrors.CLUSTER_AUTHORIZATION_FAILED,
        KafkaErrors.GROUP_AUTHORIZATION_FAILED,
    }
)
NO_LEADER: Final = -1  # as librdkafka reports the leader of a partition without one
COORDINATOR_RETRY_INTERVAL_S: Final = 0.1
MAX_POLLED_EVENTS: Final = 100  # of the consumer, which only reports errors
LIST_OFFSETS_TIMEOUT_S: Final = 300.0
"""librdkafka's limit; we wait for `timeout` only.

librdkafka 2.16 corrupts the heap if it finds no leader within its limit, which slow metadata alone
can cause. So its limit is far above ours.
"""


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """Partitions and the brokers that lead them."""

    leaders: Mapping[TopicPartition, int]
    errors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """Offsets by partition; absent without a response."""

    values: Mapping[TopicPartition, int]
    errors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupCommits:
    """Committed offsets of a group and their metadata."""

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    metadata: Mapping[TopicPartition, str] = field(default_factory=dict[TopicPartition, str])
    is_known: bool = True  # false without a response
    errors: tuple[str, ...] = ()
    lags: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])  # of a share group


class BrokerClient:
    """Client of one group. Raises SidecarSettingError, SaslAuthenticationError, TlsHandshakeError."""

    def __init__(
        self, client: Mapping[str, Any], group: str, timeout: float, clock: Clock | None = None
    ) -> None:
        check_connection(client, timeout=timeout)
        try:
            self._admin = AdminClient(dict(client))
        except KafkaException as error:
            raise SidecarSettingError(_explain_rejected_setting(error)) from None
        self._consumer = Consumer({**client, "group.id": group, "enable.auto.commit": False})
        self._describe_denied = False
        self._leaders: Mapping[TopicPartition, int] = {}
        self._interned: dict[TopicPartition, TopicPartition] = {}
        self._replica_brokers: Mapping[TopicPartition, tuple[int, ...]] = {}
        self._group = group
        self._timeout = timeout
        self._clock = clock or SystemClock()

    @property
    def admin(self) -> AdminClient:
        """The shared admin client."""
        return self._admin

    def fetch_cluster_metadata(self) -> ClusterMetadata:
        """Return all partitions; none without a response."""
        try:
            topics = self._admin.list_topics(timeout=self._timeout).topics
        except KafkaException as error:
            return ClusterMetadata({}, (f"cluster metadata: {format_kafka_error(error)}",))
        leaders = {
            self._intern(name, number): partition.leader
            for name, topic in topics.items()
            if topic.error is None
            for number, partition in topic.partitions.items()
        }
        self._leaders = leaders
        self._replica_brokers = {p: tuple(topics[p.topic].partitions[p.partition].replicas) for p in leaders}
        return ClusterMetadata(leaders)

    def fetch_replica_racks(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[ReplicaRacks, tuple[str, ...]]:
        """Return the racks of the replicas, as of the last cluster metadata; None for unknown racks."""
        future = self._admin.describe_cluster(request_timeout=self._timeout)
        try:
            cluster = self._await(future, self._clock.monotonic() + self._timeout)
        except KafkaException as error:
            return {}, (f"racks of the brokers: {format_kafka_error(error)}",)
        racks = {node.id: node.rack for node in cluster.nodes}  # without the brokers that are down
        replicas = self._replica_brokers
        return {p: tuple(map(racks.get, replicas[p])) for p in partitions if p in replicas}, ()

    def fetch_end_offsets(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """Return the offset after the last record of each partition."""
        return self._list_offsets(partitions, LATEST_OFFSET_SPEC)

    def fetch_beginning_offsets(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """Return the offset of the first retained record of each partition."""
        return self._list_offsets(partitions, EARLIEST_OFFSET_SPEC)

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
        members = sorted((_parse_member(m, decoder) for m in consumers), key=lambda m: m.id)
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
                partition = self._intern(raw.topic, raw.partition)
                offsets[partition] = raw.offset
                metadata[partition] = _read_metadata(raw)
        return GroupCommits(offsets, {p: text for p, text in metadata.items() if text})

    def explain_missing_topic(self, topic: str) -> str:
        """Return why a topic is not in the cluster metadata."""
        return self.explain_hidden_topic(topic) or f"topic {topic!r} does not exist"

    def explain_hidden_topic(self, topic: str) -> str | None:
        """Return why a topic that may exist is not in the cluster metadata; None if it does not."""
        try:
            error = self._admin.list_topics(topic, timeout=self._timeout).topics[topic].error
        except KafkaException as failure:
            return f"topic {topic!r}: {format_kafka_error(failure)}"
        # a request for all topics omits those without Describe; one for a single topic reports it
        if error is not None and error.code() in AUTHORIZATION_ERROR_CODES:
            return f"topic {topic!r} is not visible: grant Describe on topic {topic}"
        return None

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
                is_moving = _get_error_code(error) in COORDINATOR_MOVING_CODES
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
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            groups: list[Any] = self._admin.list_groups(self._group, timeout=self._timeout)
        described = next((group for group in groups if group.id == self._group), None)
        if described is not None and described.error:
            raise KafkaException(described.error)
        return described

    def _list_offsets(self, partitions: Iterable[TopicPartition], spec: Any) -> PartitionOffsets:
        # One request per broker: librdkafka completes a request to several brokers only with the last
        # response. None for partitions without a leader, see LIST_OFFSETS_TIMEOUT_S.
        by_broker: dict[int, dict[RawPartition, Any]] = {}
        for partition in partitions:
            leader = self._leaders.get(partition, NO_LEADER)
            by_broker.setdefault(leader, {})[RawPartition(*partition)] = spec
        failed = [f"{raw.topic}-{raw.partition}: no leader" for raw in by_broker.pop(NO_LEADER, ())]
        requests = [  # sent at once, then awaited
            self._admin.list_offsets(request, request_timeout=LIST_OFFSETS_TIMEOUT_S)
            for request in by_broker.values()
        ]
        values: dict[TopicPartition, int] = {}
        deadline = self._clock.monotonic() + self._timeout
        for raw, future in (item for futures in requests for item in futures.items()):
            try:
                result = self._await(future, deadline)
            except KafkaException as error:
                failed.append(f"{raw.topic}-{raw.partition}: {format_kafka_error(error)}")
            else:
                values[self._intern(raw.topic, raw.partition)] = result.offset
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        return PartitionOffsets(values, (f"offsets of {failed[0]}{more}",) if failed else ())

    def _intern(self, topic: str, number: int) -> TopicPartition:
        # the windows of write rates keep thousands of keys for a long time: one object for each
        partition = TopicPartition(topic, number)
        return self._interned.setdefault(partition, partition)

    def _await(self, future: "Future[Any]", deadline: float) -> Any:
        try:
            return future.result(timeout=max(0.0, deadline - self._clock.monotonic()))
        except FutureTimeout:
            raise KafkaException("no response in time") from None


def format_kafka_error(error: KafkaException) -> str:
    """Return the error's text without its codes."""
    inner: Any = error.args[0] if error.args else error
    return str(inner.str()) if hasattr(inner, "str") else str(inner)


def format_error_with_grant(error: KafkaException, right: str) -> str:
    """Return the error's text, with the right to grant ("Read on topic t") if it is missing."""
    return format_kafka_error(error) + (f"; grant {right}" if is_authorization_error(error) else "")


def is_authorization_error(error: KafkaException) -> bool:
    """Return whether ACLs deny the request."""
    return _get_error_code(error) in AUTHORIZATION_ERROR_CODES


def explain_unreachable_brokers(error: KafkaException, bootstrap: str) -> str | None:
    """Return what to check if no broker was reached; None for any other error."""
    if _get_error_code(error) not in CONNECTION_ERROR_CODES:
        return None
    return (
        f"no Kafka broker answers at {bootstrap} ({format_kafka_error(error)}): is it running, and are "
        "the address (--bootstrap), security.protocol and the firewall right?"
    )


def _explain_rejected_setting(error: KafkaException) -> str:
    text = format_kafka_error(error)
    unknown = re.search(r'No such configuration property: "([^"]+)"', text)
    if unknown is not None:
        hint = suggest_name(unknown[1], client_config.SECURITY_SETTINGS)
        hint = hint or "; see its CONFIGURATION.md for names"
        return f"kafka: librdkafka has no setting {unknown[1]!r}{hint}"
    # librdkafka's text repeats the value, which may be a secret: only the name is kept
    rejected = re.search(r'(?:property|for) "([a-z][a-z0-9_.]*)"', text)
    name = repr(rejected[1]) if rejected else "one of the settings"
    return f"kafka: librdkafka does not take the value of {name}; see its CONFIGURATION.md"


def _read_metadata(raw: RawPartition) -> str | None:
    # librdkafka's copy of a partition does not end the text (its issue 4649), and franz-go commits some
    try:
        return raw.metadata
    except UnicodeDecodeError:
        return None


def _get_error_code(error: KafkaException) -> int | None:
    inner: Any = error.args[0] if error.args else None
    return int(inner.code()) if hasattr(inner, "code") else None


def _parse_member(member: Any, decoder: SubscriptionDecoder) -> ObservedMember:
    subscription, user_data = _parse_subscription(member.metadata, decoder)
    return ObservedMember(
        id=member.id,
        instance=member.client_id,
        owned_partitions=_parse_owned(member.assignment, decoder),
        # in the subscription since KIP-881, else in our user data
        rack=subscription.rack or user_data.rack or None,
        capacity=user_data.capacity,
        topics=frozenset(subscription.topics) or None,
        host=member.client_host.lstrip("/"),
    )


def _parse_owned(assignment: bytes | None, decoder: SubscriptionDecoder) -> frozenset[TopicPartition]:
    try:
        return frozenset(decoder.decode_assignment(assignment or b"").owned.list_partitions())
    except InvalidPayloadError:
        return frozenset()  # the group is rebalancing, or its leader uses another protocol


def _parse_subscription(
    metadata: bytes | None, decoder: SubscriptionDecoder
) -> tuple[MemberSubscription, MemberUserData]:
    """Return what a member has sent; nothing before it has joined, or of another protocol."""
    subscription = MemberSubscription()
    with suppress(InvalidPayloadError):
        subscription = decoder.decode(metadata or b"")
        return subscription, MemberUserData.decode(subscription.user_data)
    return subscription, MemberUserData()  # another assignor's user data is not ours
