"""Checks of `trimtab doctor` that query the brokers. They change nothing."""

import importlib.metadata
import socket
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
from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import Clock
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.common.errors import PeerError, SaslAuthenticationError, SettingError, TlsHandshakeError
from trimtab.common.kafka_security.preflight import diagnose_connection
from trimtab.common.kmq_offset_metadata import tracker_group
from trimtab.common.settings.shared_defaults import QueueKind
from trimtab.common.units import format_count
from trimtab.sidecar.decision.condition import ConditionType, track_conditions
from trimtab.sidecar.diagnostics.doctor import checks
from trimtab.sidecar.diagnostics.doctor.assignor_checks import check_assignor
from trimtab.sidecar.diagnostics.doctor.checks import Finding, MemberMetadata, failed, noted, passed
from trimtab.sidecar.diagnostics.doctor.migration_checks import POLICY_CONFIG, check_migration
from trimtab.sidecar.diagnostics.doctor.queue_checks import (
    TRACKERS_CHECK,
    check_markers_topic,
    check_trackers,
)
from trimtab.sidecar.diagnostics.doctor.rack_checks import check_racks, check_replica_selectors
from trimtab.sidecar.diagnostics.doctor.size_checks import OFFSETS_TOPIC, check_group_size, check_record_limit
from trimtab.sidecar.diagnostics.group_status import is_fresh
from trimtab.sidecar.kafka.broker_client import BrokerClient
from trimtab.sidecar.kafka.cluster_client import format_kafka_error, is_authorization_error
from trimtab.sidecar.kafka.consumer_group import EitherGroupClient
from trimtab.sidecar.kafka.control_topic_store import CONTROL_TOPIC_PARTITIONS, ControlTopicStore
from trimtab.sidecar.kafka.share_group import ShareGroupClient, refuse_share_group
from trimtab.sidecar.measurement.halts import parse_halts
from trimtab.sidecar.model.cross_rack import compute_cross_rack_traffic
from trimtab.sidecar.pilot.installed_assignors import ASSIGNORS_CONFIG
from trimtab.sidecar.readings.group_monitor import match_topics
from trimtab.sidecar.records.decision_record import DecisionRecord
from trimtab.sidecar.reporting.group_conditions import build_found, find_halted_partitions
from trimtab.sidecar.settings.settings import SidecarSettings

_UNTYPED_ADMIN_SPECS: Any = admin  # these are documented, but not in the package's __all__
CONFIG_RESOURCE: Final[Any] = _UNTYPED_ADMIN_SPECS.ConfigResource
TOPIC_RESOURCE_TYPE: Final[Any] = _UNTYPED_ADMIN_SPECS.ResourceType.TOPIC
BROKER_RESOURCE_TYPE: Final[Any] = _UNTYPED_ADMIN_SPECS.ResourceType.BROKER
MAX_TIMESTAMP_SPEC: Final[Any] = _UNTYPED_ADMIN_SPECS.OffsetSpec.max_timestamp()
CLIENT_TIMEOUT_GRACE_S: Final = 1.0  # librdkafka reports its own timeout late, but with a better text


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic's partition count, and its allowed operations (None if not reported)."""

    partitions: int
    allowed_operations: frozenset[str] | None


class BrokerChecks:
    """Checks of the brokers, the group, its topics, and the control topics."""

    def __init__(self, settings: SidecarSettings, clock: Clock, brokers: BrokerClient) -> None:
        self._settings = settings
        self._clock = clock
        self._brokers = brokers
        self._admin = brokers.admin
        self._group = EitherGroupClient(brokers, settings, clock)
        self._control_topics = ControlTopicStore(settings, brokers.admin)
        self._halts: Mapping[TopicPartition, str] = {}

    def run_checks(self) -> list[Finding]:
        """Run all checks, or only the first. Raises SaslAuthenticationError, TlsHandshakeError."""
        s = self._settings
        try:
            cluster: Any = self._await(self._admin.describe_cluster(request_timeout=s.timeout))
        except KafkaException as error:  # without a broker every further check would time out
            diagnose_connection(s.client_config, timeout=s.timeout)
            return _report_unreachable(
                f"no broker responds at {s.bootstrap}: {format_kafka_error(error)}",
                "check that a broker is running, its address, the firewall, security.protocol and the login",
            )
        findings = (
            self._check_nodes(cluster.nodes),
            self._check_group(),
            self._check_topics(),
            self._check_racks(cluster.nodes),
            self._check_queue(),
            self._check_control_topics(),
            self._check_plan(),
            self._check_members(cluster.nodes),
        )
        with closing(self._group):
            return [*chain.from_iterable(findings)]

    def _check_nodes(self, nodes: Iterable[Any]) -> Iterable[Finding]:
        # clients connect to advertised.listeners, which may differ from the bootstrap address
        timeout = self._settings.timeout
        nodes = list(nodes)
        unreachable = [n for n in nodes if not _can_connect(n.host, n.port, timeout)]
        if unreachable:
            addresses = ", ".join(f"{node.host}:{node.port}" for node in unreachable)
            remedy = "check advertised.listeners of the brokers, name resolution and the firewall"
            yield failed("brokers", f"listed in the metadata, but unreachable: {addresses}", remedy)
        else:
            yield passed("brokers", f"{len(nodes)} reached")
        version = importlib.metadata.version("trimtab")
        library = confluent_kafka.libversion()[0]
        yield passed("versions", f"trimtab {version}, librdkafka {library}")

    def _check_group(self) -> Iterable[Finding]:
        name = self._settings.group
        try:
            if self._settings.queue is not QueueKind.SHARE:
                refuse_share_group(self._settings)
                yield from self._check_group_state(name, self._group)
                return
            with closing(ShareGroupClient(self._settings, self._clock)) as client:
                yield from self._check_group_state(name, client)
        except SettingError as error:
            yield failed(f"group {name}", str(error), "correct queue, or group")

    def _check_group_state(
        self, name: str, client: EitherGroupClient | ShareGroupClient
    ) -> Iterable[Finding]:
        check = f"group {name}"
        refusal = self._explain_refused_offsets(name)
        if refusal is not None:
            yield failed(check, refusal, f"grant Describe on group {name}")
            return
        group, errors = client.describe_group()
        source = client if isinstance(client, ShareGroupClient) else self._brokers
        commits = source.fetch_group_commits()
        if errors or commits.errors:
            for text in (*errors, *commits.errors):
                yield failed(check, text, "run the doctor again; read the brokers' logs")
        elif group.members or commits.offsets:
            members = format_count(len(group.members), "member")
            offsets = format_count(len(commits.offsets), "commit")
            yield passed(check, f"{group.state}, {members}, {offsets}")
            self._halts = parse_halts(commits.metadata)
        else:
            # with topics given the group may start later
            level = checks.FindingLevel.NOTE if self._settings.topics else checks.FindingLevel.FAILED
            remedy = "check the group's name, start a consumer, or set topics"
            yield Finding(check, level, "no members and no commits", remedy)

    def _explain_refused_offsets(self, group: str) -> str | None:
        # A broker hides a group without Describe from list_groups, as if it did not exist; only
        # OffsetFetch reports the authorization error.
        s = self._settings
        config = {**s.client_config, "group.id": group, "enable.auto.commit": False}
        with closing(Consumer(config)) as consumer:
            try:
                consumer.committed([RawPartition(s.plan_topic, 0)], timeout=s.timeout)
            except KafkaException as error:
                return f"committed offsets are unreadable: {format_kafka_error(error)}"
        return None

    def _check_topics(self) -> Iterable[Finding]:
        existing = {p.topic for p in self._brokers.fetch_cluster_metadata().leaders}
        topics, missing = match_topics(self._settings.topics, existing)
        for name in missing:
            message, _, remedy = self._brokers.explain_missing_topic(name).partition(": ")
            yield failed("topics", message, remedy or "create it, or correct its name")
        if not self._settings.topics:
            owned = {p.topic for m in self._group.describe_group()[0].members for p in m.owned_partitions}
            topics = frozenset(owned or {p.topic for p in self._brokers.fetch_group_commits().offsets})
        # source=offsets samples records for their sizes
        needed = ("Describe", "Read") if self._settings.source == "offsets" else ("Describe",)
        for topic in sorted(topics):
            described = self._describe_topic(topic)
            if isinstance(described, Finding):
                yield described
            elif described is not None:
                yield checks.check_rights(f"topic {topic}", needed, described.allowed_operations)

    def _check_queue(self) -> Iterable[Finding]:
        s = self._settings
        if s.queue is not QueueKind.KMQ:
            return  # only kmq has topics and processes of its own
        topic = s.markers_topic
        markers = self._describe_topic(topic)
        if isinstance(markers, TopicDescription):
            messages = self._describe_topic(s.topics[0])
            count = messages.partitions if isinstance(messages, TopicDescription) else None
            yield check_markers_topic(topic, markers.partitions, count, self._fetch_config(topic))
            yield checks.check_rights(f"topic {topic}", ("Describe",), markers.allowed_operations)
        else:
            yield markers or check_markers_topic(topic, None, None, {})
        group = tracker_group(s.group)
        refusal = self._explain_refused_offsets(group)
        if refusal is not None:
            yield failed(TRACKERS_CHECK, refusal, f"grant Describe on group {group}")
            return
        try:
            yield check_trackers(self._count_readers(group, topic), s.topics[0], s.group)
        except KafkaException as error:
            yield failed(TRACKERS_CHECK, f"unknown: {format_kafka_error(error)}", "run the doctor again")

    def _count_readers(self, group: str, topic: str) -> int:
        futures = self._admin.describe_consumer_groups([group], request_timeout=self._settings.timeout)
        try:
            description: Any = self._await(futures[group])
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                return 0
            raise
        return sum(any(p.topic == topic for p in m.assignment.topic_partitions) for m in description.members)

    def _check_racks(self, nodes: Iterable[Any]) -> Iterable[Finding]:
        is_rack_aware = get_heuristic(self._settings.effective_heuristic).weighs_racks
        members = self._group.describe_group()[0].members
        topics = {p.topic for member in members for p in member.owned_partitions}
        leaders = self._brokers.fetch_cluster_metadata().leaders
        loads = {p: PartitionLoad() for p in leaders if p.topic in topics}
        racks, _ = self._brokers.fetch_replica_racks(loads)
        traffic = compute_cross_rack_traffic(members, loads, racks)
        if members:
            yield from check_racks(traffic, is_rack_aware=is_rack_aware)
        if traffic is not None:
            selectors = {node.id: self._fetch_replica_selector(node.id) for node in nodes}
            yield check_replica_selectors(selectors, is_rack_aware=is_rack_aware)

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
                yield noted(f"control topic {topic}", "missing; the first sidecar creates it")
            else:
                config = self._fetch_config(topic)
                policy = config.get("cleanup.policy")
                yield checks.check_control_topic(topic, described.partitions, policy)
                yield from check_record_limit(topic, config.get("max.message.bytes"))
                needed = ("Describe", "Read", "Write")
                yield checks.check_rights(f"topic {topic}", needed, described.allowed_operations)

    def _check_plan(self) -> Iterable[Finding]:
        try:
            plan = self._control_topics.read_plan()
            records = self._control_topics.read_decisions()
            rates = self._control_topics.read_write_rates()
        except PeerError as error:
            message, _, right = str(error).partition("; grant ")
            yield failed("plan", message, f"grant {right}" if right else "run the doctor again")
            return
        now = self._clock.wall()
        last = records[-1] if records else None
        times = {f"the write rates of {topic}": r.time for topic, r in rates.items()}
        appended = None
        if last is not None:
            times["the last decision"] = last.until
            appended = self._fetch_last_append_time()
        if appended is not None:
            times["the broker"] = appended
        yield checks.check_clock(now, times)
        if last is not None and appended is not None:
            yield checks.check_sidecar_clock(last.until, appended)
        yield checks.check_last_decision(last, plan, now)
        yield from self._report_conditions(last, now)
        if self._settings.queue is QueueKind.SHARE:
            return  # the broker distributes the records itself
        if last is not None and last.carrier is not None and is_fresh(last, now):
            return  # the members know no plans
        try:
            protocol, members = self._fetch_members()
        except KafkaException:
            return  # reported by the check of the group
        yield from checks.check_members(protocol, members)
        leaders = self._brokers.fetch_cluster_metadata().leaders
        yield checks.check_plan_followed(plan, protocol, members, leaders, now)

    def _report_conditions(self, last: DecisionRecord | None, now: float) -> Iterable[Finding]:
        """Yield those of the active sidecar, and halts that the commits tell themselves."""
        conditions = last.conditions if last is not None and is_fresh(last, now) else ()
        if ConditionType.PARTITIONS_HALTED not in {one.type for one in conditions}:
            found = build_found(ConditionType.PARTITIONS_HALTED, find_halted_partitions(self._halts))
            conditions += track_conditions((), found, now, is_observed=True)
        yield from (checks.report_condition(one, now) for one in conditions)

    def _check_members(self, nodes: Iterable[Any]) -> Iterable[Finding]:
        if self._settings.queue is QueueKind.SHARE:
            return
        broker = self._fetch_config(str(min(node.id for node in nodes)), BROKER_RESOURCE_TYPE)
        yield from check_assignor(self._group.describe_group()[0], broker.get(ASSIGNORS_CONFIG))
        try:
            assignor, members = self._fetch_members()
        except KafkaException:
            return  # reported by the check of the group
        if not members:
            return
        limit = self._fetch_config(OFFSETS_TOPIC).get("max.message.bytes")
        partitions = len(self._brokers.fetch_group_commits().offsets)
        codec = broker.get("offsets.topic.compression.codec")
        yield check_group_size(members, partitions, limit, codec)
        yield from check_migration(members, assignor, broker.get(POLICY_CONFIG))

    def _describe_topic(self, topic: str) -> TopicDescription | Finding | None:
        """Return a finding if the request fails, None if the topic does not exist."""
        futures = self._admin.describe_topics(
            TopicCollection([topic]),
            include_authorized_operations=True,  # KIP-430: the brokers report our rights
            request_timeout=self._settings.timeout,
        )
        try:
            described: Any = self._await(futures[topic])
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            denied = is_authorization_error(error)
            remedy = f"grant Describe on topic {topic}" if denied else "run the doctor again"
            return failed(f"topic {topic}", format_kafka_error(error), remedy)
        operations = checks.name_operations(described.authorized_operations)
        return TopicDescription(len(described.partitions), operations)

    def _check_topic_creatable(self, topic: str) -> Finding:
        check = f"creation of {topic}"
        timeout = self._settings.timeout
        new = NewTopic(topic, CONTROL_TOPIC_PARTITIONS, self._settings.replication_factor)
        # validate_only: the brokers check rights and replication factor, and create nothing
        futures = self._admin.create_topics([new], validate_only=True, request_timeout=timeout)
        try:
            self._await(futures[topic])
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return passed(check, "it exists")
            denied = is_authorization_error(error)
            remedy = f"grant Create on topic {topic}" if denied else "correct what the broker reports"
            return failed(check, format_kafka_error(error), remedy)
        return passed(check, "allowed")

    def _fetch_config(self, name: str, kind: Any = TOPIC_RESOURCE_TYPE) -> Mapping[str, str | None]:
        """Return the configuration of a topic or broker; empty if it is not readable."""
        resource = CONFIG_RESOURCE(kind, name)
        futures = self._admin.describe_configs([resource], request_timeout=self._settings.timeout)
        try:
            entries: Any = self._await(futures[resource])
        except KafkaException:
            return {}
        return {name: entry.value for name, entry in entries.items()}

    def _fetch_last_append_time(self) -> float | None:
        topic = self._settings.decision_topic
        timeout = self._settings.timeout
        if self._fetch_config(topic).get("message.timestamp.type") != "LogAppendTime":
            return None  # then the timestamp is the writer's, not the broker's
        partition = RawPartition(topic, 0)
        futures = self._admin.list_offsets({partition: MAX_TIMESTAMP_SPEC}, request_timeout=timeout)
        try:
            newest: Any = self._await(futures[partition])
        except KafkaException:
            return None
        return newest.timestamp / 1000 if newest.timestamp > 0 else None

    def _fetch_members(self) -> tuple[str, dict[str, MemberMetadata]]:
        """Return the group's assignor and members."""
        name = self._settings.group
        timeout = self._settings.timeout
        # deprecated, but the newer call is unsafe (see broker_client) and hides the metadata bytes
        groups: list[Any] = self._admin.list_groups(name, timeout=timeout)
        group = next((g for g in groups if g.id == name), None)
        if group is None:
            return "", {}
        return group.protocol, {m.id: MemberMetadata(m.metadata, m.assignment) for m in group.members}

    def _await(self, future: "Future[Any]") -> Any:
        try:
            return future.result(timeout=self._settings.timeout + CLIENT_TIMEOUT_GRACE_S)
        except FutureTimeout:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None  # noqa: SLF001


def run_broker_checks(settings: SidecarSettings, clock: Clock) -> list[Finding]:
    """Return the findings of all checks that query the brokers."""
    try:
        brokers = BrokerClient(settings.client_config, settings.group, settings.timeout, clock)
        with closing(brokers):
            return BrokerChecks(settings, clock, brokers).run_checks()
    except (SaslAuthenticationError, TlsHandshakeError) as error:
        message, _, remedy = str(error).rpartition("; ")
        return _report_unreachable(message, remedy)


def _report_unreachable(message: str, remedy: str) -> list[Finding]:
    skipped = Finding("other checks", checks.FindingLevel.SKIPPED, "they need a broker")
    return [failed("brokers", message, remedy), skipped]


def _can_connect(host: str, port: int, timeout: float) -> bool:
    try:
        with socket.create_connection((host, port), timeout):
            return True
    except OSError:
        return False
