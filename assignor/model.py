"""The words of a decision: what goes in (`ConsumerGroup`, `Load`, `PlacementPolicy`), what comes out (`PlacementPlan`).

Names stay outside the heuristics. `trimtab.assignor.problem` turns a `ConsumerGroup` into a `PackingProblem` of
dense integers, a heuristic packs the `PackingProblem`, and the way back sorts everything, so that equal
input gives equal bytes.
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
"""Owner of a partition that nobody reads; placement of a partition that fits nowhere."""


class TopicPartition(NamedTuple):
    """A partition by name; sorts by topic, then by number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Member:
    """A consumer of the group, as the leader sees it.

    `id` is the broker's member id, `instance` the name that survives restarts (a worker, a pod);
    `capacity` is bytes/s, None where the member does not say.
    """

    id: str
    topics: frozenset[str]
    capacity: float | None = None
    instance: str = ""
    draining: bool = False
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """Who is there, what there is to read, and who reads it now.

    `owners` maps a partition to a member id; a partition without an entry, or whose owner is not
    among `members`, is read by nobody. `replica_racks` are the racks of the brokers that hold one, None
    for a broker that does not say its rack; a partition without an entry could be anywhere.
    """

    members: tuple[Member, ...]
    partitions: tuple[TopicPartition, ...]
    owners: Mapping[TopicPartition, str] = field(default_factory=dict[TopicPartition, str])
    replica_racks: Mapping[TopicPartition, Collection[str | None]] = field(
        default_factory=dict[TopicPartition, Collection[str | None]]
    )


@dataclass(frozen=True, slots=True)
class Load:
    """What was measured: write speed in bytes/s and lag in records.

    A partition that is absent, or whose speed is None, is *unknown*: its weight falls back to the
    mean of its topic, then to the mean of all, then to 1. `deviations` say how much a speed may
    change until the next decision (bytes/s, standard deviation); what is not known stays.
    """

    write_rates: Mapping[TopicPartition, float | None] = field(
        default_factory=dict[TopicPartition, float | None]
    )
    lags: Mapping[TopicPartition, float | None] = field(
        default_factory=dict[TopicPartition, float | None]
    )
    deviations: Mapping[TopicPartition, float | None] = field(
        default_factory=dict[TopicPartition, float | None]
    )


@dataclass(frozen=True, slots=True)
class PlacementPolicy:
    """How to decide.

    `capacity` is bytes/s of a member that does not say its own; `headroom` is the share of a
    capacity that may be filled, in (0, 1]. `consolidate` packs the members as full as the headroom
    allows (a plan is in force); without it the load is spread: the least capacity at which
    everything fits.
    """

    heuristic: str = "steady"
    capacity: float = 2.3e6
    headroom: float = 1.0
    consolidate: bool = False


@dataclass(frozen=True, slots=True)
class RateForecast:
    """How the write speeds may change until the next decision, as far as it is known."""

    drift: FloatArray  # (P,) expected change, bytes/s
    variance: FloatArray  # (P,) of the change, (bytes/s)²


@dataclass(frozen=True, slots=True)
class RackTopology:
    """What crosses racks: a partition is far from a member in whose rack it has no replica.

    The R racks are those of the members; the last column of `remote` stands for members whose rack is
    not known, from whom nothing is far. Neither is a partition whose replicas' racks are not known.
    """

    member_rack: IntArray  # (M,) index of each member's rack, R where it is not known
    remote: BoolArray  # (P, R + 1)

    def find_cross_rack(self, bins: IntArray) -> BoolArray:
        """Return which partitions (P,) cross racks in these bins; those of nobody do not.

        Members to be added have no rack yet.
        """
        unknown = self.remote.shape[1] - 1
        inside = (bins != UNASSIGNED) & (bins < len(self.member_rack))
        rack = np.full(len(bins), unknown, dtype=np.int32)
        rack[inside] = self.member_rack[bins[inside]]
        crosses: BoolArray = self.remote[np.arange(len(bins)), rack]
        return crosses

    def select_members(self, members: IntArray, added: int = 0) -> "RackTopology":
        """Return the racks of these members in their order, and of members to be added."""
        unknown = np.full(added, self.remote.shape[1] - 1, dtype=np.int32)
        return RackTopology(np.append(self.member_rack[members], unknown), self.remote)


@dataclass(frozen=True, slots=True)
class PackingProblem:
    """One decision in arrays: P partitions of T topics, M members.

    `subscribed` has shape (T, M). `new_member_capacity` is the capacity of each member that may be added beyond M
    (open mode); None where the members that joined must do (closed mode). `forecast` is None where
    nothing is known of the next tick, `racks` where the heuristic does not weigh them or no member
    says its own.
    """

    weight: FloatArray  # (P,) bytes/s
    owner: IntArray  # (P,) index of a member, or NOBODY
    topic: IntArray  # (P,) index of a topic
    lag: FloatArray  # (P,) records
    capacity: FloatArray  # (M,) bytes/s
    subscribed: BoolArray  # (T, M)
    new_member_capacity: float | None = None
    forecast: RateForecast | None = None
    racks: RackTopology | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """A partition that changes its owner, and why; `source` is None where nobody read it."""

    partition: TopicPartition
    source: str | None
    target: str
    write_rate: float  # bytes/s
    reason: str


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    """Who reads what.

    `assignment` has an entry for every member, sorted, each with sorted partitions; in open mode
    the members to be added are called "+1", "+2" and so on. `fill` is the load of the fullest
    member ÷ its capacity; above 1 the group is overloaded. `unassigned` holds partitions that no
    member subscribes to. `cross_rack_load` is the load that crosses racks, bytes/s; None where the
    heuristic does not weigh racks, or nothing is known of them.
    """

    assignment: Mapping[str, tuple[TopicPartition, ...]]
    moves: tuple[Move, ...]
    r_score: float
    consumers: int  # members that read something
    fill: float
    notes: tuple[str, ...] = ()
    unassigned: tuple[TopicPartition, ...] = ()
    cross_rack_load: float | None = None
