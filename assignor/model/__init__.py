"""Input (`ConsumerGroup`, `Load`, `PlacementPolicy`) and output (`PlacementPlan`) of a decision.

`trimtab.assignor.model.problem` converts the input into a `PackingProblem` of integers for the heuristics.
Plans are sorted, so equal input gives equal bytes.
"""

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from trimtab.assignor.topic_partition import TopicPartition as TopicPartition

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int32]
LongArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]

UNASSIGNED: Final = -1  # owner of a partition without a reader; bin of a partition that fits nowhere


@dataclass(frozen=True, slots=True)
class Member:
    """A consumer of the group."""

    id: str  # by the broker, new after every restart
    topics: frozenset[str]
    capacity: float | None = None  # bytes/s; None: the policy's
    instance: str = ""  # survives restarts: a worker, a pod
    draining: bool = False
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """Members, partitions and current owners of a consumer group."""

    members: tuple[Member, ...]
    partitions: tuple[TopicPartition, ...]
    # Member ids; a partition without an entry, or of an owner outside `members`, has no reader.
    owners: Mapping[TopicPartition, str] = field(default_factory=dict[TopicPartition, str])
    # Racks of the brokers with a replica; None for a broker without `broker.rack`.
    replica_racks: Mapping[TopicPartition, Collection[str | None]] = field(
        default_factory=dict[TopicPartition, Collection[str | None]]
    )


def _no_values() -> dict[TopicPartition, float | None]:
    return {}


@dataclass(frozen=True, slots=True)
class Load:
    """Measured load by partition; a missing value or None is unknown."""

    # bytes/s; an unknown one weighs the mean of its topic, else the mean of all, else 1
    write_rates: Mapping[TopicPartition, float | None] = field(default_factory=_no_values)
    lags: Mapping[TopicPartition, float | None] = field(default_factory=_no_values)  # records
    # of a write rate's change until the next decision, bytes/s; unknown counts as 0
    deviations: Mapping[TopicPartition, float | None] = field(default_factory=_no_values)


@dataclass(frozen=True, slots=True)
class PlacementPolicy:
    """Settings of a decision."""

    heuristic: str = "steady"
    capacity: float = 2.3e6  # bytes/s, of members without one of their own
    headroom: float = 1.0  # fraction of a capacity to fill, in (0, 1]
    consolidate: bool = False  # a plan is in force: pack members full instead of spreading the load
    # Groups of topics; partitions of a group's topics with the same number share a consumer.
    co_partitioned: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class RateForecast:
    """Expected change of the write rates until the next decision."""

    drift: FloatArray  # (P,) bytes/s; 0 but in `bench_lookahead.py`, which tries trends
    variance: FloatArray  # (P,) of the change, (bytes/s)²


@dataclass(frozen=True, slots=True)
class RackTopology:
    """The R racks of the members, and the partitions without a replica in each (remote ones)."""

    member_rack: IntArray  # (M,) index of each member's rack, R if unknown
    # (P, R + 1) An unknown rack could be any: nothing is remote from the last column, nor is a
    # partition with a replica of unknown rack remote from any.
    remote: BoolArray

    def find_cross_rack(self, bins: IntArray) -> BoolArray:
        """Return which partitions (P,) cross racks in these bins."""
        unknown = self.remote.shape[1] - 1
        inside = (bins != UNASSIGNED) & (bins < len(self.member_rack))  # an added member's is unknown
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
    """One decision in arrays: P partitions of T topics, M members."""

    weight: FloatArray  # (P,) bytes/s
    owner: IntArray  # (P,) index of a member, or UNASSIGNED
    topic: IntArray  # (P,) index of a topic
    lag: FloatArray  # (P,) records
    capacity: FloatArray  # (M,) bytes/s
    subscribed: BoolArray  # (T, M)
    new_member_capacity: float | None = None  # of each member that may be added; None: closed mode
    forecast: RateForecast | None = None
    racks: RackTopology | None = None  # None if the heuristic does not weigh racks


@dataclass(frozen=True, slots=True)
class Move:
    """A change of owner and its reason."""

    partition: TopicPartition
    source: str | None  # None if no member owned it
    target: str
    write_rate: float  # bytes/s
    reason: str


class PlannedMoves(Sequence[Move]):
    """The moves of a plan, sorted by partition; each is described when it is read."""

    @abstractmethod
    def select_largest(self, count: int) -> "PlannedMoves":
        """Return the `count` moves of the most load, largest first."""


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    """A placement of partitions on members; in open mode added members are called "+1", "+2" and so on."""

    assignment: Mapping[str, tuple[TopicPartition, ...]]  # every member, sorted
    moves: PlannedMoves
    r_score: float
    consumers: int  # members with a partition
    fill: float  # load ÷ capacity of the fullest member; above 1 the group is overloaded
    notes: tuple[str, ...] = ()
    unassigned: tuple[TopicPartition, ...] = ()  # without a subscriber
    cross_rack_load: float | None = None  # bytes/s; None if the heuristic does not weigh racks
