"""Observation of one iteration: load, members, replicas, plan in force.

Unknown values are None or absent, never zero; `trouble` says why.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.measurement.queue_backlog import QueueBacklog

# Racks of the replicas of each partition; None for a broker without a rack
ReplicaRacks: TypeAlias = Mapping[TopicPartition, tuple[str | None, ...]]


class GroupState(StrEnum):
    """Group state as described by the coordinator."""

    STABLE = "stable"
    REBALANCING = "rebalancing"
    EMPTY = "empty"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ObservedMember:
    """A member of the group; `instance` is its client id, which survives restarts."""

    id: str
    instance: str
    owned_partitions: frozenset[TopicPartition] = frozenset()
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class ObservedGroup:
    """Members and state of the group.

    In a share group the broker delivers every partition to every member: no partition is owned,
    placed or handed over.
    """

    state: GroupState = GroupState.UNKNOWN
    members: tuple[ObservedMember, ...] = ()
    is_share_group: bool = False


@dataclass(frozen=True, slots=True)
class ReplicaInstance:
    """A replica as listed by its target; `started_at` is seconds since the epoch.

    Targets that remove replicas in order remove the highest `ordinal` first.
    """

    name: str
    alive: bool
    started_at: float
    ordinal: int = 0


@dataclass(frozen=True, slots=True)
class RequestedReplicas:
    """The replica count that the target's controller works towards.

    `requested_at` is the latest possible time of the request, in seconds since the epoch. Without
    `is_requester_known` the requester is unknown and may have been this sidecar.
    """

    count: int
    requested_by: str
    requested_at: float
    is_ours: bool
    is_requester_known: bool = True


@dataclass(frozen=True, slots=True)
class ExternalScaling:
    """Requests of others at the target.

    `paused_direction` is empty, "scale-up", "scale-down" or "all".
    """

    requested: RequestedReplicas | None = None
    paused_direction: str = ""
    trouble: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Observation:
    """Input of one decision.

    `write_rates` has an entry for each partition of the group's topics. `replicas` is None if the
    target did not answer. `plan_known` is False until the plan in force was read.
    `pending_restarts` are instances to replace. `consumption_rates` are bytes/s by partition, where
    known; `stuck_partitions` have a backlog and an owner, but no progress. `replica_racks` is empty
    if not requested (`GroupMonitor`). `queue` is the queue's backlog in messages, if it is one.
    """

    write_rates: Mapping[TopicPartition, PartitionLoad]
    group: ObservedGroup
    replicas: tuple[ReplicaInstance, ...] | None
    plan: GroupPlan | None = None
    plan_known: bool = True
    pending_restarts: tuple[str, ...] = ()
    external_scaling: ExternalScaling = ExternalScaling()
    consumption_rates: Mapping[TopicPartition, float] = field(default_factory=dict[TopicPartition, float])
    stuck_partitions: frozenset[TopicPartition] = frozenset()
    replica_racks: ReplicaRacks = field(default_factory=dict[TopicPartition, tuple[str | None, ...]])
    queue: QueueBacklog | None = None
    trouble: tuple[str, ...] = field(default=())
