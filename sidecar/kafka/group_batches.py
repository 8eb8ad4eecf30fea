"""Describes many groups and fetches their commits: a few requests to each coordinator, by kafka-python.

1. Groups of one coordinator are read together, `GROUPS_PER_REQUEST` at a time; coordinators do not wait
   for each other.
2. What cannot be read of one group (an error code, a response that cannot be decoded) is that group's
   error: a batch that cannot be decoded is read again in halves.
3. Members are parsed by the caller (`GroupReading.describe`), not by the thread of the connections.
"""

# ruff: noqa: SLF001 - kafka-python sends only to coordinators it knows by private calls

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

from kafka import errors as kafka_errors
from kafka.errors import KafkaError, KafkaProtocolError, for_code
from kafka.protocol import metadata as metadata_protocol
from kafka.protocol.admin import DescribeGroupsRequest

from trimtab.assignor.model import TopicPartition
from trimtab.assignor.rebalance.consumer_protocol import SubscriptionDecoder
from trimtab.common.clock import Clock
from trimtab.sidecar.kafka.broker_client import GROUP_STATE_BY_NAME, GroupCommits, parse_member
from trimtab.sidecar.kafka.consumer_groups.consumer_group import parse_group
from trimtab.sidecar.kafka.consumer_groups.protocol import ConsumerGroupDescribeRequest
from trimtab.sidecar.kafka.coordinator_client import GROUP_ID_NOT_FOUND_CODE, CoordinatorClient
from trimtab.sidecar.model.observation import GroupState, ObservedGroup
from trimtab.sidecar.plan_carrier import CARRIER_CLIENT_IDS
from trimtab.sidecar.settings.settings import SidecarSettings

GROUPS_PER_REQUEST: Final = 100
BATCHED_FIND_COORDINATOR_VERSION: Final = 4  # KIP-699, Kafka 3.0
_MOVED_CODES: Final = frozenset(
    {
        kafka_errors.NotCoordinatorError.errno,
        kafka_errors.CoordinatorNotAvailableError.errno,
        kafka_errors.CoordinatorLoadInProgressError.errno,
    }
)
_DENIED_CODE: Final = kafka_errors.GroupAuthorizationFailedError.errno
_UNTYPED: Final[Any] = DescribeGroupsRequest
_UNTYPED_METADATA: Final[Any] = metadata_protocol  # the stubs lack these names
_UNTYPED_FIND: Final[Any] = _UNTYPED_METADATA.FindCoordinatorRequest
_GROUP_KEY: Final[Any] = _UNTYPED_METADATA.CoordinatorType.GROUP
_UNTYPED_DESCRIBE_CONSUMER: Final[Any] = ConsumerGroupDescribeRequest

_OLD_BROKER_ERRORS: Final = (kafka_errors.IncompatibleBrokerVersion, kafka_errors.UnsupportedVersionError)


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
    """Reads groups with one connection to each broker. Thread-safe; `deliver` is called by another thread."""

    def __init__(self, settings: SidecarSettings, clock: Clock, intern: Partitions = TopicPartition) -> None:
        self._timeout = settings.timeout
        self._coordinator = CoordinatorClient(settings, clock)
        self._nodes: dict[str, Any] = {}  # coordinators by group
        self._intern = intern

    def read_groups(self, groups: Collection[str], deliver: Deliver) -> None:
        """Read these groups; `deliver` gets each once, as its coordinator answers. Raises KafkaError."""

        def run(admin: Any) -> None:
            admin._manager.run(self._read_groups, admin, tuple(groups), deliver)

        self._coordinator.call(run)

    def list_groups(self) -> tuple[str, ...]:
        """Return the names of the consumer groups of the cluster. Raises KafkaError."""
        listed = self._coordinator.call(lambda admin: admin.list_groups())
        names = (g["group_id"] for g in listed if g.get("protocol_type", "consumer") in ("consumer", ""))
        return tuple(sorted(names))

    def close(self) -> None:
        """Close the connections; the next request opens others."""
        self._coordinator.close()

    async def _read_groups(self, admin: Any, groups: Sequence[str], deliver: Deliver) -> None:
        # all are sent at once, then awaited: a slow broker delays no other's groups (rule 1)
        lost = [group for group in groups if group not in self._nodes]
        found = admin._manager.call_soon(self._find_and_read, admin, lost, deliver) if lost else None
        await self._read_known(admin, [group for group in groups if group in self._nodes], deliver)
        if found is not None:
            await found

    async def _find_and_read(self, admin: Any, groups: Sequence[str], deliver: Deliver) -> None:
        failed = await self._find_coordinators(admin, groups)
        if failed:
            deliver(failed)
        await self._read_known(admin, [group for group in groups if group not in failed], deliver)

    async def _read_known(self, admin: Any, groups: Sequence[str], deliver: Deliver) -> None:
        by_node: defaultdict[Any, list[str]] = defaultdict(list)
        for group in groups:
            by_node[self._nodes[group]].append(group)
        reads = [
            admin._manager.call_soon(self._read_chunk, admin, node, chunk, deliver)
            for node, of_node in by_node.items()
            for chunk in _cut(of_node, GROUPS_PER_REQUEST)
        ]
        for read in reads:
            await read

    async def _find_coordinators(self, admin: Any, groups: Sequence[str]) -> dict[str, GroupReading]:
        """Remember the coordinators of these groups; return the groups without one."""
        failed: dict[str, GroupReading] = {}
        for chunk in _cut(groups, GROUPS_PER_REQUEST):
            try:
                found = await self._request_coordinators(admin, chunk)
            except KafkaError as error:
                failed |= {group: report_failure(group, error) for group in chunk}
                continue
            for group, row in found.items():
                if row.error_code:
                    failed[group] = report_failure(group, for_code(row.error_code)())
                else:
                    self._nodes[group] = admin._manager.cluster.add_coordinator(
                        row, _GROUP_KEY, group, synthesize_node_id=False
                    )
        return failed

    async def _request_coordinators(self, admin: Any, groups: Sequence[str]) -> dict[str, Any]:
        manager = admin._manager
        key_type = _GROUP_KEY.value
        version = manager.broker_version_data.api_version(_UNTYPED_FIND)
        if version >= BATCHED_FIND_COORDINATOR_VERSION:
            request = _UNTYPED_FIND(key_type=key_type, coordinator_keys=list(groups), min_version=version)
            response = await self._wait_for(admin, manager.send(request))
            return {row.key: row for row in response.coordinators}
        requests = {g: manager.send(_UNTYPED_FIND(key=g, key_type=key_type, max_version=3)) for g in groups}
        return {group: await self._wait_for(admin, sent) for group, sent in requests.items()}

    async def _read_chunk(self, admin: Any, node: Any, groups: Sequence[str], deliver: Deliver) -> None:
        try:
            readings = await self._request_readings(admin, node, groups)
        except KafkaProtocolError as error:
            if len(groups) > 1:  # rule 2
                for half in _cut(groups, (len(groups) + 1) // 2):
                    await self._read_chunk(admin, node, half, deliver)
                return
            readings = {group: report_failure(group, error) for group in groups}
        except Exception as error:  # noqa: BLE001 - of these groups; the others are read
            readings = {group: report_failure(group, error) for group in groups}
            self._forget_coordinators(groups)
        deliver(readings)

    async def _request_readings(
        self, admin: Any, node: Any, groups: Sequence[str]
    ) -> dict[str, GroupReading]:
        manager = admin._manager
        request = _UNTYPED(groups=list(groups), include_authorized_operations=False)
        response = await self._wait_for(admin, manager.send(request, node_id=node))
        classic = {row.group_id: row for row in response.groups}
        # groups of the new protocol, and absent ones, look dead to a request about classic groups
        dead = [g for g, row in classic.items() if _is_dead(row)]
        consumer = await self._describe_consumer_groups(admin, node, dead) if dead else {}
        # after the description, so that a new member's commits are not missed
        commits = await self._fetch_commits(admin, node, groups)
        return {g: self._build_reading(g, classic.get(g), consumer.get(g), commits.get(g)) for g in groups}

    async def _describe_consumer_groups(
        self, admin: Any, node: Any, groups: Sequence[str]
    ) -> Mapping[str, Any]:
        request = _UNTYPED_DESCRIBE_CONSUMER(group_ids=list(groups), include_authorized_operations=False)
        try:
            response = await self._wait_for(admin, admin._manager.send(request, node_id=node))
        except _OLD_BROKER_ERRORS:
            return {}  # brokers before 4.0 have classic groups only
        return {row.group_id: row for row in response.groups if row.error_code != GROUP_ID_NOT_FOUND_CODE}

    async def _fetch_commits(self, admin: Any, node: Any, groups: Sequence[str]) -> dict[str, Any]:
        everything = dict.fromkeys(groups)  # None: of all topics
        rows: dict[str, Any] = {}
        for group, request in admin._list_group_offsets_requests(everything):
            response = await self._wait_for(admin, admin._manager.send(request, node_id=node))
            answered = [(group, response)] if group else [(row.group_id, row) for row in response.groups]
            rows |= dict(answered)
        return rows

    async def _wait_for(self, admin: Any, sent: Awaitable[Any]) -> Any:
        return await admin._manager.wait_for(sent, self._timeout * 1000)

    def _build_reading(self, group: str, classic: Any, consumer: Any, commits: Any) -> GroupReading:
        described = consumer or classic
        code = 0 if described is None or (consumer is None and _is_dead(classic)) else described.error_code
        if code in _MOVED_CODES or (commits is not None and commits.error_code in _MOVED_CODES):
            self._forget_coordinators([group])
        errors = (_explain_code(group, code),) if code else ()
        return GroupReading(classic, consumer, self._parse_commits(group, commits), errors)

    def _parse_commits(self, group: str, row: Any) -> GroupCommits:
        if row is None or row.error_code:
            code = 0 if row is None else row.error_code
            text = _explain_code(group, code) if code == _DENIED_CODE else f"committed offsets: {_name(code)}"
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

    def _forget_coordinators(self, groups: Iterable[str]) -> None:
        for group in groups:
            self._nodes.pop(group, None)


def _cut(groups: Sequence[str], size: int) -> list[Sequence[str]]:
    return [groups[at : at + size] for at in range(0, len(groups), size)]


def _is_dead(row: Any) -> bool:
    return row.error_code == GROUP_ID_NOT_FOUND_CODE or (not row.error_code and row.group_state == "Dead")


def _name(code: int) -> str:
    return for_code(code).__name__.removesuffix("Error") if code else "no answer"


def _explain_code(group: str, code: int) -> str:
    if code == _DENIED_CODE:
        return f"group {group} is not readable: grant Describe on group {group}"
    return f"group {group}: {_name(code)}"


def report_failure(group: str, error: Exception) -> GroupReading:
    """Return the reading of a group that could not be read."""
    if isinstance(error, kafka_errors.GroupAuthorizationFailedError):
        text = _explain_code(group, _DENIED_CODE)
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
