"""Trimtab's assignor as a plugin for aiokafka, whose protocol is eager: all stop, then start.

    AIOKafkaConsumer("orders", group_id="g", partition_assignment_strategy=(TrimtabAssignor,))

Settings go through `TrimtabAssignor.configured(heuristic="mwf", capacity="2.3 MB/s")`, which
returns a class of its own. aiokafka passes classes and calls class methods, so two consumers of one
process that share a class share its memory of what they read: give each its own `configured()`.

The protocol is called "trimtab-eager": it must never share a group with the cooperative "trimtab",
whose members keep reading while these have stopped.
"""

# pyright: reportIncompatibleMethodOverride=false
# (`name` is a plain attribute in every assignor of aiokafka's own, too)

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, Self, cast

from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

from trimtab.assignor.clients.leader_plugin import (
    lead_group,
    log_round,
    member_data,
    own_policy,
    placement_data,
    replicas_held,
    subscribed_topics,
)
from trimtab.assignor.model import Load, Policy, TopicPartition
from trimtab.assignor.partition_index import Holding, Universe
from trimtab.assignor.racks.replica_racks import Replicas
from trimtab.assignor.rebalance.consumer_protocol import Subscription
from trimtab.assignor.rebalance.leader import View
from trimtab.assignor.rebalance.user_data import MemberData, group_by_topic


def _blind() -> View:
    return View(Load())


class TrimtabAssignor(AbstractPartitionAssignor):  # type: ignore[misc] # aiokafka is untyped
    """Assigns by write speed, moving as little load as it can; sticky through the user data."""

    name: ClassVar[str] = "trimtab-eager"
    _policy: ClassVar[Policy] = Policy()
    _data: ClassVar[MemberData] = MemberData()
    _sight: ClassVar[tuple[Callable[[], View]]] = (_blind,)  # in a tuple: no method

    @classmethod
    def configured(
        cls,
        heuristic: str = "steady",
        capacity: str | float | None = None,
        *,
        instance: str = "",
        rack: str | None = None,
        view: Callable[[], View] | None = None,
    ) -> type[Self]:
        """Return a class with these settings and a memory of its own.

        The arguments are those of `trimtab.assignor.clients.kafka_python.TrimtabAssignor`. Raises
        UnknownHeuristic and SettingError.
        """
        policy, own_capacity = own_policy(heuristic, capacity)
        settings = {
            "_policy": policy,
            "_data": MemberData(capacity=own_capacity, instance=instance, rack=rack),
            "_sight": (view or cls._sight[0],),
        }
        return cast("type[Self]", type(cls.__name__, (cls,), settings))

    @classmethod
    def metadata(cls, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """Say what this member subscribes to, read until now, and can do."""
        return ConsumerProtocolMemberMetadata(0, sorted(topics), cls._data.encode())

    @classmethod
    def on_assignment(cls, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Remember what was assigned, to say so in the next rebalance."""
        owned = group_by_topic(
            TopicPartition(tp.topic, tp.partition) for tp in assignment.partitions()
        )
        decision = placement_data(assignment.user_data).decision
        cls._data = replace(cls._data, owned=owned, decision=decision)

    @classmethod
    def assign(
        cls, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, bytes]:
        """Lead a rebalance: all have stopped, so the whole target is handed out at once."""
        subscriptions = {m: _subscription(m, metadata) for m, metadata in members.items()}
        counts = {t: cluster.partitions_for_topic(t) for t in subscribed_topics(subscriptions)}
        view = replace(cls._sight[0](), replicas=partial(_replicas, cluster))
        outcome = lead_group(subscriptions, counts, frozenset(counts), view, cls._policy)
        log_round(outcome)
        return outcome.encode(eager=True)


def _replicas(cluster: Any, universe: Universe) -> Replicas:
    """Return in which racks the replicas are; the client shows leaders only, but holds them all."""
    rack = {broker.nodeId: broker.rack for broker in cluster.brokers()}
    held = cluster._partitions  # noqa: SLF001 - pinned by a test
    return replicas_held(held, rack, attrgetter("replicas"), universe)


def _subscription(member: str, metadata: Any) -> Subscription:
    """Read a member's subscription; what it owned is in its user data, for eager protocols."""
    owned = member_data(member, metadata.user_data).owned
    return Subscription(tuple(metadata.subscription), metadata.user_data, Holding.of(owned))
