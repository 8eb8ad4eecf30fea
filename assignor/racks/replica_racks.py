"""In which racks the replicas of partitions are, in arrays over the partitions of a `PartitionIndex`.

A rack is known of a partition only when every broker with a replica says its own; else a replica
could be anywhere, and the partition is far from nobody.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from trimtab.assignor.model import BoolArray, IntArray, Member, RackTopology, TopicPartition
from trimtab.assignor.partition_index import PartitionIndex

RacksByPartition: TypeAlias = Mapping[int, Collection[str | None]]
"""For each partition number of a topic the racks of its replicas, None where a broker says none."""


@dataclass(frozen=True, slots=True, eq=False)
class ReplicaRacks:
    """Where the replicas of P partitions are; R racks."""

    racks: tuple[str, ...]  # (R,) sorted
    has_replica: BoolArray  # (P, R) whether a replica is there
    known: BoolArray  # (P,) whether the racks of all its replicas are known

    @classmethod
    def from_topics(
        cls, partition_index: PartitionIndex, topics: Mapping[str, RacksByPartition]
    ) -> "ReplicaRacks":
        """Take what each topic's partitions say; what is not mentioned is unknown."""
        kinds: dict[tuple[str | None, ...], int] = {(): 0}  # few, however many partitions
        kind = np.zeros(len(partition_index), dtype=np.int32)
        for index, topic in enumerate(partition_index.topics):
            start, end = partition_index.start[index : index + 2].tolist()
            said = topics.get(topic, {})
            numbers = partition_index.number[start:end].tolist()
            kind[start:end] = [
                kinds.setdefault(tuple(said.get(number, ())), len(kinds)) for number in numbers
            ]
        return cls._from_rack_sets(list(kinds), kind)

    @classmethod
    def from_partitions(
        cls,
        partition_index: PartitionIndex,
        racks_by_partition: Mapping[TopicPartition, Collection[str | None]],
    ) -> "ReplicaRacks":
        """Take partitions by name."""
        topics: dict[str, dict[int, Collection[str | None]]] = {}
        for (topic, number), racks in racks_by_partition.items():
            topics.setdefault(topic, {})[number] = racks
        return cls.from_topics(partition_index, topics)

    @classmethod
    def _from_rack_sets(
        cls, rack_sets: Sequence[tuple[str | None, ...]], kind: IntArray
    ) -> "ReplicaRacks":
        racks = tuple(sorted({rack for racks in rack_sets for rack in racks if rack}))
        holds = [[rack in there for rack in racks] for there in rack_sets]
        known = [bool(there) and all(there) for there in rack_sets]
        return cls(
            racks,
            np.array(holds, dtype=np.bool_).reshape(len(rack_sets), len(racks))[kind],
            np.array(known, dtype=np.bool_)[kind],
        )


def build_rack_topology(
    members: Sequence[Member], replica_racks: ReplicaRacks, item: IntArray
) -> RackTopology:
    """Return where the members are, and from which of their racks each item (P,) is far."""
    names = tuple(sorted({m.rack for m in members if m.rack}))
    number = {name: i for i, name in enumerate(names)}
    column = {name: i for i, name in enumerate(replica_racks.racks)}
    far = np.zeros((len(item), len(names) + 1), dtype=np.bool_)
    far[:, :-1] = replica_racks.known[item, None]
    for name, i in number.items():
        if name in column:
            far[:, i] &= ~replica_racks.has_replica[item, column[name]]
    at = [number.get(m.rack or "", len(names)) for m in members]
    return RackTopology(np.array(at, dtype=np.int32), far)
