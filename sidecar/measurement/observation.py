"""What the sidecar sees in one turn, as values: speeds, readers, replicas, the plan in force.

What is not known is None or absent, never zero; `trouble` says why.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.values import GroupPlan, PartitionLoad
from trimtab.sidecar.measurement.queue_backlog import QueueBacklog

ReplicaRacks: TypeAlias = Mapping[TopicPartition, tuple[str | None, ...]]
"""Racks of the brokers with a replica of each partition, None where a broker says none."""


class GroupState(StrEnum):
    """The group as its coordinator describes it."""

    STABLE = "stable"
    REBALANCING = "rebalancing"
    EMPTY = "empty"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ObservedMember:
    """A member of the group; `instance` is its client id, the name that survives restarts.

    `rack` is None where it does not say its own.
    """

    id: str
    instance: str
    owned_partitions: frozenset[TopicPartition] = frozenset()
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class ObservedGroup:
    """The members of the group and its state.

    `is_share_group` tells that the broker hands every member messages of every partition (a share group):
    nobody owns any, and nothing is placed or handed over.
    """

    state: GroupState = GroupState.UNKNOWN
    members: tuple[ObservedMember, ...] = ()
    is_share_group: bool = False


@dataclass(frozen=True, slots=True)
class ReplicaInstance:
    """A replica as its target knows it; `started_at` is seconds since the epoch.

    Where a target takes replicas away in an order, the one of the highest `ordinal` goes first;
    those of one ordinal may go in any order.
    """

    name: str
    alive: bool
    started_at: float
    ordinal: int = 0


@dataclass(frozen=True, slots=True)
class RequestedReplicas:
    """The count that the target's own controller works towards.

    `requested_by` names who set it last, `requested_at` says when at the latest (seconds since the epoch), and `is_ours`
    whether it was us. Where it is not `is_requester_known` nobody knows who it was, and it may have been us.
    """

    count: int
    requested_by: str
    requested_at: float
    is_ours: bool
    is_requester_known: bool = True


@dataclass(frozen=True, slots=True)
class ExternalScaling:
    """What others ask of the target; with `override`, a count of theirs is set back.

    `paused_direction` is empty, "in", "out" or "all".
    """

    requested: RequestedReplicas | None = None
    override: bool = False
    paused_direction: str = ""
    trouble: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything that one decision may look at.

    `write_rates` has an entry for every partition of the group's topics. `replicas` is None where the
    target did not answer. `plan_known` is False as long as the plan in force could not be read.
    `pending_restarts` names instances that somebody asked to be replaced. `external_scaling` is what others ask of
    the target. `consumption_rates` is what each partition's reader consumes, in bytes/s, where it is known;
    `stuck_partitions` is what waits and is read, but of which nothing is consumed. `replica_racks` is empty where
    nobody asked (`GroupMonitor`). `queue` is what there is to do in messages, where the group's topic
    is a queue.
    """

    write_rates: Mapping[TopicPartition, PartitionLoad]
    group: ObservedGroup
    replicas: tuple[ReplicaInstance, ...] | None
    plan: GroupPlan | None = None
    plan_known: bool = True
    pending_restarts: tuple[str, ...] = ()
    external_scaling: ExternalScaling = ExternalScaling()
    consumption_rates: Mapping[TopicPartition, float] = field(
        default_factory=dict[TopicPartition, float]
    )
    stuck_partitions: frozenset[TopicPartition] = frozenset()
    replica_racks: ReplicaRacks = field(
        default_factory=dict[TopicPartition, tuple[str | None, ...]]
    )
    queue: QueueBacklog | None = None
    trouble: tuple[str, ...] = field(default=())
