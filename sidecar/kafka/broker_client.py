"""Questions to the brokers through confluent-kafka; every answer may be partial.

What does not answer in time is absent from the answer, and `trouble` says so: a broker that is
away must neither stop the loop nor look like an idle partition.

A coordinator that is on its way (a broker that has just started loads the groups' log) is asked
again until the timeout: whoever looks once, as `trimtab record` does first, means its answer.

Offsets are asked of each broker on its own, and of no partition without a leader: librdkafka
answers a question to several brokers only when the last one has. Where it cannot find a leader in
time it corrupts the heap (2.16; a broker that takes long for its metadata suffices), so it has more
time than we wait.

The group's coordinator is asked by the older calls, `list_groups` and a consumer's `committed`.
The newer ones are not safe while brokers come and go (librdkafka 2.16, its issue 4605): asked while
the broker is away they abort the process, or never hear of that group again.
"""

import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaException, admin
from confluent_kafka import KafkaError as KafkaErrors
from confluent_kafka import TopicPartition as RawPartition
from confluent_kafka.admin import AdminClient
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from trimtab.assignor.model import TopicPartition
from trimtab.assignor.rebalance.consumer_protocol import SubscriptionDecoder
from trimtab.assignor.rebalance.user_data import MemberUserData
from trimtab.common.clock import Clock, SystemClock
from trimtab.common.errors import InvalidPayloadError
from trimtab.common.kafka_security import connection
from trimtab.common.kafka_security.preflight import check_connection
from trimtab.common.suggestions import suggest_name
from trimtab.sidecar.errors import SidecarSettingError
from trimtab.sidecar.measurement.observation import GroupState, ObservedGroup, ObservedMember, ReplicaRacks

GROUP_STATE_BY_NAME: Final = {
    "Stable": GroupState.STABLE,
    "Empty": GroupState.EMPTY,
    "Dead": GroupState.EMPTY,  # the broker forgot an empty group
    "PreparingRebalance": GroupState.REBALANCING,
    "CompletingRebalance": GroupState.REBALANCING,
}
_UNTYPED_ADMIN: Any = admin  # OffsetSpec is documented, but not in the package's __all__
LATEST_OFFSET_SPEC: Final[Any] = _UNTYPED_ADMIN.OffsetSpec.latest()
EARLIEST_OFFSET_SPEC: Final[Any] = _UNTYPED_ADMIN.OffsetSpec.earliest()
CONNECTION_ERROR_CODES: Final = frozenset(
    {
        KafkaErrors._TRANSPORT,  # noqa: SLF001 - the names they are documented by
        KafkaErrors._TIMED_OUT,  # noqa: SLF001 - as above
        KafkaErrors._ALL_BROKERS_DOWN,  # noqa: SLF001 - as above
        KafkaErrors._RESOLVE,  # noqa: SLF001 - as above
    }
)
"""Errors of the client itself: nobody was there to refuse anything."""

COORDINATOR_MOVING_CODES: Final = frozenset(
    {
        KafkaErrors.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaErrors.COORDINATOR_NOT_AVAILABLE,
        KafkaErrors.NOT_COORDINATOR,
    }
)
"""Answers of a broker that the group's coordinator is about to be on, or has just left."""

NO_LEADER: Final = -1
"""Leader of a partition that has none."""

COORDINATOR_RETRY_INTERVAL_S: Final = 0.1
"""Seconds between two questions to a coordinator that is on its way."""

AUTHORIZATION_ERROR_CODES: Final = frozenset(
    {
        KafkaErrors.TOPIC_AUTHORIZATION_FAILED,
        KafkaErrors.CLUSTER_AUTHORIZATION_FAILED,
        KafkaErrors.GROUP_AUTHORIZATION_FAILED,
    }
)
"""Answers of a broker whose ACLs do not allow what was asked."""

MAX_POLLED_EVENTS: Final = 100
"""Events that a reader may have waiting."""

LIST_OFFSETS_TIMEOUT_S: Final = 300.0
"""Seconds that librdkafka has to find leaders and ask for offsets; we wait for `timeout` only."""


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """Partitions of topics, and the broker that leads each."""

    leaders: Mapping[TopicPartition, int]
    trouble: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """Offsets by partition; a partition that did not answer is absent."""

    values: Mapping[TopicPartition, int]
    trouble: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupCommits:
    """Committed offsets of the group and their metadata; `is_known` is False where nobody answered.

    `lags` are the records that a group has to do where the broker itself counts them.
    """

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    metadata: Mapping[TopicPartition, str] = field(default_factory=dict[TopicPartition, str])
    is_known: bool = True
    trouble: tuple[str, ...] = ()
    lags: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])


class BrokerClient:
    """The cluster, asked about one group.

    Making it raises SidecarSettingError, SaslAuthenticationError, TlsHandshakeError.
    """

    def __init__(
        self, client: Mapping[str, Any], group: str, timeout: float, clock: Clock | None = None
    ) -> None:
        check_connection(client, timeout=timeout)
        try:
            self._admin = AdminClient(dict(client))
        except KafkaException as error:
            raise SidecarSettingError(_explain_rejected_setting(error)) from None
        self._consumer = Consumer({**client, "group.id": group, "enable.auto.commit": False})
        self._describe_denied = False  # the group may not be described
        self._leaders: Mapping[TopicPartition, int] = {}
        self._interned_partitions: dict[TopicPartition, TopicPartition] = {}
        self._replica_brokers: Mapping[TopicPartition, tuple[int, ...]] = {}
        self._group = group
        self._timeout = timeout
        self._clock = clock or SystemClock()

    @property
    def admin(self) -> AdminClient:
        """Return the client, for those who create topics."""
        return self._admin

    def fetch_cluster_metadata(self) -> ClusterMetadata:
        """Return every partition there is; none without an answer."""
        try:
            topics = self._admin.list_topics(timeout=self._timeout).topics
        except KafkaException as error:
            return ClusterMetadata({}, (f"cluster metadata: {format_kafka_error(error)}",))
        leaders = {
            self._intern_partition(name, number): partition.leader
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
        """Return the racks of the replicas of these, as of the last layout; nothing of others.

        A broker that is down tells no rack.
        """
        asked = self._admin.describe_cluster(request_timeout=self._timeout)
        try:
            cluster = self._await_result(asked, self._clock.monotonic() + self._timeout)
        except KafkaException as error:
            return {}, (f"racks of the brokers: {format_kafka_error(error)}",)
        rack = {node.id: node.rack for node in cluster.nodes}
        there = self._replica_brokers
        return {p: tuple(map(rack.get, there[p])) for p in partitions if p in there}, ()

    def fetch_end_offsets(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """Return the offset after the last record of each partition."""
        return self._list_offsets(partitions, LATEST_OFFSET_SPEC)

    def fetch_beginning_offsets(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """Return the offset of the first record there still is."""
        return self._list_offsets(partitions, EARLIEST_OFFSET_SPEC)

    def describe_group(self) -> tuple[ObservedGroup, tuple[str, ...]]:
        """Return the group as its coordinator describes it."""
        try:
            described = self._retry_until_coordinator_ready(self._find_group_description)
        except KafkaException as error:
            return ObservedGroup(), (f"group {self._group}: {format_kafka_error(error)}",)
        if described is None and self._is_describe_denied():
            return ObservedGroup(), (self._format_missing_grant(),)
        if described is None:
            return ObservedGroup(GroupState.EMPTY), ()
        self._describe_denied = False
        state = GROUP_STATE_BY_NAME.get(described.state, GroupState.UNKNOWN)
        decoder = SubscriptionDecoder()
        readers = sorted((_parse_member(m, decoder) for m in described.members), key=lambda r: r.id)
        return ObservedGroup(state, tuple(readers)), ()

    def fetch_group_commits(self, partitions: Iterable[TopicPartition] | None = None) -> GroupCommits:
        """Return what the group has committed of these, None for all that there are."""
        if partitions is None:
            partitions = self._leaders or self.fetch_cluster_metadata().leaders
        try:
            asked = [RawPartition(*partition) for partition in partitions]
            answered = (
                self._retry_until_coordinator_ready(lambda: self._fetch_committed(asked)) if asked else []
            )
        except KafkaException as error:
            said = (
                self._format_missing_grant()
                if self._is_describe_denied()
                else f"committed offsets: {format_kafka_error(error)}"
            )
            return GroupCommits(is_known=False, trouble=(said,))
        self._describe_denied = False
        offsets, notes = {}, {}
        for raw in answered:
            if raw.offset >= 0:  # else it never committed
                partition = self._intern_partition(raw.topic, raw.partition)
                offsets[partition] = raw.offset
                if raw.metadata:
                    notes[partition] = raw.metadata
        return GroupCommits(offsets, notes)

    def explain_missing_topic(self, topic: str) -> str:
        """Tell why a topic is not in the layout."""
        return self.explain_hidden_topic(topic) or f"topic {topic!r} does not exist"

    def explain_hidden_topic(self, topic: str) -> str | None:
        """Tell why a topic that may exist is not in the layout; None of one that does not."""
        try:
            error = self._admin.list_topics(topic, timeout=self._timeout).topics[topic].error
        except KafkaException as failed:
            return f"topic {topic!r}: {format_kafka_error(failed)}"
        if error is not None and error.code() in AUTHORIZATION_ERROR_CODES:
            return f"topic {topic!r} may not be seen: grant Describe on topic {topic}"
        return None

    def close(self) -> None:
        """Let the connections go."""
        self._consumer.close()

    def _is_describe_denied(self) -> bool:
        """Tell whether the group may not be described.

        A group that may not be is not listed, as one that does not exist, and its offsets are not
        told in time; that it is a matter of rights comes as an event of the reader.
        """
        for event in self._consumer.consume(MAX_POLLED_EVENTS, timeout=0):
            error = event.error()
            if error is not None and error.code() == KafkaErrors.GROUP_AUTHORIZATION_FAILED:
                self._describe_denied = True
        return self._describe_denied

    def _format_missing_grant(self) -> str:
        return f"group {self._group} may not be described: grant Describe on group {self._group}"

    def _retry_until_coordinator_ready(self, request: Callable[[], T]) -> T:
        """Ask, and again while the coordinator is on its way. Raises KafkaException."""
        deadline = self._clock.monotonic() + self._timeout
        while True:
            try:
                return request()
            except KafkaException as error:
                if (
                    _get_error_code(error) not in COORDINATOR_MOVING_CODES
                    or self._clock.monotonic() >= deadline
                ):
                    raise
            self._clock.sleep(COORDINATOR_RETRY_INTERVAL_S)

    def _fetch_committed(self, partitions: list[RawPartition]) -> list[RawPartition]:
        answered = self._consumer.committed(partitions, timeout=self._timeout)
        for raw in answered:
            if raw.error is not None:  # not the same as never committed
                raise KafkaException(raw.error)
        return answered

    def _find_group_description(self) -> Any:
        """Return the group's description, None for a group that nobody knows."""
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            found: list[Any] = self._admin.list_groups(self._group, timeout=self._timeout)
        described = next((group for group in found if group.id == self._group), None)
        if described is not None and described.error:
            raise KafkaException(described.error)
        return described

    def _list_offsets(self, partitions: Iterable[TopicPartition], spec: Any) -> PartitionOffsets:
        asked: dict[int, dict[RawPartition, Any]] = {}
        for partition in partitions:
            leader = self._leaders.get(partition, NO_LEADER)
            asked.setdefault(leader, {})[RawPartition(*partition)] = spec
        failed = [f"{raw.topic}-{raw.partition}: no leader" for raw in asked.pop(NO_LEADER, ())]
        values: dict[TopicPartition, int] = {}
        answers = [
            self._admin.list_offsets(a, request_timeout=LIST_OFFSETS_TIMEOUT_S) for a in asked.values()
        ]
        deadline = self._clock.monotonic() + self._timeout
        for raw, future in (item for answer in answers for item in answer.items()):
            try:
                found = self._await_result(future, deadline)
            except KafkaException as error:
                failed.append(f"{raw.topic}-{raw.partition}: {format_kafka_error(error)}")
            else:
                values[self._intern_partition(raw.topic, raw.partition)] = found.offset
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        return PartitionOffsets(values, (f"offsets of {failed[0]}{more}",) if failed else ())

    def _intern_partition(self, topic: str, number: int) -> TopicPartition:
        """Return the same object for the same partition: windows keep thousands for long."""
        partition = TopicPartition(topic, number)
        return self._interned_partitions.setdefault(partition, partition)

    def _await_result(self, future: "Future[Any]", deadline: float) -> Any:
        try:
            return future.result(timeout=max(0.0, deadline - self._clock.monotonic()))
        except FutureTimeout:
            raise KafkaException("no answer in time") from None


def format_kafka_error(error: KafkaException) -> str:
    """Return what the client says went wrong, without its codes."""
    inner: Any = error.args[0] if error.args else error
    return str(inner.str()) if hasattr(inner, "str") else str(inner)


def format_error_with_grant(error: KafkaException, right: str) -> str:
    """Return what went wrong, and the right to grant where one is missing: "Read on topic t"."""
    return format_kafka_error(error) + (f"; grant {right}" if is_authorization_error(error) else "")


def is_authorization_error(error: KafkaException) -> bool:
    """Tell whether the brokers' ACLs do not allow what was asked."""
    return _get_error_code(error) in AUTHORIZATION_ERROR_CODES


def explain_unreachable_brokers(error: KafkaException, bootstrap: str) -> str | None:
    """Return what to check where no broker was reached at all; None for any other error."""
    if _get_error_code(error) not in CONNECTION_ERROR_CODES:
        return None
    return (
        f"no Kafka broker answers at {bootstrap} ({format_kafka_error(error)}): is it "
        "running, and are the "
        "address (--bootstrap), security.protocol and the firewall right?"
    )


def _explain_rejected_setting(error: KafkaException) -> str:
    """Return what librdkafka does not take of its settings, without the value."""
    said = format_kafka_error(error)
    unknown = re.search(r'No such configuration property: "([^"]+)"', said)
    if unknown is not None:
        hint = suggest_name(unknown[1], connection.SECURITY_SETTINGS)
        hint = hint or "; see its CONFIGURATION.md for names"
        return f"kafka: librdkafka has no setting {unknown[1]!r}{hint}"
    wrong = re.search(r'(?:property|for) "([a-z][a-z0-9_.]*)"', said)
    named = repr(wrong[1]) if wrong else "one of the settings"
    return f"kafka: librdkafka does not take the value of {named}; see its CONFIGURATION.md"


def _get_error_code(error: KafkaException) -> int | None:
    inner: Any = error.args[0] if error.args else None
    return int(inner.code()) if hasattr(inner, "code") else None


def _parse_member(member: Any, decoder: SubscriptionDecoder) -> ObservedMember:
    assigned = ConsumerProtocolAssignment.decode(member.assignment) if member.assignment else None
    topics = () if assigned is None else assigned.assigned_partitions
    owned = frozenset(TopicPartition(t.topic, p) for t in topics for p in t.partitions)
    return ObservedMember(member.id, member.client_id, owned, _parse_member_rack(member.metadata, decoder))


def _parse_member_rack(metadata: bytes | None, decoder: SubscriptionDecoder) -> str | None:
    """Return the rack that a member says in its subscription (KIP-881), or in our user data."""
    try:
        said = decoder.decode(metadata or b"")
        return said.rack or MemberUserData.decode(said.user_data).rack or None
    except InvalidPayloadError:
        return None  # it has not joined yet, or is another assignor's
