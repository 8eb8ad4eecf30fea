"""The cheapest flow compared with every assignment, and with Klein's algorithm."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.assignor.heuristics.rack_aware import heuristic
from trimtab.assignor.heuristics.rack_aware.balance import compute_topic_limits
from trimtab.assignor.heuristics.rack_aware.costs import RackCosts, price_partitions
from trimtab.assignor.heuristics.registry import get_heuristic
from trimtab.assignor.model import UNASSIGNED, FloatArray, IntArray, PackingProblem, RackTopology

T = TypeVar("T")
FEW = 6  # partitions of which every assignment can be tried


@st.composite
def problems(
    draw: st.DrawFn, partitions: int = FEW, members: int = 3, *, alike: bool = False
) -> PackingProblem:
    """Members in up to three racks or without one; not every member subscribes to every topic."""
    count, readers = draw(st.integers(0, partitions)), draw(st.integers(1, members))
    topics = draw(st.integers(1, 3))
    owner = st.integers(UNASSIGNED, readers - 1)
    mask = st.just(True) if alike else st.booleans()  # noqa: FBT003 - a value of the strategy
    reads = draw(st.lists(mask, min_size=topics * readers, max_size=topics * readers))
    subscribed = np.array(reads, dtype=np.bool_).reshape(topics, readers)
    topic = np.array(draw(_listed(st.integers(0, topics - 1), count)), dtype=np.int32)
    racks = draw(st.integers(1, 3))
    far = np.array(draw(_listed(st.booleans(), count * racks)), dtype=np.bool_)
    at = draw(_listed(st.integers(0, racks), readers))
    given_owner = np.array(draw(_listed(owner, count)), dtype=np.int32)
    stays = given_owner != UNASSIGNED
    stays[stays] = subscribed[topic[stays], given_owner[stays]]
    return PackingProblem(
        weight=np.array(draw(_listed(st.sampled_from([0.0, 1.0, 2.5, 10.0]), count))),
        owner=np.where(stays, given_owner, UNASSIGNED).astype(np.int32),
        topic=topic,
        lag=np.zeros(count),
        capacity=np.ones(readers),
        subscribed=subscribed,
        racks=RackTopology(
            np.array(at, dtype=np.int32),
            np.concatenate([far.reshape(count, racks), np.zeros((count, 1), np.bool_)], axis=1),
        ),
    )


def _listed(of: st.SearchStrategy[T], count: int) -> st.SearchStrategy[list[T]]:
    return st.lists(of, min_size=count, max_size=count)


def _counts(problem: PackingProblem, bins: IntArray) -> IntArray:
    found = np.zeros(problem.subscribed.shape, dtype=np.int32)
    read = bins != UNASSIGNED
    np.add.at(found, (problem.topic[read], bins[read]), 1)
    return found


def _worth(
    problem: PackingProblem, bins: IntArray, costs: RackCosts, *, per_topic: bool
) -> tuple[float, ...]:
    """Return what is minimized, in this order: topics out of limits, unevenness, cost."""
    counts = _counts(problem, bins)
    broken = per_topic and not compute_topic_limits(problem).allow_counts(counts)
    return float(broken), float((counts.sum(axis=0) ** 2).sum()), _cost(problem, bins, costs)


def _cost(problem: PackingProblem, bins: IntArray, costs: RackCosts) -> float:
    """Return the cost of KIP-925, partition by partition."""
    assert problem.racks is not None
    mean = problem.weight.mean() if len(bins) else 0.0
    cost = 0.0
    for item, member in enumerate(bins.tolist()):
        if member == UNASSIGNED:
            continue
        if mean and problem.racks.remote[item, problem.racks.member_rack[member]]:
            cost += costs.traffic * problem.weight[item] / mean
        if problem.owner[item] not in (UNASSIGNED, member):
            cost += costs.non_overlap
    return cost


def _every(problem: PackingProblem) -> Iterator[IntArray]:
    """Yield every assignment that the subscriptions allow."""
    readers = [np.flatnonzero(problem.subscribed[t]).tolist() or [UNASSIGNED] for t in problem.topic]
    for bins in itertools.product(*readers):
        yield np.array(bins, dtype=np.int32)


COSTS = st.sampled_from([RackCosts(), RackCosts(1, 10), RackCosts(1, 1), RackCosts(0, 1), RackCosts(3, 0)])


@given(problems(), COSTS, st.booleans())
def test_no_other_assignment_is_better(
    problem: PackingProblem,
    costs: RackCosts,
    per_topic: bool,  # noqa: FBT001 - hypothesis gives it by place
) -> None:
    """No assignment is more even, and none as even costs less."""
    found = heuristic.place_rack_aware(problem, costs, per_topic=per_topic)
    assert ((found == UNASSIGNED) == ~problem.subscribed[problem.topic].any(axis=1)).all()
    best = min(_worth(problem, bins, costs, per_topic=per_topic) for bins in _every(problem))
    assert _worth(problem, found, costs, per_topic=per_topic) == pytest.approx(best, abs=1e-6)
    assert price_partitions(problem, costs).total_cost(problem, found) == pytest.approx(
        _cost(problem, found, costs)
    )


@given(problems(partitions=24, members=6), COSTS)
def test_kleins_algorithm_finds_nothing_cheaper(problem: PackingProblem, costs: RackCosts) -> None:
    """Cancelling negative cycles from an even start, as Kafka Streams does, gives the same cost."""
    found = heuristic.place_rack_aware(problem, costs, per_topic=False)
    even = get_heuristic("sticky").pack(problem)
    ends = _worth(problem, klein(problem, even, costs), costs, per_topic=False)
    assert _worth(problem, found, costs, per_topic=False) == pytest.approx(ends, abs=1e-6)


@given(problems(partitions=24, members=6), COSTS, st.booleans())
def test_it_is_idempotent(problem: PackingProblem, costs: RackCosts, per_topic: bool) -> None:  # noqa: FBT001
    """Applied to its own output it moves nothing."""
    found = heuristic.place_rack_aware(problem, costs, per_topic=per_topic)
    again = heuristic.place_rack_aware(replace(problem, owner=found), costs, per_topic=per_topic)
    assert again.tolist() == found.tolist()


UNEVEN = 1e5  # more than any chain of swaps may save


def klein(problem: PackingProblem, bins: IntArray, costs: RackCosts) -> IntArray:
    """Cancel negative cycles in the residual graph until there is none (Klein 1967).

    Its nodes are the members and, last, the sink: a member that takes one partition more has an arc
    to the sink, from which arcs lead to members with one less.
    """
    bins, members = bins.copy(), len(problem.capacity)
    while True:
        price, item = _residual(problem, bins, costs)
        cycle = _negative_cycle(price)
        if cycle is None:
            return bins
        passed = [(item[a, b], b) for a, b in itertools.pairwise(cycle) if members not in (a, b)]
        for one, recipient in passed:
            bins[one] = recipient


def _residual(problem: PackingProblem, bins: IntArray, costs: RackCosts) -> tuple[FloatArray, IntArray]:
    """Return the cost of passing a partition on, (M + 1, M + 1), and the donor's partition."""
    members = len(problem.capacity)
    price = np.full((members + 1, members + 1), np.inf)
    item = np.full((members + 1, members + 1), UNASSIGNED, dtype=np.int32)
    of_one = _prices(problem, costs)
    for one, donor in enumerate(bins.tolist()):
        for recipient in np.flatnonzero(problem.subscribed[problem.topic[one]]).tolist():
            rise = of_one[one, recipient] - of_one[one, donor]
            if recipient != donor and rise < price[donor, recipient]:
                price[donor, recipient], item[donor, recipient] = rise, one
    count = np.bincount(bins[bins != UNASSIGNED], minlength=members)
    price[:members, members] = UNEVEN * (2 * count + 1)
    price[members, :members] = np.where(count > 0, -UNEVEN * (2 * count - 1), np.inf)
    return price, item


def _prices(problem: PackingProblem, costs: RackCosts) -> FloatArray:
    """Return the cost of each partition with each member, (P, M)."""
    alone = [np.full(len(problem.weight), m, dtype=np.int32) for m in range(len(problem.capacity))]
    found = np.zeros((len(problem.weight), len(problem.capacity)))
    for member, bins in enumerate(alone):
        for one in range(len(problem.weight)):
            only = np.where(np.arange(len(bins)) == one, bins, UNASSIGNED).astype(np.int32)
            found[one, member] = _cost(problem, only, costs)
    return found


def _negative_cycle(price: FloatArray) -> list[int] | None:
    """Find a closed cycle by Bellman and Ford: its first node is its last, too."""
    size = len(price)
    distance, before = np.zeros(size), np.full(size, UNASSIGNED)
    last = UNASSIGNED
    for _ in range(size):
        last = UNASSIGNED
        for a, b in itertools.product(range(size), repeat=2):
            if distance[a] + price[a, b] < distance[b] - 1e-7:
                distance[b], before[b], last = distance[a] + price[a, b], a, b
    if last == UNASSIGNED:
        return None
    for _ in range(size):
        last = int(before[last])
    cycle = [last]
    while len(cycle) == 1 or cycle[-1] != last:
        cycle.append(int(before[cycle[-1]]))
    return cycle[::-1]
