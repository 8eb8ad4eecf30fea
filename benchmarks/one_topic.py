"""The problem of most benchmarks: one topic, all members subscribed, equal capacities, open mode."""

import numpy as np

from trimtab.assignor.model import FloatArray, IntArray, PackingProblem


def one_topic(speed: FloatArray, owner: IntArray, capacity: float) -> PackingProblem:
    """Return the problem of the members that own partitions; `speed` (P,) in bytes/s."""
    members = int(owner.max()) + 1
    return PackingProblem(
        weight=speed,
        owner=owner,
        topic=np.zeros(len(speed), dtype=np.int32),
        lag=speed,
        capacity=np.full(members, capacity),
        subscribed=np.ones((1, members), dtype=np.bool_),
        new_member_capacity=capacity,
    )
