"""What the sidecar sees in one turn, as values: speeds, readers, replicas, the plan in force.

What is not known is None or absent, never zero; `trouble` says why.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.values import GroupPlan, PartitionSpeed
from trimtab.sidecar.measurement.queue_backlog import Queued

Racks: TypeAlias = Mapping[TopicPartition, tuple[str | None, ...]]
"""Racks of the brokers with a replica of each partition, None where a broker says none."""


class GroupState(StrEnum):
    """The group as its coordinator describes it."""

    STABLE = "stable"
    REBALANCING = "rebalancing"
    EMPTY = "empty"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Reader:
    """A member of the group; `instance` is its client id, the name that survives restarts.

    `rack` is None where it does not say its own.
    """

    id: str
    instance: str
    owned: frozenset[TopicPartition] = frozenset()
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class GroupView:
    """The members of the group and its state.

    `shared` tells that the broker hands every member messages of every partition (a share group):
    nobody owns any, and nothing is placed or handed over.
    """

    state: GroupState = GroupState.UNKNOWN
    readers: tuple[Reader, ...] = ()
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Instance:
    """A replica as its target knows it; `started` is seconds since the epoch.

    Where a target takes replicas away in an order, the one of the highest `ordinal` goes first;
    those of one ordinal may go in any order.
    """

    name: str
    alive: bool
    started: float
    ordinal: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """The count that the target's own controller works towards.

    `by` names who set it last, `at` says when at the latest (seconds since the epoch), and `ours`
    whether it was us. Where it is not `traced` nobody knows who it was, and it may have been us.
    """

    count: int
    by: str
    at: float
    ours: bool
    traced: bool = True


@dataclass(frozen=True, slots=True)
class Outside:
    """What others ask of the target; with `contest`, a count of theirs is set back.

    `pause` is empty, "in", "out" or "all".
    """

    asked: Asked | None = None
    contest: bool = False
    pause: str = ""
    trouble: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything that one decision may look at.

    `speeds` has an entry for every partition of the group's topics. `replicas` is None where the
    target did not answer. `plan_known` is False as long as the plan in force could not be read.
    `restart` names instances that somebody asked to be replaced. `outside` is what others ask of
    the target. `consumed` is what each partition's reader consumes, in bytes/s, where it is known;
    `stuck` is what waits and is read, but of which nothing is consumed. `racks` is empty where
    nobody asked (`Monitor`). `queue` is what there is to do in messages, where the group's topic
    is a queue.
    """

    speeds: Mapping[TopicPartition, PartitionSpeed]
    group: GroupView
    replicas: tuple[Instance, ...] | None
    plan: GroupPlan | None = None
    plan_known: bool = True
    restart: tuple[str, ...] = ()
    outside: Outside = Outside()
    consumed: Mapping[TopicPartition, float] = field(default_factory=dict[TopicPartition, float])
    stuck: frozenset[TopicPartition] = frozenset()
    racks: Racks = field(default_factory=dict[TopicPartition, tuple[str | None, ...]])
    queue: Queued | None = None
    trouble: tuple[str, ...] = field(default=())
