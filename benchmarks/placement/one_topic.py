"""The problem of most benchmarks: one topic, all members subscribed, equal capacities, open mode."""

import numpy as np

from trimtab.assignor.model import FloatArray, IntArray, PackingProblem


def one_topic(rate: FloatArray, owner: IntArray, capacity: float) -> PackingProblem:
    """Return the problem of the members that own partitions; `rate` (P,) in bytes/s."""
    members = int(owner.max()) + 1
    return PackingProblem(
        weight=rate,
        owner=owner,
        topic=np.zeros(len(rate), dtype=np.int32),
        lag=rate,
        capacity=np.full(members, capacity),
        subscribed=np.ones((1, members), dtype=np.bool_),
        new_member_capacity=capacity,
    )
