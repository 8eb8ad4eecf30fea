"""Input (`ConsumerGroup`, `Load`, `PlacementPolicy`) and output (`PlacementPlan`) of a decision.

Heuristics see no names: `trimtab.assignor.problem` converts a `ConsumerGroup` into a
`PackingProblem` of integers, and a heuristic packs that. Plans are sorted, so equal input gives
equal bytes.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int32]
BoolArray: TypeAlias = NDArray[np.bool_]

UNASSIGNED: Final = -1
"""Owner of a partition without a reader; bin of a partition that fits nowhere."""


class TopicPartition(NamedTuple):
    """A partition by name; sorts by topic, then by number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Member:
    """A consumer of the group.

    `id` is the broker's member id, `instance` a name that survives restarts (a worker, a pod).
    `capacity` is in bytes/s; None means the policy's.
    """

    id: str
    topics: frozenset[str]
    capacity: float | None = None
    instance: str = ""
    draining: bool = False
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """Members, partitions and current owners of a consumer group.

    `owners` maps a partition to a member id. A partition without an entry, or with an owner that is
    not in `members`, has no reader. `replica_racks` maps a partition to the racks of its replicas'
    brokers, None for a broker without `broker.rack`.
    """

    members: tuple[Member, ...]
    partitions: tuple[TopicPartition, ...]
    owners: Mapping[TopicPartition, str] = field(default_factory=dict[TopicPartition, str])
    replica_racks: Mapping[TopicPartition, Collection[str | None]] = field(
        default_factory=dict[TopicPartition, Collection[str | None]]
    )


@dataclass(frozen=True, slots=True)
class Load:
    """Measured write rates in bytes/s and lags in records.

    A partition without a write rate, or with None, weighs the mean of its topic, else the mean of
    all, else 1. `deviations` are the standard deviations of a write rate's change until the next
    decision (bytes/s); a missing one counts as 0.
    """

    write_rates: Mapping[TopicPartition, float | None] = field(
        default_factory=dict[TopicPartition, float | None]
    )
    lags: Mapping[TopicPartition, float | None] = field(default_factory=dict[TopicPartition, float | None])
    deviations: Mapping[TopicPartition, float | None] = field(
        default_factory=dict[TopicPartition, float | None]
    )


@dataclass(frozen=True, slots=True)
class PlacementPolicy:
    """Settings of a decision.

    `capacity` is in bytes/s, for members without one of their own. `headroom` is the fraction of a
    capacity to fill, in (0, 1]. With `consolidate` (a plan is in force) members are packed as full
    as the headroom allows; without it the load is spread over all of them.
    """

    heuristic: str = "steady"
    capacity: float = 2.3e6
    headroom: float = 1.0
    consolidate: bool = False


@dataclass(frozen=True, slots=True)
class RateForecast:
    """Expected change of the write rates until the next decision."""

    drift: FloatArray  # (P,) expected change, bytes/s
    variance: FloatArray  # (P,) of the change, (bytes/s)²


@dataclass(frozen=True, slots=True)
class RackTopology:
    """Racks of members and replicas: a partition is remote from a rack without a replica of it.

    The R racks are those of the members; the last column of `remote` stands for members of unknown
    rack, from which nothing is remote. A partition with a replica of unknown rack is never remote.
    """

    member_rack: IntArray  # (M,) index of each member's rack, R if unknown
    remote: BoolArray  # (P, R + 1)

    def find_cross_rack(self, bins: IntArray) -> BoolArray:
        """Return which partitions (P,) cross racks in these bins.

        Unassigned partitions and those of members to be added, whose rack is unknown, do not.
        """
        unknown = self.remote.shape[1] - 1
        inside = (bins != UNASSIGNED) & (bins < len(self.member_rack))
        rack = np.full(len(bins), unknown, dtype=np.int32)
        rack[inside] = self.member_rack[bins[inside]]
        crosses: BoolArray = self.remote[np.arange(len(bins)), rack]
        return crosses

    def select_members(self, members: IntArray, added: int = 0) -> "RackTopology":
        """Return the topology of these members, in their order, and of added members."""
        unknown = np.full(added, self.remote.shape[1] - 1, dtype=np.int32)
        return RackTopology(np.append(self.member_rack[members], unknown), self.remote)


@dataclass(frozen=True, slots=True)
class PackingProblem:
    """One decision in arrays: P partitions of T topics, M members.

    `new_member_capacity` is the capacity of each member that may be added (open mode); None if the
    M members must do (closed mode). `forecast` is None if the next tick is unknown, `racks` if the
    heuristic does not weigh racks.
    """

    weight: FloatArray  # (P,) bytes/s
    owner: IntArray  # (P,) index of a member, or UNASSIGNED
    topic: IntArray  # (P,) index of a topic
    lag: FloatArray  # (P,) records
    capacity: FloatArray  # (M,) bytes/s
    subscribed: BoolArray  # (T, M)
    new_member_capacity: float | None = None
    forecast: RateForecast | None = None
    racks: RackTopology | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """A change of owner and its reason; `source` is None for a partition without a reader."""

    partition: TopicPartition
    source: str | None
    target: str
    write_rate: float  # bytes/s
    reason: str


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    """A placement of partitions on members.

    `assignment` has an entry for every member; members and partitions are sorted. In open mode
    added members are called "+1", "+2" and so on. `fill` is load ÷ capacity of the fullest member;
    above 1 the group is overloaded. `unassigned` holds partitions without a subscriber.
    `cross_rack_load` is in bytes/s; None if the heuristic does not weigh racks.
    """

    assignment: Mapping[str, tuple[TopicPartition, ...]]
    moves: tuple[Move, ...]
    r_score: float
    consumers: int  # members with a partition
    fill: float
    notes: tuple[str, ...] = ()
    unassigned: tuple[TopicPartition, ...] = ()
    cross_rack_load: float | None = None
