"""In which racks the replicas of partitions are, in arrays over the partitions of a `Universe`.

A rack is known of a partition only when every broker with a replica says its own; else a replica
could be anywhere, and the partition is far from nobody.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from trimtab.assignor.model import BoolArray, IntArray, Member, Racks, TopicPartition
from trimtab.assignor.partition_index import Universe

RacksByPartition: TypeAlias = Mapping[int, Collection[str | None]]
"""For each partition number of a topic the racks of its replicas, None where a broker says none."""


@dataclass(frozen=True, slots=True, eq=False)
class Replicas:
    """Where the replicas of P partitions are; R racks."""

    racks: tuple[str, ...]  # (R,) sorted
    holds: BoolArray  # (P, R) whether a replica is there
    known: BoolArray  # (P,) whether the racks of all its replicas are known

    @classmethod
    def of(cls, universe: Universe, topics: Mapping[str, RacksByPartition]) -> "Replicas":
        """Take what each topic's partitions say; what is not mentioned is unknown."""
        kinds: dict[tuple[str | None, ...], int] = {(): 0}  # few, however many partitions
        kind = np.zeros(len(universe), dtype=np.int32)
        for index, topic in enumerate(universe.topics):
            start, end = universe.start[index : index + 2].tolist()
            said = topics.get(topic, {})
            numbers = universe.number[start:end].tolist()
            kind[start:end] = [
                kinds.setdefault(tuple(said.get(number, ())), len(kinds)) for number in numbers
            ]
        return cls._of_kinds(list(kinds), kind)

    @classmethod
    def named(
        cls, universe: Universe, replicas: Mapping[TopicPartition, Collection[str | None]]
    ) -> "Replicas":
        """Take partitions by name."""
        topics: dict[str, dict[int, Collection[str | None]]] = {}
        for (topic, number), racks in replicas.items():
            topics.setdefault(topic, {})[number] = racks
        return cls.of(universe, topics)

    @classmethod
    def _of_kinds(cls, kinds: Sequence[tuple[str | None, ...]], kind: IntArray) -> "Replicas":
        racks = tuple(sorted({rack for racks in kinds for rack in racks if rack}))
        holds = [[rack in there for rack in racks] for there in kinds]
        known = [bool(there) and all(there) for there in kinds]
        return cls(
            racks,
            np.array(holds, dtype=np.bool_).reshape(len(kinds), len(racks))[kind],
            np.array(known, dtype=np.bool_)[kind],
        )


def racks_of(members: Sequence[Member], replicas: Replicas, item: IntArray) -> Racks:
    """Return where the members are, and from which of their racks each item (P,) is far."""
    names = tuple(sorted({m.rack for m in members if m.rack}))
    number = {name: i for i, name in enumerate(names)}
    column = {name: i for i, name in enumerate(replicas.racks)}
    far = np.zeros((len(item), len(names) + 1), dtype=np.bool_)
    far[:, :-1] = replicas.known[item, None]
    for name, i in number.items():
        if name in column:
            far[:, i] &= ~replicas.holds[item, column[name]]
    at = [number.get(m.rack or "", len(names)) for m in members]
    return Racks(np.array(at, dtype=np.int32), far)
