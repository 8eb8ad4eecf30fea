"""Asks the brokers what `trimtab doctor` judges; changes nothing.

Whether something may be made is asked by a request that is validated only; what else is allowed the
brokers tell themselves (KIP-430), or by the authorization error of the call that is needed.
"""

import importlib.metadata
import socket
import warnings
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, admin
from confluent_kafka import TopicPartition as RawPartition
from confluent_kafka.cimpl import NewTopic

from trimtab.assignor.heuristics.registry import get_heuristic
from trimtab.common.choices import QueueKind
from trimtab.common.clock import Clock
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.common.errors import PeerError, SaslAuthenticationError, SettingError, TlsHandshakeError
from trimtab.common.kafka_security.preflight import diagnose_connection
from trimtab.common.kmq_offset_metadata import tracker_group
from trimtab.sidecar.diagnostics.doctor.checks import (
    Finding,
    FindingLevel,
    MemberMetadata,
    check_clock,
    check_control_topic,
    check_last_decision,
    check_plan_followed,
    check_rights,
    check_sidecar_clock,
)
from trimtab.sidecar.diagnostics.doctor.queue_checks import (
    TRACKERS_CHECK,
    check_markers_topic,
    check_trackers,
)
from trimtab.sidecar.diagnostics.doctor.rack_checks import check_racks, check_replica_selectors
from trimtab.sidecar.kafka.broker_client import BrokerClient, format_kafka_error, is_authorization_error
from trimtab.sidecar.kafka.control_topic_store import CONTROL_TOPIC_PARTITIONS, ControlTopicStore
from trimtab.sidecar.kafka.share_groups.share_group import ShareGroupClient, refuse_share_group
from trimtab.sidecar.measurement.cross_rack import compute_cross_rack_traffic
from trimtab.sidecar.measurement.group_monitor import match_topics
from trimtab.sidecar.settings.settings import SidecarSettings

_UNTYPED_ADMIN_SPECS: Any = admin  # these are documented, but not in the package's __all__
CONFIG_RESOURCE: Final[Any] = _UNTYPED_ADMIN_SPECS.ConfigResource
TOPIC_RESOURCE_TYPE: Final[Any] = _UNTYPED_ADMIN_SPECS.ResourceType.TOPIC
BROKER_RESOURCE_TYPE: Final[Any] = _UNTYPED_ADMIN_SPECS.ResourceType.BROKER
MAX_TIMESTAMP_SPEC: Final[Any] = _UNTYPED_ADMIN_SPECS.OffsetSpec.max_timestamp()
CLIENT_TIMEOUT_GRACE_S: Final = 1.0
"""Seconds to wait for librdkafka's own timeout to be reported."""


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic: its number of partitions, and the operations that are allowed, None if not told."""

    partitions: int
    allowed_operations: frozenset[str] | None


class BrokerChecks:
    """One look at everything that a sidecar needs of the brokers."""

    def __init__(self, settings: SidecarSettings, clock: Clock, brokers: BrokerClient) -> None:
        self._settings = settings
        self._clock = clock
        self._brokers = brokers
        self._admin = brokers.admin
        self._control_topics = ControlTopicStore(settings, brokers.admin)

    def run_checks(self) -> list[Finding]:
        """Look at the brokers first; where none answers nothing else can be told.

        Raises SaslAuthenticationError, TlsHandshakeError.
        """
        s = self._settings
        try:
            cluster: Any = self._await_result(self._admin.describe_cluster(request_timeout=s.timeout))
        except KafkaException as error:
            diagnose_connection(s.client_config, timeout=s.timeout)
            return _report_unreachable(
                f"none answers at {s.bootstrap}: {format_kafka_error(error)}",
                "check that one runs, the address, the firewall, security.protocol and login",
            )
        looks = (
            self._check_nodes(cluster.nodes),
            self._check_group(),
            self._check_topics(),
            self._check_racks(cluster.nodes),
            self._check_queue(),
            self._check_control_topics(),
        )
        return [*chain.from_iterable(looks), *self._check_plan()]

    def _check_nodes(self, nodes: Iterable[Any]) -> Iterable[Finding]:
        timeout, there = self._settings.timeout, list(nodes)
        away = [node for node in there if not _can_connect(node.host, node.port, timeout)]
        if away:
            named = ", ".join(f"{node.host}:{node.port}" for node in away)
            yield Finding(
                "brokers",
                FindingLevel.WRONG,
                f"told to be there, but not to be reached: {named}",
                "check advertised.listeners of the brokers, name resolution and the firewall",
            )
        else:
            yield Finding("brokers", FindingLevel.OK, f"{len(there)} reached")
        ours = importlib.metadata.version("trimtab")
        library = confluent_kafka.libversion()[0]
        yield Finding("versions", FindingLevel.OK, f"trimtab {ours}, librdkafka {library}")

    def _check_group(self) -> Iterable[Finding]:
        """Look at the group as what it is to be: a consumer group, or a share group."""
        name = self._settings.group
        try:
            if self._settings.queue is not QueueKind.SHARE:
                refuse_share_group(self._settings)
                yield from self._check_group_state(name, self._brokers)
                return
            with closing(ShareGroupClient(self._settings, self._clock)) as shared:
                yield from self._check_group_state(name, shared)
        except SettingError as error:
            yield Finding(f"group {name}", FindingLevel.WRONG, str(error), "mend queue, or group")

    def _check_group_state(self, name: str, group: BrokerClient | ShareGroupClient) -> Iterable[Finding]:
        refused = self._explain_refused_offsets(name)
        if refused is not None:
            yield Finding(f"group {name}", FindingLevel.WRONG, refused, f"grant Describe on group {name}")
            return
        view, trouble = group.describe_group()
        commits = group.fetch_group_commits()
        for text in (*trouble, *commits.trouble):
            yield Finding(f"group {name}", FindingLevel.WRONG, text, "ask again; see the brokers' log")
        if trouble or commits.trouble:
            return
        if not view.members and not commits.offsets:
            yield Finding(
                f"group {name}",
                FindingLevel.NOTE if self._settings.topics else FindingLevel.WRONG,
                "nobody is in it and it never committed",
                "check its name, start a consumer, or name its topics",
            )
            return
        state = f"{view.state}, {len(view.members)} members, {len(commits.offsets)} commits"
        yield Finding(f"group {name}", FindingLevel.OK, state)

    def _explain_refused_offsets(self, group: str) -> str | None:
        """Tell why a group's offsets may not be asked for; None where they may.

        A group that may not be described is not listed, as one that does not exist.
        """
        s = self._settings
        own = {"group.id": group, "enable.auto.commit": False}
        with closing(Consumer({**s.client_config, **own})) as reader:
            try:
                reader.committed([RawPartition(s.plan_topic, 0)], timeout=s.timeout)
            except KafkaException as error:
                return f"its offsets are not told: {format_kafka_error(error)}"
        return None

    def _check_topics(self) -> Iterable[Finding]:
        there = {p.topic for p in self._brokers.fetch_cluster_metadata().leaders}
        wanted, missing = match_topics(self._settings.topics, there)
        for name in missing:
            said, _, cure = self._brokers.explain_missing_topic(name).partition(": ")
            yield Finding("topics", FindingLevel.WRONG, said, cure or "make it, or mend its name")
        if not self._settings.topics:
            read = {p.topic for r in self._brokers.describe_group()[0].members for p in r.owned_partitions}
            wanted = frozenset(read or {p.topic for p in self._brokers.fetch_group_commits().offsets})
        reads = self._settings.source == "offsets"
        needed = ("Describe", "Read") if reads else ("Describe",)
        for topic in sorted(wanted):
            described = self._describe_topic(topic)
            if isinstance(described, Finding):
                yield described
            elif described is not None:
                yield check_rights(f"topic {topic}", needed, described.allowed_operations)

    def _check_queue(self) -> Iterable[Finding]:
        """Look at what a `kmq` queue has beside its topic: the markers, and the trackers."""
        s = self._settings
        if s.queue is not QueueKind.KMQ:
            return
        markers = self._describe_topic(s.markers_topic)
        if isinstance(markers, TopicDescription):
            messages = self._describe_topic(s.topics[0])
            count = messages.partitions if isinstance(messages, TopicDescription) else None
            yield check_markers_topic(
                s.markers_topic, markers.partitions, count, self._fetch_config(s.markers_topic)
            )
            yield check_rights(f"topic {s.markers_topic}", ("Describe",), markers.allowed_operations)
        else:
            yield markers or check_markers_topic(s.markers_topic, None, None, {})
        trackers = tracker_group(s.group)
        refused = self._explain_refused_offsets(trackers)
        if refused is not None:
            yield Finding(TRACKERS_CHECK, FindingLevel.WRONG, refused, f"grant Describe on group {trackers}")
            return
        try:
            yield check_trackers(self._count_topic_readers(trackers, s.markers_topic), s.topics[0], s.group)
        except KafkaException as error:
            yield Finding(
                TRACKERS_CHECK, FindingLevel.WRONG, f"not told: {format_kafka_error(error)}", "ask again"
            )

    def _count_topic_readers(self, group: str, topic: str) -> int:
        """Return how many of a group read a topic. Raises KafkaException."""
        asked = self._admin.describe_consumer_groups([group], request_timeout=self._settings.timeout)
        try:
            found: Any = self._await_result(asked[group])
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                return 0
            raise
        read = [{p.topic for p in m.assignment.topic_partitions} for m in found.members]
        return sum(topic in topics for topics in read)

    def _check_racks(self, nodes: Iterable[Any]) -> Iterable[Finding]:
        """Look at racks where a consumer says its own, or the heuristic weighs them."""
        weighed = get_heuristic(self._settings.effective_heuristic).weighs_racks
        readers = self._brokers.describe_group()[0].members
        read = {p.topic for reader in readers for p in reader.owned_partitions}
        speeds = {
            p: PartitionLoad() for p in self._brokers.fetch_cluster_metadata().leaders if p.topic in read
        }
        racks, _ = self._brokers.fetch_replica_racks(speeds)
        crossing = compute_cross_rack_traffic(readers, speeds, racks)
        if readers:
            yield from check_racks(crossing, is_rack_aware=weighed)
        if crossing is not None:
            selectors = {node.id: self._fetch_replica_selector(node.id) for node in nodes}
            yield check_replica_selectors(selectors, is_rack_aware=weighed)

    def _fetch_replica_selector(self, broker: int) -> str | None:
        config = self._fetch_config(str(broker), BROKER_RESOURCE_TYPE)
        return config.get("replica.selector.class", "") or "" if config else None

    def _check_control_topics(self) -> Iterable[Finding]:
        s = self._settings
        for topic in (s.plan_topic, s.write_rate_topic, s.decision_topic):
            yield self._check_topic_creatable(topic)
            described = self._describe_topic(topic)
            if isinstance(described, Finding):
                yield described
            elif described is None:
                yield Finding(
                    f"control topic {topic}", FindingLevel.NOTE, "not there; the first sidecar makes it"
                )
            else:
                config = self._fetch_config(topic)
                yield check_control_topic(topic, described.partitions, config.get("cleanup.policy"))
                needed = ("Describe", "Read", "Write")
                yield check_rights(f"topic {topic}", needed, described.allowed_operations)

    def _check_plan(self) -> Iterable[Finding]:
        try:
            plan, records = self._control_topics.read_plan(), self._control_topics.read_decisions()
            speeds = self._control_topics.read_write_rates()
        except PeerError as error:
            said, _, cure = str(error).partition("; grant ")
            yield Finding("plan", FindingLevel.WRONG, said, f"grant {cure}" if cure else "ask again")
            return
        now = self._clock.wall()
        last = next(reversed(records), None)
        told = {f"speeds of {topic}": s.time for topic, s in speeds.items()}
        told |= {} if last is None else {"the last verdict": last.until}
        appended = self._fetch_last_append_time() if last is not None else None
        told |= {} if appended is None else {"the broker": appended}
        yield check_clock(now, told)
        if last is not None and appended is not None:
            yield check_sidecar_clock(last.until, appended)
        yield check_last_decision(last, plan, now)
        if self._settings.queue is QueueKind.SHARE:
            return  # the broker alone says who gets what
        try:
            protocol, seats = self._fetch_members()
        except KafkaException:
            return  # the group is wrong, which was said
        yield check_plan_followed(plan, protocol, seats, self._brokers.fetch_cluster_metadata().leaders, now)

    def _describe_topic(self, topic: str) -> TopicDescription | Finding | None:
        """Return what the broker tells of a topic; None where there is none."""
        wanted = TopicCollection([topic])
        asked = self._admin.describe_topics(
            wanted, include_authorized_operations=True, request_timeout=self._settings.timeout
        )
        try:
            found: Any = self._await_result(asked[topic])
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            do = f"grant Describe on topic {topic}" if is_authorization_error(error) else "ask again"
            return Finding(f"topic {topic}", FindingLevel.WRONG, format_kafka_error(error), do)
        operations = found.authorized_operations
        allowed = None if operations is None else frozenset(_format_operation(o) for o in operations)
        return TopicDescription(len(found.partitions), allowed)

    def _check_topic_creatable(self, topic: str) -> Finding:
        """Ask whether the sidecar may make a topic, as it does at its start; none is made."""
        new = NewTopic(topic, CONTROL_TOPIC_PARTITIONS, self._settings.replication_factor)
        asked = self._admin.create_topics([new], validate_only=True, request_timeout=self._settings.timeout)
        part = f"making {topic}"
        try:
            self._await_result(asked[topic])
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                do = (
                    f"grant Create on topic {topic}"
                    if is_authorization_error(error)
                    else "mend what it names"
                )
                return Finding(part, FindingLevel.WRONG, format_kafka_error(error), do)
            return Finding(part, FindingLevel.OK, "it is there")
        return Finding(part, FindingLevel.OK, "allowed")

    def _fetch_config(self, name: str, kind: Any = TOPIC_RESOURCE_TYPE) -> Mapping[str, str | None]:
        """Return a topic's (or broker's) configuration; nothing where that is not allowed."""
        resource = CONFIG_RESOURCE(kind, name)
        asked = self._admin.describe_configs([resource], request_timeout=self._settings.timeout)
        try:
            found: Any = self._await_result(asked[resource])
        except KafkaException:
            return {}
        return {name: entry.value for name, entry in found.items()}

    def _fetch_last_append_time(self) -> float | None:
        """Return when the broker took the newest verdict, where it is the broker that says so."""
        topic = self._settings.decision_topic
        if self._fetch_config(topic).get("message.timestamp.type") != "LogAppendTime":
            return None
        partition = RawPartition(topic, 0)
        asked = self._admin.list_offsets(
            {partition: MAX_TIMESTAMP_SPEC}, request_timeout=self._settings.timeout
        )
        try:
            found: Any = self._await_result(asked[partition])
        except KafkaException:
            return None
        return found.timestamp / 1000 if found.timestamp > 0 else None

    def _fetch_members(self) -> tuple[str, dict[str, MemberMetadata]]:
        """Return the group's assignor and members; by the older call, as `brokers` does."""
        name, timeout = self._settings.group, self._settings.timeout
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            groups: list[Any] = self._admin.list_groups(name, timeout=timeout)
        group = next((g for g in groups if g.id == name), None)
        if group is None:
            return "", {}
        return group.protocol, {m.id: MemberMetadata(m.metadata, m.assignment) for m in group.members}

    def _await_result(self, future: "Future[Any]") -> Any:
        try:
            return future.result(timeout=self._settings.timeout + CLIENT_TIMEOUT_GRACE_S)
        except FutureTimeout:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None  # noqa: SLF001


def run_broker_checks(settings: SidecarSettings, clock: Clock) -> list[Finding]:
    """Return what is found of the brokers, the group, the topics and the sidecar."""
    try:
        brokers = BrokerClient(settings.client_config, settings.group, settings.timeout, clock)
        with closing(brokers):
            return BrokerChecks(settings, clock, brokers).run_checks()
    except (SaslAuthenticationError, TlsHandshakeError) as error:
        said, _, cure = str(error).rpartition("; ")
        return _report_unreachable(said, cure)


def _report_unreachable(says: str, do: str) -> list[Finding]:
    return [
        Finding("brokers", FindingLevel.WRONG, says, do),
        Finding("everything else", FindingLevel.SKIPPED, "nothing can be told without a broker"),
    ]


def _can_connect(host: str, port: int, timeout: float) -> bool:
    try:
        with socket.create_connection((host, port), timeout):
            return True
    except OSError:
        return False


def _format_operation(operation: Any) -> str:
    """Return an operation as Kafka's tools write it: "DescribeConfigs"."""
    return "".join(word.capitalize() for word in operation.name.split("_"))
