"""Trimtab's assignor as a plugin for kafka-python: cooperative (KIP-429), sticky, by load.

    KafkaConsumer("orders", group_id="g", partition_assignment_strategy=[TrimtabAssignor()])

Alone it balances by the speeds and the plan that `view` returns, or by count where it has none;
inside `trimtab.consumer_sdk` the view comes from the control topics.

For a rolling upgrade list both protocols, `[TrimtabAssignor, CooperativeStickyAssignor]`, restart
the members one by one, then list `[TrimtabAssignor]` alone. kafka-python tells only the elected
assignor what was assigned, so ours looks at the consumer itself whenever it must say what the
member owns (`_find_coordinator`).
"""

# pyright knows only the stubs of kafka-python 2, and `name` is a plain attribute in every assignor
# pyright: reportIncompatibleMethodOverride=false, reportAttributeAccessIssue=false
# pyright: reportUnknownParameterType=false

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from types import FrameType
from typing import Any, ClassVar

from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor, RebalanceProtocol
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from trimtab.assignor.clients.leader_plugin import (
    build_replica_racks,
    decode_assignment_data,
    lead_group,
    log_round,
    parse_own_policy,
    subscribed_topics,
)
from trimtab.assignor.model import Load, TopicPartition
from trimtab.assignor.partition_index import OwnedPartitions, PartitionIndex
from trimtab.assignor.racks.replica_racks import ReplicaRacks
from trimtab.assignor.rebalance.consumer_protocol import MemberSubscription
from trimtab.assignor.rebalance.leader import LeaderView, RebalanceRound
from trimtab.assignor.rebalance.user_data import MemberUserData, group_by_topic

SUBSCRIPTION_VERSION = 3
"""ConsumerProtocolSubscription v3: owned partitions (KIP-429), generation (KIP-792), rack
(KIP-881).
"""


@dataclass(frozen=True, slots=True)
class _OwnedSince:
    """What this member reads, and since which generation."""

    partitions: frozenset[TopicPartition] = frozenset()
    generation: int = -1


class TrimtabAssignor(AbstractPartitionAssignor):  # type: ignore[misc] # kafka-python has no types
    """Assigns by write speed, moving as little load as it can.

    `heuristic` is a registered name; `capacity` is this member's bytes/s ("2.3 MB/s"), None for the
    plan's or the default; `instance` is the name that the plan drains by; `rack` is
    where this member is (`client.rack`); `view` returns what the leader knows (called once per
    rebalance, on the client's I/O thread: it must not block). Raises
    UnknownHeuristicError and SettingError.
    """

    name: ClassVar[str] = "trimtab"
    version: ClassVar[int] = SUBSCRIPTION_VERSION

    def __init__(
        self,
        heuristic: str = "steady",
        capacity: str | float | None = None,
        *,
        instance: str = "",
        rack: str | None = None,
        view: Callable[[], LeaderView] | None = None,
        on_round: Callable[[RebalanceRound], None] = log_round,
    ) -> None:
        self._policy, own_capacity = parse_own_policy(heuristic, capacity)
        self._data = MemberUserData(capacity=own_capacity, instance=instance, rack=rack)
        self._view = view or (lambda: LeaderView(Load()))
        self._on_round = on_round
        self._last_assigned = _OwnedSince()

    def supported_protocols(self) -> list[RebalanceProtocol]:
        """Cooperative only: a member keeps what does not move (KIP-429)."""
        return [RebalanceProtocol.COOPERATIVE]

    def drain(self, draining: bool = True) -> None:  # noqa: FBT001, FBT002 - a switch
        """Ask, from the next rebalance on, to be given nothing."""
        self._data = replace(self._data, draining=draining)

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolSubscription:
        """Say what this member subscribes to, owns and can do; called before each JoinGroup."""
        held = _owned_by_caller(self._last_assigned)
        return ConsumerProtocolSubscription(
            version=SUBSCRIPTION_VERSION,
            topics=sorted(topics),
            user_data=self._data.encode(),
            owned_partitions=[
                ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=list(numbers))
                for topic, numbers in group_by_topic(held.partitions)
            ],
            generation_id=held.generation,
            rack_id=self._data.rack,
        )

    def on_assignment(self, assignment: Any, generation: int) -> None:
        """Remember what was assigned and promised; called on each member after each round."""
        held = frozenset(TopicPartition(tp.topic, tp.partition) for tp in assignment.partitions())
        self._last_assigned = _OwnedSince(held, generation)
        placement = decode_assignment_data(assignment.user_data)
        self._data = replace(
            self._data,
            decision_fingerprint=placement.decision_fingerprint,
            promised=placement.promised,
        )

    def assign(self, cluster: Any, members: Sequence[Any]) -> dict[str, bytes]:
        """Lead a rebalance: decide or complete, stage, answer every member in bytes."""
        return self.assign_decoded(
            cluster, {m.member_id: _convert_subscription(m.metadata) for m in members}
        )

    def assign_decoded(
        self, cluster: Any, members: Mapping[str, MemberSubscription]
    ) -> dict[str, bytes]:
        """Do as `assign` with subscriptions that are read already."""
        counts = {t: cluster.partitions_for_topic(t) for t in subscribed_topics(members)}
        own_topics = _subscribed_by_caller(frozenset(counts))
        view = replace(self._view(), load_replica_racks=partial(_load_replica_racks, cluster))
        outcome = lead_group(members, counts, own_topics, view, self._policy)
        self._on_round(outcome)
        return outcome.encode()


def _convert_subscription(metadata: Any) -> MemberSubscription:
    """Read what kafka-python has decoded, of whatever version."""
    return MemberSubscription(
        topics=tuple(metadata.topics),
        user_data=metadata.user_data,
        owned=OwnedPartitions.from_grouped(
            (e.topic, e.partitions) for e in metadata.owned_partitions or ()
        ),
        generation=metadata.generation_id,
        rack=metadata.rack_id,
    )


def _load_replica_racks(cluster: Any, partition_index: PartitionIndex) -> ReplicaRacks:
    """Return in which racks the replicas are; the client shows leaders only, but holds them all."""
    rack = {broker.node_id: broker.rack for broker in cluster.brokers()}
    held = cluster._partitions  # noqa: SLF001 - pinned by a test
    return build_replica_racks(held, rack, attrgetter("replica_nodes"), partition_index)


def _find_coordinator() -> Any | None:
    """Return kafka-python's coordinator that is calling the assignor, or None (in a test).

    The plugin interface shows an assignor neither the consumer nor what it owns, and after a lost
    membership, or while another listed assignor is elected, what it was told last is no longer
    true. Claiming partitions that another member reads would break rule 2 of staging, so the caller
    is asked.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - see above
    while frame is not None:
        caller = frame.f_locals.get("self")
        if type(caller).__name__ == "ConsumerCoordinator" and hasattr(caller, "_subscription"):
            return caller
        frame = frame.f_back
    return None


def _owned_by_caller(last_assigned: _OwnedSince) -> _OwnedSince:
    coordinator = _find_coordinator()
    if coordinator is None:
        return last_assigned
    assigned = coordinator._subscription.assigned_partitions()  # noqa: SLF001 - as above
    generation = coordinator._generation.generation_id  # noqa: SLF001 - as above
    return _OwnedSince(
        frozenset(TopicPartition(tp.topic, tp.partition) for tp in assigned), generation
    )


def _subscribed_by_caller(all_topics: frozenset[str]) -> frozenset[str]:
    coordinator = _find_coordinator()
    if coordinator is None:
        return all_topics
    return frozenset(coordinator._subscription.subscription or ())  # noqa: SLF001 - as above


__all__ = ["TrimtabAssignor"]
