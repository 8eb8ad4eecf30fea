"""A custom heuristic: a function from a problem in arrays to the member of each partition.

An entry point gives it a name that every `heuristic` setting accepts:

    [project.entry-points."trimtab.heuristics"]
    round-robin = "my_package:ROUND_ROBIN"
"""

import numpy as np

from trimtab.assignor import UNASSIGNED, ConsumerGroup, Heuristic, Member, PackingProblem, TopicPartition
from trimtab.assignor.model import IntArray


def round_robin(problem: PackingProblem) -> IntArray:
    """Return the member of each partition (P,): each topic's subscribers in turn."""
    bins = np.full(len(problem.weight), UNASSIGNED, dtype=np.int32)
    for topic, subscribed in enumerate(problem.subscribed):
        readers, items = np.flatnonzero(subscribed), np.flatnonzero(problem.topic == topic)
        if len(readers):
            bins[items] = readers[np.arange(len(items)) % len(readers)]
    return bins


# It ignores weights, so it cannot decide the number of members.
ROUND_ROBIN = Heuristic("round-robin", round_robin, "in turn", "this example", packs_by_capacity=False)


def main() -> None:
    """Print the placement of ten partitions of one topic."""
    topics = frozenset({"orders"})
    group = ConsumerGroup(
        members=(Member("a", topics), Member("b", topics)),
        partitions=tuple(TopicPartition("orders", n) for n in range(10)),
    )
    placed = round_robin(
        PackingProblem(
            weight=np.ones(len(group.partitions)),
            owner=np.full(len(group.partitions), UNASSIGNED, dtype=np.int32),
            topic=np.zeros(len(group.partitions), dtype=np.int32),
            lag=np.zeros(len(group.partitions)),
            capacity=np.full(len(group.members), 10.0),
            subscribed=np.ones((1, len(group.members)), dtype=np.bool_),
        )
    )
    for partition, member in zip(group.partitions, placed, strict=True):
        print(partition, group.members[member].id)


if __name__ == "__main__":
    main()
