"""Describes many groups and fetches their commits: a few requests to each coordinator.

1. Groups of one coordinator are read together, `GROUPS_PER_REQUEST` at a time; coordinators do not wait
   for each other.
2. What cannot be read of one group (an error code, a response that cannot be decoded) is that group's
   error: a batch that cannot be decoded is read again in halves.
3. Members are parsed by the caller (`GroupReading.describe`), not by the threads of the connections.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from trimtab.assignor.model import TopicPartition
from trimtab.assignor.rebalance.consumer_protocol import SubscriptionDecoder
from trimtab.common.clock import Clock
from trimtab.common.kafka_protocol import apis
from trimtab.common.kafka_protocol.brokers import GROUPS_PER_REQUEST, cut, run_together
from trimtab.common.kafka_protocol.connection import Request
from trimtab.common.kafka_protocol.errors import (
    CoordinatorLoadingError,
    CoordinatorUnavailableError,
    GroupDeniedError,
    GroupNotFoundError,
    MalformedMessageError,
    NotCoordinatorError,
    UnsupportedApiError,
    name_code,
)
from trimtab.sidecar.kafka.broker_client import GROUP_STATE_BY_NAME, GroupCommits, parse_member
from trimtab.sidecar.kafka.brokers import connect_brokers
from trimtab.sidecar.kafka.consumer_group import parse_group
from trimtab.sidecar.model.observation import GroupState, ObservedGroup
from trimtab.sidecar.plan_carrier import CARRIER_CLIENT_IDS
from trimtab.sidecar.settings.settings import SidecarSettings

_MOVED_CODES = frozenset(
    {NotCoordinatorError.code, CoordinatorUnavailableError.code, CoordinatorLoadingError.code}
)


@dataclass(frozen=True, slots=True)
class GroupReading:
    """What a coordinator told of one group."""

    classic: Any = None  # of a DescribeGroupsResponse
    consumer: Any = None  # of a ConsumerGroupDescribeResponse; None: a classic group
    commits: GroupCommits = field(default_factory=partial(GroupCommits, is_known=False))
    errors: tuple[str, ...] = ()  # of the description

    def describe(self) -> tuple[ObservedGroup, tuple[str, ...]]:
        """Return the group and errors; the group is unknown after a failure."""
        if self.errors or (self.classic is None and self.consumer is None):
            return ObservedGroup(), self.errors
        return (parse_group(self.consumer) if self.consumer else _parse_classic(self.classic)), ()


Deliver: TypeAlias = Callable[[Mapping[str, GroupReading]], None]
Partitions: TypeAlias = Callable[[str, int], TopicPartition]  # makes one object of each


class GroupBatchClient:
    """Reads groups with one connection to each broker. Thread-safe; `deliver` is called by other threads."""

    def __init__(self, settings: SidecarSettings, clock: Clock, intern: Partitions = TopicPartition) -> None:
        self._brokers = connect_brokers(settings, clock)
        self._intern = intern

    def read_groups(self, groups: Collection[str], deliver: Deliver) -> None:
        """Read these groups; `deliver` gets each once, as its coordinator answers."""
        known = [group for group in groups if self._brokers.knows_coordinator(group)]
        lost = [group for group in groups if group not in frozenset(known)]
        # at the same time: a slow broker delays no other's groups (rule 1)
        run_together(
            {part: partial(self._read_part, part, deliver) for part in map(tuple, (known, lost)) if part}
        )

    def list_groups(self) -> tuple[str, ...]:
        """Return the names of the consumer groups of the cluster. Raises KafkaRequestError."""
        listed = self._brokers.list_groups()
        return tuple(sorted(g.group_id for g in listed if g.protocol_type in ("consumer", "")))

    def close(self) -> None:
        """Close the connections; the next request opens others."""
        self._brokers.close()

    def _read_part(self, groups: Sequence[str], deliver: Deliver) -> None:
        by_node: defaultdict[int, list[str]] = defaultdict(list)
        failed: dict[str, GroupReading] = {}
        for group, node in self._brokers.find_coordinators(groups).items():
            if isinstance(node, int):
                by_node[node].append(group)
            else:
                failed[group] = report_failure(group, node)
        if failed:
            deliver(failed)
        run_together(
            {node: partial(self._read_node, node, chosen, deliver) for node, chosen in by_node.items()}
        )

    def _read_node(self, node: int, groups: Sequence[str], deliver: Deliver) -> None:
        for chunk in cut(groups, GROUPS_PER_REQUEST):
            self._read_chunk(node, chunk, deliver)

    def _read_chunk(self, node: int, groups: Sequence[str], deliver: Deliver) -> None:
        try:
            readings = self._request_readings(node, groups)
        except MalformedMessageError as error:
            if len(groups) > 1:  # rule 2
                for half in cut(groups, (len(groups) + 1) // 2):
                    self._read_chunk(node, half, deliver)
                return
            readings = {group: report_failure(group, error) for group in groups}
        except Exception as error:  # noqa: BLE001 - of these groups; the others are read
            readings = {group: report_failure(group, error) for group in groups}
            self._brokers.forget_coordinators(groups)
        deliver(readings)

    def _request_readings(self, node: int, groups: Sequence[str]) -> dict[str, GroupReading]:
        (response,) = self._brokers.ask_broker(node, [Request(apis.DESCRIBE_GROUPS, {"groups": groups})])
        classic = {row.group_id: row for row in response.groups}
        # groups of the new protocol, and absent ones, look dead to a request about classic groups
        dead = [g for g, row in classic.items() if _is_dead(row)]
        consumer = self._describe_consumer_groups(node, dead) if dead else {}
        # after the description, so that a new member's commits are not missed
        commits = self._fetch_commits(node, groups)
        return {g: self._build_reading(g, classic.get(g), consumer.get(g), commits.get(g)) for g in groups}

    def _describe_consumer_groups(self, node: int, groups: Sequence[str]) -> Mapping[str, Any]:
        request = Request(apis.CONSUMER_GROUP_DESCRIBE, {"group_ids": groups})
        try:
            (response,) = self._brokers.ask_broker(node, [request])
        except UnsupportedApiError:
            return {}  # brokers before 4.0 have classic groups only
        return {row.group_id: row for row in response.groups if row.error_code != GroupNotFoundError.code}

    def _fetch_commits(self, node: int, groups: Sequence[str]) -> dict[str, Any]:
        every = [{"group_id": group, "topics": None} for group in groups]  # None: of all topics
        (first,) = self._brokers.ask_broker(node, [_ask_commits(every[0], every)])
        if first.groups is not None:
            return {row.group_id: row for row in first.groups}
        # before KIP-709 (Kafka 3.0) a request is about one group
        others = self._brokers.ask_broker(node, [_ask_commits(one) for one in every[1:]])
        return dict(zip(groups, [first, *others], strict=True))

    def _build_reading(self, group: str, classic: Any, consumer: Any, commits: Any) -> GroupReading:
        described = consumer or classic
        code = 0 if described is None or (consumer is None and _is_dead(classic)) else described.error_code
        if code in _MOVED_CODES or (commits is not None and commits.error_code in _MOVED_CODES):
            self._brokers.forget_coordinators([group])
        errors = (_explain_code(group, code),) if code else ()
        return GroupReading(classic, consumer, self._parse_commits(group, commits), errors)

    def _parse_commits(self, group: str, row: Any) -> GroupCommits:
        if row is None or row.error_code:
            code = 0 if row is None else row.error_code
            text = (
                _explain_code(group, code)
                if code == GroupDeniedError.code
                else f"committed offsets: {_name(code)}"
            )
            return GroupCommits(is_known=False, errors=(text,))
        offsets: dict[TopicPartition, int] = {}
        metadata: dict[TopicPartition, str] = {}
        for topic in row.topics:
            for one in topic.partitions:
                if one.error_code:
                    text = f"committed offsets: {_name(one.error_code)}"
                    return GroupCommits(is_known=False, errors=(text,))
                if one.committed_offset >= 0:  # negative: no commit
                    partition = self._intern(topic.name, one.partition_index)
                    offsets[partition] = one.committed_offset
                    if one.metadata:
                        metadata[partition] = one.metadata
        return GroupCommits(offsets, metadata)


def _ask_commits(one: Mapping[str, Any], every: Sequence[Mapping[str, Any]] = ()) -> Request:
    return Request(apis.OFFSET_FETCH, {**one, "groups": every})


def _is_dead(row: Any) -> bool:
    return row.error_code == GroupNotFoundError.code or (not row.error_code and row.group_state == "Dead")


def _name(code: int) -> str:
    return name_code(code) if code else "no answer"


def _explain_code(group: str, code: int) -> str:
    if code == GroupDeniedError.code:
        return f"group {group} is not readable: grant Describe on group {group}"
    return f"group {group}: {_name(code)}"


def report_failure(group: str, error: Exception) -> GroupReading:
    """Return the reading of a group that could not be read."""
    if isinstance(error, GroupDeniedError):
        text = _explain_code(group, GroupDeniedError.code)
    else:
        text = f"group {group}: {str(error) or type(error).__name__}"
    return GroupReading(commits=GroupCommits(is_known=False), errors=(text,))


def _parse_classic(row: Any) -> ObservedGroup:
    state = GROUP_STATE_BY_NAME.get(row.group_state, GroupState.UNKNOWN)
    decoder = SubscriptionDecoder()
    consumers = [m for m in row.members if m.client_id not in CARRIER_CLIENT_IDS]
    if row.members and not consumers:
        return ObservedGroup(GroupState.EMPTY)  # but for a sidecar that leads it
    members = (
        parse_member(m.member_id, m.client_id, m.client_host, m.member_metadata, m.member_assignment, decoder)
        for m in consumers
    )
    return ObservedGroup(state, tuple(sorted(members, key=lambda m: m.id)))
