"""Seats assigned all at once equal those assigned one by one."""

import heapq

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trimtab.assignor.heuristics.classic import sticky
from trimtab.assignor.model import UNASSIGNED, PackingProblem


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.integers(0, 40))
def test_seats_equal_those_of_a_heap(held: list[int], guests: int) -> None:
    """Each partition goes to the member with the fewest, the lowest of ties."""
    members = len(held)
    problem = PackingProblem(
        weight=np.ones(sum(held) + guests),
        owner=np.repeat([*range(members), UNASSIGNED], [*held, guests]).astype(np.int32),
        topic=np.zeros(sum(held) + guests, dtype=np.int32),
        lag=np.zeros(sum(held) + guests),
        capacity=np.ones(members),
        subscribed=np.ones((1, members), dtype=np.bool_),
    )
    queue = [(count, member) for member, count in enumerate(held)]
    heapq.heapify(queue)
    turns: list[int] = []
    for _ in range(guests):
        count, member = queue[0]
        turns.append(member)
        heapq.heapreplace(queue, (count + 1, member))
    seated = np.bincount([*problem.owner[: sum(held)], *turns], minlength=members)
    found = sticky.place_sticky(problem)
    if seated.max() - seated.min() < 2:  # else partitions are handed on afterwards
        assert found[sum(held) :].tolist() == turns
    assert np.ptp(np.bincount(found, minlength=members)) < 2 or not len(found)


def test_the_owners_of_the_problem_are_not_changed() -> None:
    """Owners that no longer subscribe stay in the caller's array."""
    owner = np.array([0, 1, UNASSIGNED], dtype=np.int32)
    given_ = PackingProblem(
        weight=np.ones(3),
        owner=owner,
        topic=np.zeros(3, dtype=np.int32),
        lag=np.zeros(3),
        capacity=np.ones(2),
        subscribed=np.array([[True, False]]),
    )
    assert sticky.place_sticky(given_).tolist() == [0, 0, 0]
    assert owner.tolist() == [0, 1, UNASSIGNED]
