"""Trimtab's assignor as a plugin for kafka-python: cooperative (KIP-429), sticky, by load.

    KafkaConsumer("orders", group_id="g", partition_assignment_strategy=[TrimtabAssignor()])

It balances by the write rates and the plan that `view` returns, and by partition count without
them. `trimtab.consumer_sdk.GroupView` is a view of the control topics; for `lag-aware` its leader asks
the brokers for the lag that no sidecar publishes.

For a rolling upgrade list both protocols, `[TrimtabAssignor, CooperativeStickyAssignor]`, restart
the members one by one, then list `[TrimtabAssignor]` alone.
"""

# pyright knows only the stubs of kafka-python 2, and `name` is a plain attribute in every assignor
# pyright: reportIncompatibleMethodOverride=false, reportAttributeAccessIssue=false
# pyright: reportUnknownParameterType=false

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from types import FrameType
from typing import Any, ClassVar, NamedTuple

from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor, RebalanceProtocol
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from trimtab.assignor.clients.leader_plugin import (
    build_replica_racks,
    decode_assignment_data,
    lead_group,
    log_round,
    parse_own_policy,
    read_view,
    report_round,
    subscribed_topics,
)
from trimtab.assignor.model import Load, TopicPartition
from trimtab.assignor.model.partition_index import OwnedPartitions, PartitionIndex
from trimtab.assignor.model.replica_racks import ReplicaRacks
from trimtab.assignor.rebalance.consumer_protocol import MemberSubscription
from trimtab.assignor.rebalance.leader import LeaderView, RebalanceRound
from trimtab.assignor.rebalance.user_data import MemberUserData, group_by_topic

# ConsumerProtocolSubscription v3: owned partitions (KIP-429), generation (KIP-792), rack (KIP-881).
SUBSCRIPTION_VERSION = 3


class ConsumerSubscription(NamedTuple):
    """Partitions that a consumer owns, their generation, and the topics it subscribes to."""

    owned: frozenset[TopicPartition] = frozenset()
    generation: int = -1
    topics: frozenset[str] = frozenset()


def read_consumer_subscription(coordinator: Any) -> ConsumerSubscription:
    """Return the subscription of the consumer that kafka-python's `coordinator` belongs to."""
    subscription = coordinator._subscription  # noqa: SLF001 - pinned by a test
    return ConsumerSubscription(
        frozenset(TopicPartition(p.topic, p.partition) for p in subscription.assigned_partitions()),
        coordinator._generation.generation_id,  # noqa: SLF001 - as above
        frozenset(subscription.subscription or ()),
    )


class TrimtabAssignor(AbstractPartitionAssignor):  # type: ignore[misc] # kafka-python has no types
    """Assigns partitions by write rate and moves as little load as it can.

    `heuristic` is a registered name; `capacity` is this member's bytes/s ("2.3 MB/s"), None for the
    plan's or the default; `instance` is the name by which the plan drains it; `rack` is this
    member's `client.rack`; `co_partitioned` are groups of topics whose partitions of one number
    share a consumer. `view` returns the leader's load and plan (`trimtab.consumer_sdk.GroupView`);
    it is called once per rebalance on the client's I/O thread and must not block. Raises
    UnknownHeuristicError, BrokenHeuristicError and SettingError.
    """

    name: ClassVar[str] = "trimtab"
    version: ClassVar[int] = SUBSCRIPTION_VERSION

    def __init__(  # noqa: PLR0913 - the plugin's settings, by keyword
        self,
        heuristic: str = "steady",
        capacity: str | float | None = None,
        *,
        instance: str = "",
        rack: str | None = None,
        co_partitioned: str | Iterable[Iterable[str]] = (),
        view: Callable[[], LeaderView] | None = None,
        on_round: Callable[[RebalanceRound], None] = log_round,
    ) -> None:
        self._policy, own_capacity = parse_own_policy(heuristic, capacity, co_partitioned)
        self._data = MemberUserData(capacity=own_capacity, instance=instance, rack=rack)
        self._view = view or (lambda: LeaderView(Load()))
        self._on_round = on_round
        # The SDK, which owns its consumer, sets a function that needs no search of the call stack.
        self.read_subscription: Callable[[], ConsumerSubscription | None] = _read_calling_consumer
        self._last_assigned = ConsumerSubscription()
        self.fault = ""  # why the leader did not follow its plan, or its heuristic, in the last round

    def supported_protocols(self) -> list[RebalanceProtocol]:
        """Return the cooperative protocol only (KIP-429)."""
        return [RebalanceProtocol.COOPERATIVE]

    def drain(self, draining: bool = True) -> None:  # noqa: FBT001, FBT002 - a switch
        """Request, from the next rebalance on, an empty assignment."""
        self._data = replace(self._data, draining=draining)

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolSubscription:
        """Return this member's subscription; called before each JoinGroup."""
        # Read anew each time: what was assigned may have been revoked or lost since.
        state = self.read_subscription() or self._last_assigned
        return ConsumerProtocolSubscription(
            version=SUBSCRIPTION_VERSION,
            topics=sorted(topics),
            user_data=self._without_begun(state.owned).encode(),
            owned_partitions=[
                ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=list(numbers))
                for topic, numbers in group_by_topic(state.owned)
            ],
            generation_id=state.generation,
            rack_id=self._data.rack,
        )

    def _without_begun(self, owned: frozenset[TopicPartition]) -> MemberUserData:
        # What was begun at its release is owned, also rounds later, when another decision may hold.
        promised = {TopicPartition(topic, n) for topic, numbers in self._data.promised for n in numbers}
        return replace(self._data, promised=group_by_topic(promised - owned)) if promised else self._data

    def on_assignment(self, assignment: Any, generation: int) -> None:
        """Store the assigned and promised partitions; called on each member after each round."""
        owned = frozenset(TopicPartition(tp.topic, tp.partition) for tp in assignment.partitions())
        self._last_assigned = ConsumerSubscription(owned, generation)
        placement = decode_assignment_data(assignment.user_data)
        self.fault = placement.fault
        self._data = replace(
            self._data,
            decision_fingerprint=placement.decision_fingerprint,
            promised=placement.promised,
            generation=generation,
        )

    def assign(self, cluster: Any, members: Sequence[Any]) -> dict[str, bytes]:
        """Lead a rebalance and return each member's encoded assignment."""
        return self.assign_decoded(cluster, {m.member_id: _convert_subscription(m.metadata) for m in members})

    def assign_decoded(self, cluster: Any, members: Mapping[str, MemberSubscription]) -> dict[str, bytes]:
        """Lead a rebalance as `assign` does, on subscriptions that are decoded already."""
        counts = {t: cluster.partitions_for_topic(t) for t in subscribed_topics(members)}
        subscription = self.read_subscription()
        own_topics = frozenset(counts) if subscription is None else subscription.topics
        view = replace(read_view(self._view), load_replica_racks=partial(_load_replica_racks, cluster))
        outcome = lead_group(members, counts, own_topics, view, self._policy)
        report_round(self._on_round, outcome)
        return outcome.encode()


def _convert_subscription(metadata: Any) -> MemberSubscription:
    return MemberSubscription(
        topics=tuple(metadata.topics),
        user_data=metadata.user_data,
        owned=OwnedPartitions.from_grouped(
            (e.topic, e.partitions or ()) for e in metadata.owned_partitions or ()
        ),
        generation=metadata.generation_id,
        rack=metadata.rack_id,
    )


def _load_replica_racks(cluster: Any, partition_index: PartitionIndex) -> ReplicaRacks:
    rack = {broker.node_id: broker.rack for broker in cluster.brokers()}
    # The public methods show leaders only; a test pins the private attribute.
    metadata = cluster._partitions  # noqa: SLF001
    return build_replica_racks(metadata, rack, attrgetter("replica_nodes"), partition_index)


def _read_calling_consumer() -> ConsumerSubscription | None:
    # kafka-python shows a plugin neither the consumer nor its partitions, and calls on_assignment
    # of the elected assignor only. After a lost membership, or a round led by another assignor, the
    # last assignment is outdated: claiming it would give a partition two readers. Only the call
    # stack leads to the consumer. (None in a test, which calls without one.)
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        caller = frame.f_locals.get("self")
        if type(caller).__name__ == "ConsumerCoordinator" and hasattr(caller, "_subscription"):
            return read_consumer_subscription(caller)
        frame = frame.f_back
    return None


__all__ = ["ConsumerSubscription", "TrimtabAssignor", "read_consumer_subscription"]
