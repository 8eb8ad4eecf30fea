"""Racks of the replicas, in arrays over the partitions of a `PartitionIndex`."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from trimtab.assignor.model import BoolArray, IntArray, Member, RackTopology, TopicPartition
from trimtab.assignor.model.partition_index import PartitionIndex

# Racks of the replicas by partition number of one topic; None for a broker without a rack.
RacksByPartition: TypeAlias = Mapping[int, Collection[str | None]]


@dataclass(frozen=True, slots=True, eq=False)
class ReplicaRacks:
    """Racks of the replicas of P partitions; R racks."""

    racks: tuple[str, ...]  # (R,) sorted
    has_replica: BoolArray  # (P, R)
    known: BoolArray  # (P,) every broker with a replica has a `broker.rack`

    @classmethod
    def from_topics(
        cls, partition_index: PartitionIndex, topics: Mapping[str, RacksByPartition]
    ) -> "ReplicaRacks":
        """Build from the racks of each topic's partitions; an absent partition is unknown."""
        # Few distinct rack sets, however many partitions: convert each set once.
        kinds: dict[tuple[str | None, ...], int] = {(): 0}
        kind = np.zeros(len(partition_index), dtype=np.int32)
        for index, topic in enumerate(partition_index.topics):
            start, end = partition_index.start[index : index + 2].tolist()
            racks = topics.get(topic, {})
            numbers = partition_index.number[start:end].tolist()
            kind[start:end] = [kinds.setdefault(tuple(racks.get(n, ())), len(kinds)) for n in numbers]
        return cls._from_rack_sets(list(kinds), kind)

    @classmethod
    def from_partitions(
        cls,
        partition_index: PartitionIndex,
        racks_by_partition: Mapping[TopicPartition, Collection[str | None]],
    ) -> "ReplicaRacks":
        """Build from the racks of partitions by name."""
        topics: dict[str, dict[int, Collection[str | None]]] = {}
        for (topic, number), racks in racks_by_partition.items():
            topics.setdefault(topic, {})[number] = racks
        return cls.from_topics(partition_index, topics)

    @classmethod
    def _from_rack_sets(cls, rack_sets: Sequence[tuple[str | None, ...]], kind: IntArray) -> "ReplicaRacks":
        racks = tuple(sorted({rack for racks in rack_sets for rack in racks if rack}))
        holds = [[rack in rack_set for rack in racks] for rack_set in rack_sets]
        known = [bool(rack_set) and all(rack_set) for rack_set in rack_sets]
        return cls(
            racks,
            np.array(holds, dtype=np.bool_).reshape(len(rack_sets), len(racks))[kind],
            np.array(known, dtype=np.bool_)[kind],
        )


def build_rack_topology(
    members: Sequence[Member], replica_racks: ReplicaRacks, item: IntArray
) -> RackTopology:
    """Return the rack of each member, and the racks from which each item (P,) is remote."""
    names = tuple(sorted({m.rack for m in members if m.rack}))
    number = {name: i for i, name in enumerate(names)}
    column = {name: i for i, name in enumerate(replica_racks.racks)}
    remote = np.zeros((len(item), len(names) + 1), dtype=np.bool_)
    remote[:, :-1] = replica_racks.known[item, None]  # an unknown rack may be the member's
    for name, i in number.items():
        if name in column:
            remote[:, i] &= ~replica_racks.has_replica[item, column[name]]
    member_rack = [number.get(m.rack or "", len(names)) for m in members]
    return RackTopology(np.array(member_rack, dtype=np.int32), remote)
