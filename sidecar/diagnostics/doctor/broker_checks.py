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

from trimtab.assignor.heuristics.registry import get
from trimtab.common.clock import Clock
from trimtab.common.control_topics.values import PartitionSpeed
from trimtab.common.errors import LoginRefused, PeerError, SettingError, TlsFailed
from trimtab.common.kafka_security.preflight import diagnose
from trimtab.common.kmq_offset_metadata import trackers_of
from trimtab.sidecar.diagnostics.doctor.checks import (
    Finding,
    Level,
    Seat,
    of_clock,
    of_control,
    of_following,
    of_rights,
    of_sidecar_clock,
    of_verdict,
)
from trimtab.sidecar.diagnostics.doctor.queue_checks import TRACKERS, of_markers, of_trackers
from trimtab.sidecar.diagnostics.doctor.rack_checks import of_racks, of_selectors
from trimtab.sidecar.kafka.broker_client import Brokers, is_denied, reason
from trimtab.sidecar.kafka.control_topic_store import PARTITIONS, ControlTopics
from trimtab.sidecar.kafka.share_groups.share_group import ShareGroup, refuse_share_group
from trimtab.sidecar.measurement.cross_rack import across
from trimtab.sidecar.measurement.group_monitor import matching
from trimtab.sidecar.measurement.queue_backlog import Kind
from trimtab.sidecar.settings.settings import Settings

_SPECS: Any = admin  # these are documented, but not in the package's __all__
CONFIG: Final[Any] = _SPECS.ConfigResource
TOPIC: Final[Any] = _SPECS.ResourceType.TOPIC
BROKER: Final[Any] = _SPECS.ResourceType.BROKER
NEWEST: Final[Any] = _SPECS.OffsetSpec.max_timestamp()
GRACE: Final = 1.0
"""Seconds to wait for librdkafka's own timeout to be reported."""


@dataclass(frozen=True, slots=True)
class Described:
    """A topic: its number of partitions, and the operations that are allowed, None if not told."""

    partitions: int
    allowed: frozenset[str] | None


class Examination:
    """One look at everything that a sidecar needs of the brokers."""

    def __init__(self, settings: Settings, clock: Clock, brokers: Brokers) -> None:
        self._settings = settings
        self._clock = clock
        self._brokers = brokers
        self._admin = brokers.admin
        self._board = ControlTopics(settings, brokers.admin)

    def findings(self) -> list[Finding]:
        """Look at the brokers first; where none answers nothing else can be told.

        Raises LoginRefused, TlsFailed.
        """
        s = self._settings
        try:
            cluster: Any = self._wait(self._admin.describe_cluster(request_timeout=s.timeout))
        except KafkaException as error:
            diagnose(s.client, patience=s.timeout)
            return _none_answers(
                f"none answers at {s.bootstrap}: {reason(error)}",
                "check that one runs, the address, the firewall, security.protocol and login",
            )
        looks = (
            self._nodes(cluster.nodes),
            self._group(),
            self._data(),
            self._racks(cluster.nodes),
            self._queue(),
            self._control(),
        )
        return [*chain.from_iterable(looks), *self._plan()]

    def _nodes(self, nodes: Iterable[Any]) -> Iterable[Finding]:
        timeout, there = self._settings.timeout, list(nodes)
        away = [node for node in there if not _connects(node.host, node.port, timeout)]
        if away:
            named = ", ".join(f"{node.host}:{node.port}" for node in away)
            yield Finding(
                "brokers",
                Level.WRONG,
                f"told to be there, but not to be reached: {named}",
                "check advertised.listeners of the brokers, name resolution and the firewall",
            )
        else:
            yield Finding("brokers", Level.OK, f"{len(there)} reached")
        ours = importlib.metadata.version("trimtab")
        library = confluent_kafka.libversion()[0]
        yield Finding("versions", Level.OK, f"trimtab {ours}, librdkafka {library}")

    def _group(self) -> Iterable[Finding]:
        """Look at the group as what it is to be: a consumer group, or a share group."""
        name = self._settings.group
        try:
            if self._settings.queue is not Kind.SHARE:
                refuse_share_group(self._settings)
                yield from self._read_by(name, self._brokers)
                return
            with closing(ShareGroup(self._settings, self._clock)) as shared:
                yield from self._read_by(name, shared)
        except SettingError as error:
            yield Finding(f"group {name}", Level.WRONG, str(error), "mend queue, or group")

    def _read_by(self, name: str, group: Brokers | ShareGroup) -> Iterable[Finding]:
        refused = self._refused(name)
        if refused is not None:
            yield Finding(f"group {name}", Level.WRONG, refused, f"grant Describe on group {name}")
            return
        view, trouble = group.group()
        commits = group.commits()
        for text in (*trouble, *commits.trouble):
            yield Finding(f"group {name}", Level.WRONG, text, "ask again; see the brokers' log")
        if trouble or commits.trouble:
            return
        if not view.readers and not commits.offsets:
            yield Finding(
                f"group {name}",
                Level.NOTE if self._settings.topics else Level.WRONG,
                "nobody is in it and it never committed",
                "check its name, start a consumer, or name its topics",
            )
            return
        state = f"{view.state}, {len(view.readers)} members, {len(commits.offsets)} commits"
        yield Finding(f"group {name}", Level.OK, state)

    def _refused(self, group: str) -> str | None:
        """Tell why a group's offsets may not be asked for; None where they may.

        A group that may not be described is not listed, as one that does not exist.
        """
        s = self._settings
        own = {"group.id": group, "enable.auto.commit": False}
        with closing(Consumer({**s.client, **own})) as reader:
            try:
                reader.committed([RawPartition(s.plan_topic, 0)], timeout=s.timeout)
            except KafkaException as error:
                return f"its offsets are not told: {reason(error)}"
        return None

    def _data(self) -> Iterable[Finding]:
        there = {p.topic for p in self._brokers.layout().leaders}
        wanted, missing = matching(self._settings.topics, there)
        for name in missing:
            said, _, cure = self._brokers.absent(name).partition(": ")
            yield Finding("topics", Level.WRONG, said, cure or "make it, or mend its name")
        if not self._settings.topics:
            read = {p.topic for r in self._brokers.group()[0].readers for p in r.owned}
            wanted = frozenset(read or {p.topic for p in self._brokers.commits().offsets})
        reads = self._settings.source == "offsets"
        needed = ("Describe", "Read") if reads else ("Describe",)
        for topic in sorted(wanted):
            described = self._described(topic)
            if isinstance(described, Finding):
                yield described
            elif described is not None:
                yield of_rights(f"topic {topic}", needed, described.allowed)

    def _queue(self) -> Iterable[Finding]:
        """Look at what a `kmq` queue has beside its topic: the markers, and the trackers."""
        s = self._settings
        if s.queue is not Kind.KMQ:
            return
        markers = self._described(s.markers)
        if isinstance(markers, Described):
            messages = self._described(s.topics[0])
            count = messages.partitions if isinstance(messages, Described) else None
            yield of_markers(s.markers, markers.partitions, count, self._config(s.markers))
            yield of_rights(f"topic {s.markers}", ("Describe",), markers.allowed)
        else:
            yield markers or of_markers(s.markers, None, None, {})
        trackers = trackers_of(s.group)
        refused = self._refused(trackers)
        if refused is not None:
            yield Finding(TRACKERS, Level.WRONG, refused, f"grant Describe on group {trackers}")
            return
        try:
            yield of_trackers(self._readers(trackers, s.markers), s.topics[0], s.group)
        except KafkaException as error:
            yield Finding(TRACKERS, Level.WRONG, f"not told: {reason(error)}", "ask again")

    def _readers(self, group: str, topic: str) -> int:
        """Return how many of a group read a topic. Raises KafkaException."""
        asked = self._admin.describe_consumer_groups(
            [group], request_timeout=self._settings.timeout
        )
        try:
            found: Any = self._wait(asked[group])
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                return 0
            raise
        read = [{p.topic for p in m.assignment.topic_partitions} for m in found.members]
        return sum(topic in topics for topics in read)

    def _racks(self, nodes: Iterable[Any]) -> Iterable[Finding]:
        """Look at racks where a consumer says its own, or the heuristic weighs them."""
        weighed = get(self._settings.chosen).racks
        readers = self._brokers.group()[0].readers
        read = {p.topic for reader in readers for p in reader.owned}
        speeds = {p: PartitionSpeed() for p in self._brokers.layout().leaders if p.topic in read}
        racks, _ = self._brokers.racks(speeds)
        crossing = across(readers, speeds, racks)
        if readers:
            yield from of_racks(crossing, weighed=weighed)
        if crossing is not None:
            selectors = {node.id: self._selector(node.id) for node in nodes}
            yield of_selectors(selectors, weighed=weighed)

    def _selector(self, broker: int) -> str | None:
        config = self._config(str(broker), BROKER)
        return config.get("replica.selector.class", "") or "" if config else None

    def _control(self) -> Iterable[Finding]:
        s = self._settings
        for topic in (s.plan_topic, s.speed_topic, s.verdict_topic):
            yield self._makable(topic)
            described = self._described(topic)
            if isinstance(described, Finding):
                yield described
            elif described is None:
                yield Finding(
                    f"control topic {topic}", Level.NOTE, "not there; the first sidecar makes it"
                )
            else:
                config = self._config(topic)
                yield of_control(topic, described.partitions, config.get("cleanup.policy"))
                needed = ("Describe", "Read", "Write")
                yield of_rights(f"topic {topic}", needed, described.allowed)

    def _plan(self) -> Iterable[Finding]:
        try:
            plan, records = self._board.plan(), self._board.verdicts()
            speeds = self._board.speeds()
        except PeerError as error:
            said, _, cure = str(error).partition("; grant ")
            yield Finding("plan", Level.WRONG, said, f"grant {cure}" if cure else "ask again")
            return
        now = self._clock.wall()
        last = next(reversed(records), None)
        told = {f"speeds of {topic}": s.time for topic, s in speeds.items()}
        told |= {} if last is None else {"the last verdict": last.until}
        appended = self._appended() if last is not None else None
        told |= {} if appended is None else {"the broker": appended}
        yield of_clock(now, told)
        if last is not None and appended is not None:
            yield of_sidecar_clock(last.until, appended)
        yield of_verdict(last, plan, now)
        if self._settings.queue is Kind.SHARE:
            return  # the broker alone says who gets what
        try:
            protocol, seats = self._seats()
        except KafkaException:
            return  # the group is wrong, which was said
        yield of_following(plan, protocol, seats, self._brokers.layout().leaders, now)

    def _described(self, topic: str) -> Described | Finding | None:
        """Return what the broker tells of a topic; None where there is none."""
        wanted = TopicCollection([topic])
        asked = self._admin.describe_topics(
            wanted, include_authorized_operations=True, request_timeout=self._settings.timeout
        )
        try:
            found: Any = self._wait(asked[topic])
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            do = f"grant Describe on topic {topic}" if is_denied(error) else "ask again"
            return Finding(f"topic {topic}", Level.WRONG, reason(error), do)
        operations = found.authorized_operations
        allowed = None if operations is None else frozenset(_name(o) for o in operations)
        return Described(len(found.partitions), allowed)

    def _makable(self, topic: str) -> Finding:
        """Ask whether the sidecar may make a topic, as it does at its start; none is made."""
        new = NewTopic(topic, PARTITIONS, self._settings.replication_factor)
        asked = self._admin.create_topics(
            [new], validate_only=True, request_timeout=self._settings.timeout
        )
        part = f"making {topic}"
        try:
            self._wait(asked[topic])
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                do = f"grant Create on topic {topic}" if is_denied(error) else "mend what it names"
                return Finding(part, Level.WRONG, reason(error), do)
            return Finding(part, Level.OK, "it is there")
        return Finding(part, Level.OK, "allowed")

    def _config(self, name: str, kind: Any = TOPIC) -> Mapping[str, str | None]:
        """Return a topic's (or broker's) configuration; nothing where that is not allowed."""
        resource = CONFIG(kind, name)
        asked = self._admin.describe_configs([resource], request_timeout=self._settings.timeout)
        try:
            found: Any = self._wait(asked[resource])
        except KafkaException:
            return {}
        return {name: entry.value for name, entry in found.items()}

    def _appended(self) -> float | None:
        """Return when the broker took the newest verdict, where it is the broker that says so."""
        topic = self._settings.verdict_topic
        if self._config(topic).get("message.timestamp.type") != "LogAppendTime":
            return None
        partition = RawPartition(topic, 0)
        asked = self._admin.list_offsets(
            {partition: NEWEST}, request_timeout=self._settings.timeout
        )
        try:
            found: Any = self._wait(asked[partition])
        except KafkaException:
            return None
        return found.timestamp / 1000 if found.timestamp > 0 else None

    def _seats(self) -> tuple[str, dict[str, Seat]]:
        """Return the group's assignor and members; by the older call, as `brokers` does."""
        name, timeout = self._settings.group, self._settings.timeout
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            groups: list[Any] = self._admin.list_groups(name, timeout=timeout)
        group = next((g for g in groups if g.id == name), None)
        if group is None:
            return "", {}
        return group.protocol, {m.id: Seat(m.metadata, m.assignment) for m in group.members}

    def _wait(self, future: "Future[Any]") -> Any:
        try:
            return future.result(timeout=self._settings.timeout + GRACE)
        except FutureTimeout:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None  # noqa: SLF001


def examined(settings: Settings, clock: Clock) -> list[Finding]:
    """Return what is found of the brokers, the group, the topics and the sidecar."""
    try:
        brokers = Brokers(settings.client, settings.group, settings.timeout, clock)
        with closing(brokers):
            return Examination(settings, clock, brokers).findings()
    except (LoginRefused, TlsFailed) as error:
        said, _, cure = str(error).rpartition("; ")
        return _none_answers(said, cure)


def _none_answers(says: str, do: str) -> list[Finding]:
    return [
        Finding("brokers", Level.WRONG, says, do),
        Finding("everything else", Level.SKIPPED, "nothing can be told without a broker"),
    ]


def _connects(host: str, port: int, timeout: float) -> bool:
    try:
        with socket.create_connection((host, port), timeout):
            return True
    except OSError:
        return False


def _name(operation: Any) -> str:
    """Return an operation as Kafka's tools write it: "DescribeConfigs"."""
    return "".join(word.capitalize() for word in operation.name.split("_"))
