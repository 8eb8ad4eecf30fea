"""Observation of one iteration: load, members, replicas, plan in force.

Unknown values are None or absent, never zero; `errors` says why.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.model.queue_backlog import QueueBacklog

ReplicaRacks: TypeAlias = Mapping[TopicPartition, tuple[str | None, ...]]  # None: broker.rack is not set


class GroupState(StrEnum):
    """Group state as described by the coordinator."""

    STABLE = "stable"
    REBALANCING = "rebalancing"
    EMPTY = "empty"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ObservedMember:
    """A member of the group."""

    id: str
    instance: str  # client id, which survives restarts
    owned_partitions: frozenset[TopicPartition] = frozenset()
    rack: str | None = None
    capacity: float | None = None  # bytes/s, as the member itself states it
    topics: frozenset[str] | None = None  # of its subscription; None: unknown
    # What the broker wants the member to own (KIP-848); None: the group's leader assigns.
    target_partitions: frozenset[TopicPartition] | None = None
    host: str = ""  # IP address of its client; empty: unknown
    # Owned partitions that it begins once their former owner has released them, by this decision.
    promised_partitions: frozenset[TopicPartition] = frozenset()
    decision_fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class ObservedGroup:
    """Members and state of the group."""

    state: GroupState = GroupState.UNKNOWN
    members: tuple[ObservedMember, ...] = ()
    is_share_group: bool = False  # KIP-932: each member gets every partition; none is owned or handed over
    assignor: str | None = None  # of the broker (KIP-848); None: the group's leader assigns
    unreleased: frozenset[TopicPartition] = frozenset()  # promised, and perhaps read by the former owner


@dataclass(frozen=True, slots=True)
class ReplicaInstance:
    """A replica as listed by its target."""

    name: str
    alive: bool
    started_at: float  # seconds since the epoch
    ordinal: int = 0  # targets that remove replicas in order remove the highest first


@dataclass(frozen=True, slots=True)
class RequestedReplicas:
    """The replica count that the target's controller works towards."""

    count: int
    requested_by: str
    requested_at: float  # latest possible time of the request, in seconds since the epoch
    is_ours: bool
    is_requester_known: bool = True  # if not, it may have been this sidecar


@dataclass(frozen=True, slots=True)
class TargetStatus:
    """What a target tells besides its replicas: requests of others, errors, addresses."""

    requested: RequestedReplicas | None = None
    paused_direction: str = ""  # or "scale-up", "scale-down", "all"
    errors: tuple[str, ...] = ()
    replicas_by_address: Mapping[str, str] = field(
        default_factory=dict[str, str]
    )  # IP addresses, where known


@dataclass(frozen=True, slots=True)
class Observation:
    """Input of one decision."""

    write_rates: Mapping[TopicPartition, PartitionLoad]  # of each partition of the group's topics
    group: ObservedGroup
    replicas: tuple[ReplicaInstance, ...] | None  # None: the target did not answer
    plan: GroupPlan | None = None
    plan_known: bool = True  # False until the control topic was read to its end
    pending_restarts: tuple[str, ...] = ()  # instances to replace
    target_status: TargetStatus = TargetStatus()
    # Bytes/s, where known.
    consumption_rates: Mapping[TopicPartition, float] = field(default_factory=dict[TopicPartition, float])
    stuck_partitions: frozenset[TopicPartition] = frozenset()  # backlog and owner, but no progress
    halts: Mapping[TopicPartition, str] = field(default_factory=dict[TopicPartition, str])  # why not read
    # Whose transaction, and since when, keeps readers from the end of a partition.
    open_transactions: Mapping[TopicPartition, str] = field(default_factory=dict[TopicPartition, str])
    # Empty if not requested (`GroupMonitor`).
    replica_racks: ReplicaRacks = field(default_factory=dict[TopicPartition, tuple[str | None, ...]])
    queue: QueueBacklog | None = None
    errors: tuple[str, ...] = ()
    is_steered: bool = True  # False: a plan carrier reports that no plan is carried out
    # Share by which the load may rise beyond `write_rates` in the scale-down window; None: no forecast.
    forecast_rise: float | None = None


def explain_unknown_state(observation: Observation) -> tuple[str, ...] | None:
    """Return what is unknown without which nothing can be decided; None if all of it is known."""
    if not observation.plan_known:
        return ("the plan in force has not been read yet", *observation.errors)
    if observation.replicas is None:
        return ("the replica target does not answer", *observation.errors)
    if observation.group.state is GroupState.UNKNOWN:
        return ("the group could not be described", *observation.errors)
    return None
