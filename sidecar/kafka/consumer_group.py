"""Description of a group of the new protocol (KIP-848), which DescribeGroups reports as dead."""

from collections.abc import Iterable, Mapping
from typing import Any

from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import Clock
from trimtab.common.kafka_protocol.apis import CONSUMER_GROUP_DESCRIBE
from trimtab.common.kafka_protocol.errors import KafkaRequestError, UnsupportedApiError
from trimtab.sidecar.kafka.broker_client import GROUP_STATE_BY_NAME, BrokerClient
from trimtab.sidecar.kafka.brokers import connect_brokers, describe_group
from trimtab.sidecar.model.member_names import MemberIdentity, name_members
from trimtab.sidecar.model.observation import GroupState, ObservedGroup, ObservedMember
from trimtab.sidecar.plan_carrier import CARRIER_CLIENT_IDS
from trimtab.sidecar.settings.settings import SidecarSettings


class ConsumerGroupClient:
    """Client of one group; an unreachable broker is reported as an error."""

    def __init__(self, settings: SidecarSettings, clock: Clock) -> None:
        self._group = settings.group
        self._consumers_per_replica = settings.consumers_per_replica
        self._brokers = connect_brokers(settings, clock)

    def describe_group(self) -> tuple[ObservedGroup, tuple[str, ...]]:
        """Return the group and errors; empty if it is classic or absent, unknown after a failure."""
        try:
            described = self._brokers.retry(
                lambda: describe_group(self._brokers, self._group, CONSUMER_GROUP_DESCRIBE)
            )
        except UnsupportedApiError:
            return ObservedGroup(GroupState.EMPTY), ()  # brokers before 4.0 have classic groups only
        except KafkaRequestError as error:
            return ObservedGroup(), (f"group {self._group}: {str(error) or type(error).__name__}",)
        return parse_group(described, consumers_per_replica=self._consumers_per_replica), ()

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        self._brokers.close()


class EitherGroupClient:
    """Describes a group of either protocol; one of the new protocol looks empty to DescribeGroups."""

    def __init__(self, brokers: BrokerClient, settings: SidecarSettings, clock: Clock) -> None:
        self._brokers = brokers
        self._new_group = None if settings.protocol == "classic" else ConsumerGroupClient(settings, clock)

    def describe_group(self) -> tuple[ObservedGroup, tuple[str, ...]]:
        """Return the group and errors; the group is unknown after a failure."""
        group, errors = self._brokers.describe_group()
        if self._new_group is None or group.state is not GroupState.EMPTY:
            return group, errors
        return self._new_group.describe_group()

    def close(self) -> None:
        """Close the connection that `describe_group` has opened."""
        if self._new_group is not None:
            self._new_group.close()


def parse_group(
    described: Any, replicas: Mapping[str, str] | None = None, consumers_per_replica: int = 1
) -> ObservedGroup:
    """Return the group of a ConsumerGroupDescribeResponse without plan carriers; empty for None.

    `replicas` are names by IP address, where the target knows them.
    """
    if described is None:
        return ObservedGroup(GroupState.EMPTY)
    consumers = [m for m in described.members if m.client_id not in CARRIER_CLIENT_IDS]
    known = (
        MemberIdentity(m.member_id, m.client_id, m.client_host.lstrip("/"), m.instance_id) for m in consumers
    )
    names = name_members(known, replicas, consumers_per_replica)
    members = [_parse_member(m, names[m.member_id]) for m in consumers]
    state = GROUP_STATE_BY_NAME.get(described.group_state, GroupState.UNKNOWN)
    return ObservedGroup(
        state if members else GroupState.EMPTY,
        tuple(sorted(members, key=lambda m: m.id)),
        assignor=described.assignor_name,
    )


def _parse_member(member: Any, name: str) -> ObservedMember:
    return ObservedMember(
        id=member.member_id,
        instance=name,
        owned_partitions=_list_partitions(member.assignment.topic_partitions),
        rack=member.rack_id or None,
        # the topics of a pattern are not told
        topics=None if member.subscribed_topic_regex else frozenset(member.subscribed_topic_names) or None,
        target_partitions=_list_partitions(member.target_assignment.topic_partitions),
        host=member.client_host.lstrip("/"),
    )


def _list_partitions(topics: Iterable[Any]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(t.topic_name, number) for t in topics for number in t.partitions)
