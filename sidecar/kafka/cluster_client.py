"""Requests to the brokers by confluent-kafka that concern no group: cluster metadata and offsets.

A result may be partial: what no broker returned within the timeout is absent, and `errors` says why. An
unreachable broker neither stops the loop nor looks like an idle partition.
"""

import re
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaException, admin
from confluent_kafka import KafkaError as KafkaErrors
from confluent_kafka import TopicPartition as RawPartition
from confluent_kafka.admin import AdminClient

from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import Clock, SystemClock
from trimtab.common.errors import suggest_name
from trimtab.common.kafka_security import client_config
from trimtab.common.kafka_security.preflight import check_connection
from trimtab.common.librdkafka_settings import NO_TOPIC_CREATION
from trimtab.sidecar.errors import SidecarSettingError
from trimtab.sidecar.model.observation import ReplicaRacks

_UNTYPED_ADMIN: Any = admin  # OffsetSpec is documented, but not in the package's __all__
LATEST_OFFSET_SPEC: Final[Any] = _UNTYPED_ADMIN.OffsetSpec.latest()
EARLIEST_OFFSET_SPEC: Final[Any] = _UNTYPED_ADMIN.OffsetSpec.earliest()
CONNECTION_ERROR_CODES: Final = frozenset(  # of the client itself: no broker responded
    {KafkaErrors._TRANSPORT, KafkaErrors._TIMED_OUT, KafkaErrors._ALL_BROKERS_DOWN, KafkaErrors._RESOLVE}  # noqa: SLF001 - the names they are documented by
)
AUTHORIZATION_ERROR_CODES: Final = frozenset(
    {
        KafkaErrors.TOPIC_AUTHORIZATION_FAILED,
        KafkaErrors.CLUSTER_AUTHORIZATION_FAILED,
        KafkaErrors.GROUP_AUTHORIZATION_FAILED,
    }
)
NO_LEADER: Final = -1  # as librdkafka reports the leader of a partition without one
LIST_OFFSETS_TIMEOUT_S: Final = 300.0
"""librdkafka's limit; we wait for `timeout` only.

librdkafka 2.16 corrupts the heap if it finds no leader within its limit, which slow metadata alone
can cause. So its limit is far above ours.
"""


@dataclass(frozen=True)
class ClusterMetadata:
    """Partitions and the brokers that lead them."""

    leaders: Mapping[TopicPartition, int]
    errors: tuple[str, ...] = ()

    @cached_property
    def leaders_by_topic(self) -> Mapping[str, Mapping[TopicPartition, int]]:
        """Return the leaders of each topic."""
        by_topic: dict[str, dict[TopicPartition, int]] = {}
        for partition, broker in self.leaders.items():
            by_topic.setdefault(partition.topic, {})[partition] = broker
        return by_topic

    def select_leaders(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        """Return the leaders of these topics' partitions."""
        return {p: b for t in sorted(topics) for p, b in self.leaders_by_topic.get(t, {}).items()}


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """Offsets by partition; absent without a response."""

    values: Mapping[TopicPartition, int]
    errors: tuple[str, ...] = ()
    read_at: float | None = None  # monotonic, in the middle of the request; None: just now


class OffsetRequest:
    """Offsets requested of all leaders at once. `collect` may be called by several threads."""

    def __init__(self, clock: Clock, timeout: float) -> None:
        self._clock = clock
        self._sent_at = clock.monotonic()
        self._deadline = self._sent_at + timeout
        self._futures: dict[TopicPartition, tuple[int, Future[Any]]] = {}  # with the leader
        self._answered_at: dict[int, float] = {}  # by leader

    def add_futures(self, leader: int, futures: "Mapping[TopicPartition, Future[Any]]") -> None:
        """Add the results that this leader will give."""
        self._futures.update((p, (leader, future)) for p, future in futures.items())
        for future in futures.values():  # one is enough: a leader answers for all of them at once
            future.add_done_callback(lambda _: self._answered_at.setdefault(leader, self._clock.monotonic()))
            break

    def __contains__(self, partition: TopicPartition) -> bool:
        """Return whether the partition's offset was requested."""
        return partition in self._futures

    def peek(self, partition: TopicPartition) -> int | None:
        """Return the partition's offset if it has arrived, without waiting."""
        future = self._futures.get(partition, (NO_LEADER, None))[1]
        if future is None or not future.done() or future.exception() is not None:
            return None
        return int(future.result().offset)

    def collect(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """Wait for the offsets of these partitions, until the timeout of the request."""
        values: dict[TopicPartition, int] = {}
        failed: list[str] = []
        leaders: set[int] = set()
        for partition in partitions:
            if partition not in self._futures:
                failed.append(f"{partition.topic}-{partition.partition}: no leader")
                continue
            leader, future = self._futures[partition]
            leaders.add(leader)
            try:
                values[partition] = await_future(future, self._deadline - self._clock.monotonic()).offset
            except KafkaException as error:
                failed.append(f"{partition.topic}-{partition.partition}: {format_kafka_error(error)}")
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        answers = [self._answered_at[leader] for leader in leaders if leader in self._answered_at]
        read_at = (self._sent_at + max(answers, default=self._sent_at)) / 2
        return PartitionOffsets(values, (f"offsets of {failed[0]}{more}",) if failed else (), read_at)


class ClusterClient:
    """Client of one cluster. Raises SidecarSettingError, SaslAuthenticationError, TlsHandshakeError."""

    def __init__(self, client: Mapping[str, Any], timeout: float, clock: Clock | None = None) -> None:
        check_connection(client, timeout=timeout)
        try:
            self._admin = AdminClient({**client, **NO_TOPIC_CREATION})
        except KafkaException as error:
            raise SidecarSettingError(_explain_rejected_setting(error)) from None
        self._leaders: Mapping[TopicPartition, int] = {}
        self._interned: dict[TopicPartition, TopicPartition] = {}
        self._replica_brokers: Mapping[TopicPartition, tuple[int, ...]] = {}
        self._bootstrap = str(client.get("bootstrap.servers", ""))
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
            text = explain_unreachable_brokers(error, self._bootstrap) or format_kafka_error(error)
            return ClusterMetadata({}, (f"cluster metadata: {text}",))
        leaders = {
            self.intern(name, number): partition.leader
            for name, topic in topics.items()
            if topic.error is None
            for number, partition in topic.partitions.items()
        }
        self._leaders = leaders
        self._interned = {p: p for p in leaders}  # without the partitions of deleted topics
        self._replica_brokers = {p: tuple(topics[p.topic].partitions[p.partition].replicas) for p in leaders}
        return ClusterMetadata(leaders)

    def fetch_replica_racks(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[ReplicaRacks, tuple[str, ...]]:
        """Return the racks of the replicas, as of the last cluster metadata; None for unknown racks."""
        future = self._admin.describe_cluster(request_timeout=self._timeout)
        try:
            cluster = await_future(future, self._timeout)
        except KafkaException as error:
            return {}, (f"racks of the brokers: {format_kafka_error(error)}",)
        racks = {node.id: node.rack for node in cluster.nodes}  # without the brokers that are down
        replicas = self._replica_brokers
        return {p: tuple(map(racks.get, replicas[p])) for p in partitions if p in replicas}, ()

    def fetch_end_offsets(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """Return the offset after the last record of each partition."""
        wanted = tuple(partitions)
        return self.request_end_offsets(wanted).collect(wanted)

    def fetch_beginning_offsets(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """Return the offset of the first retained record of each partition."""
        wanted = tuple(partitions)
        return self.request_beginning_offsets(wanted).collect(wanted)

    def fetch_stable_offsets(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """Return the last stable offset of each partition: that of the first open transaction, or the end."""
        wanted = tuple(partitions)
        request = self._request_offsets(wanted, LATEST_OFFSET_SPEC, IsolationLevel.READ_COMMITTED)
        return request.collect(wanted)

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

    def request_end_offsets(self, partitions: Iterable[TopicPartition]) -> OffsetRequest:
        """Send requests for the offset after the last record of each partition; do not wait."""
        return self._request_offsets(partitions, LATEST_OFFSET_SPEC)

    def request_beginning_offsets(self, partitions: Iterable[TopicPartition]) -> OffsetRequest:
        """Send requests for the offset of the first retained record of each partition; do not wait."""
        return self._request_offsets(partitions, EARLIEST_OFFSET_SPEC)

    def _request_offsets(
        self,
        partitions: Iterable[TopicPartition],
        spec: Any,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> OffsetRequest:
        # One request per broker: librdkafka completes a request to several brokers only with the last
        # response. None for partitions without a leader, see LIST_OFFSETS_TIMEOUT_S.
        by_broker: dict[int, dict[RawPartition, Any]] = {}
        for partition in partitions:
            leader = self._leaders.get(partition, NO_LEADER)
            by_broker.setdefault(leader, {})[RawPartition(*partition)] = spec
        by_broker.pop(NO_LEADER, None)
        request = OffsetRequest(self._clock, self._timeout)
        for leader, raws in by_broker.items():
            limits = {"request_timeout": LIST_OFFSETS_TIMEOUT_S, "isolation_level": isolation}
            futures = self._admin.list_offsets(raws, **limits)
            request.add_futures(
                leader, {self.intern(raw.topic, raw.partition): future for raw, future in futures.items()}
            )
        return request

    def intern(self, topic: str, number: int) -> TopicPartition:
        """Return the one object of this partition."""
        # the windows of write rates keep thousands of keys for a long time: one object for each
        partition = TopicPartition(topic, number)
        return self._interned.setdefault(partition, partition)


def await_future(future: "Future[Any]", seconds: float) -> Any:
    """Return the result. Raises KafkaException if it does not come in time, or is an error."""
    try:
        return future.result(timeout=max(0.0, seconds))
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
    return get_error_code(error) in AUTHORIZATION_ERROR_CODES


def explain_unreachable_brokers(error: KafkaException, bootstrap: str) -> str | None:
    """Return what to check if no broker was reached; None for any other error."""
    if get_error_code(error) not in CONNECTION_ERROR_CODES:
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


def get_error_code(error: KafkaException) -> int | None:
    """Return the error's code; None without one."""
    inner: Any = error.args[0] if error.args else None
    return int(inner.code()) if hasattr(inner, "code") else None
