"""Trimtab's assignor as a plugin for aiokafka, whose rebalances are eager.

    strategy = EagerTrimtabAssignor.with_settings(heuristic="mwf", capacity="2.3 MB/s")
    AIOKafkaConsumer("orders", group_id="g", partition_assignment_strategy=(strategy,))

aiokafka takes a class and calls class methods, so consumers that share a class share its owned
partitions: give each consumer of a process its own `with_settings()`.
"""

# `name` is a plain attribute in aiokafka's own assignors, too.
# pyright: reportIncompatibleMethodOverride=false

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, Self, cast

from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

from trimtab.assignor.clients.leader_plugin import (
    build_replica_racks,
    decode_assignment_data,
    decode_member_data,
    lead_group,
    log_round,
    parse_own_policy,
    read_view,
    report_round,
    subscribed_topics,
)
from trimtab.assignor.model import Load, PlacementPolicy, TopicPartition
from trimtab.assignor.model.partition_index import OwnedPartitions, PartitionIndex
from trimtab.assignor.model.replica_racks import ReplicaRacks
from trimtab.assignor.rebalance.consumer_protocol import MemberSubscription
from trimtab.assignor.rebalance.leader import LeaderView
from trimtab.assignor.rebalance.user_data import MemberUserData, group_by_topic


class EagerTrimtabAssignor(AbstractPartitionAssignor):  # type: ignore[misc] # aiokafka is untyped
    """Assigns partitions by write rate and moves as little load as it can."""

    # Never the protocol "trimtab" in one group: its members read on while eager ones have stopped.
    name: ClassVar[str] = "trimtab-eager"
    _policy: ClassVar[PlacementPolicy] = PlacementPolicy()
    _data: ClassVar[MemberUserData] = MemberUserData()
    # A tuple, since a function as class attribute would become a method.
    _view_provider: ClassVar[tuple[Callable[[], LeaderView]]] = (lambda: LeaderView(Load()),)

    @classmethod
    def with_settings(
        cls,
        heuristic: str = "steady",
        capacity: str | float | None = None,
        *,
        instance: str = "",
        rack: str | None = None,
        co_partitioned: str | Iterable[Iterable[str]] = (),
        view: Callable[[], LeaderView] | None = None,
    ) -> type[Self]:
        """Return a class with these settings and its own owned partitions.

        Arguments and errors are those of `trimtab.assignor.clients.kafka_python.TrimtabAssignor`.
        """
        policy, own_capacity = parse_own_policy(heuristic, capacity, co_partitioned)
        settings = {
            "_policy": policy,
            "_data": MemberUserData(capacity=own_capacity, instance=instance, rack=rack),
            "_view_provider": (view or cls._view_provider[0],),
        }
        return cast("type[Self]", type(cls.__name__, (cls,), settings))

    @classmethod
    def metadata(cls, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """Return this member's subscription."""
        # aiokafka speaks version 0, without owned partitions: they are in the user data.
        return ConsumerProtocolMemberMetadata(0, sorted(topics), cls._data.encode())

    @classmethod
    def on_assignment(cls, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Store the assigned partitions for the next rebalance."""
        owned = group_by_topic(TopicPartition(tp.topic, tp.partition) for tp in assignment.partitions())
        decision = decode_assignment_data(assignment.user_data).decision_fingerprint
        cls._data = replace(cls._data, owned=owned, decision_fingerprint=decision)

    @classmethod
    def assign(
        cls, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, bytes]:
        """Lead a rebalance and return each member's encoded assignment, the whole target."""
        subscriptions = {m: _convert_subscription(m, metadata) for m, metadata in members.items()}
        counts = {t: cluster.partitions_for_topic(t) for t in subscribed_topics(subscriptions)}
        view = replace(
            read_view(cls._view_provider[0]), load_replica_racks=partial(_load_replica_racks, cluster)
        )
        outcome = lead_group(subscriptions, counts, frozenset(counts), view, cls._policy)
        report_round(log_round, outcome)
        return outcome.encode(eager=True)


def _load_replica_racks(cluster: Any, partition_index: PartitionIndex) -> ReplicaRacks:
    rack = {broker.nodeId: broker.rack for broker in cluster.brokers()}
    # The public methods show leaders only; a test pins the private attribute.
    metadata = cluster._partitions  # noqa: SLF001
    return build_replica_racks(metadata, rack, attrgetter("replicas"), partition_index)


def _convert_subscription(member: str, metadata: Any) -> MemberSubscription:
    owned = OwnedPartitions.from_grouped(decode_member_data(member, metadata.user_data).owned)
    return MemberSubscription(tuple(metadata.subscription), metadata.user_data, owned)
