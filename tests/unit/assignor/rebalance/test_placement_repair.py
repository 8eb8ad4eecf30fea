"""Repair of a plan's placement in arrays: which partitions leave their planned member, and for which one."""

from collections.abc import Collection, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.assignor.model import UNASSIGNED, BoolArray, PackingProblem
from trimtab.assignor.model.packing import CAPACITY_TOLERANCE
from trimtab.assignor.rebalance.placement_repair import repair_placement

LOOSE = UNASSIGNED
UNOWNED = UNASSIGNED
# Loads between 64 and 128 that differ by integers are exact, so that a load can be exactly at this bound.
BOUND = 70.0 * (1 + CAPACITY_TOLERANCE)


def repair(  # noqa: PLR0913 - the arrays of a repair
    weight: Sequence[float],
    owner: Sequence[int],
    planned: Sequence[int],
    capacity: Sequence[float],
    *,
    smaller: Collection[int] = (),
    surplus: Collection[int] = (),
    overdue: bool = False,
    topic: Sequence[int] = (),
    reads: Sequence[Sequence[bool]] = (),
) -> list[int]:
    """Return the member of each partition; `reads` has a row for each topic, by default all read one."""
    problem = PackingProblem(
        weight=np.array(weight, dtype=np.float64),
        owner=np.array(owner, dtype=np.int32),
        topic=np.array(topic or [0] * len(weight), dtype=np.int32),
        lag=np.zeros(len(weight)),
        capacity=np.array(capacity, dtype=np.float64),
        subscribed=np.array(reads or [[True] * len(capacity)], dtype=np.bool_),
    )

    def mark(members: Collection[int]) -> BoolArray:
        return np.isin(np.arange(len(capacity)), list(members))

    planned_members = np.array(planned, dtype=np.int32)
    bins = repair_placement(problem, planned_members, mark(smaller), mark(surplus), members_overdue=overdue)
    return list(map(int, bins))


def test_an_exactly_full_member_gives_nothing() -> None:
    """Floats that are one part in 10⁹ above the capacity count as full, not as too much."""
    assert repair([BOUND, 0.0], [0, 0], [0, 0], [70.0, 100.0], smaller=[0]) == [0, 0]
    assert repair([70.5, 0.3], [0, 0], [0, 0], [70.0, 100.0], smaller=[0]) == [1, 0]


def test_an_exact_fit_is_room() -> None:
    """The receiver is full afterwards."""
    exact = 50.0 * (1 + CAPACITY_TOLERANCE)
    assert repair([100.0, exact], [0, 0], [0, 0], [100.0, 50.0], smaller=[0]) == [0, 1]


def test_moves_wait_only_until_their_receiver_is_no_longer_overfull() -> None:
    """Rule 2: the heaviest waits; the other is exactly room, and is carried out."""
    weights = [BOUND - 6, 6.0, 20.0]
    assert repair(weights, [1, 0, 0], [LOOSE, 1, 1], [90.0, 70.0]) == [1, 1, 0]


@pytest.mark.parametrize(
    ("weight", "room", "bins"),
    [(6.0, 70.0, [0, 0, 1, 0]), (6.5, 70.0, [0, 0, 1, 1]), (6.0, 10.0, [0, 0, 0, 1])],
)
def test_a_move_that_waited_is_made_if_the_relief_makes_room(
    weight: float, room: float, bins: list[int]
) -> None:
    """Rule 6: 10 loose bytes/s go to member 1 if it has room; then the move fits exactly, or not."""
    weights = [BOUND - 26, 20.0, 10.0, weight]
    assert repair(weights, [0, 0, 0, 1], [0, LOOSE, LOOSE, 0], [70.0, room], overdue=True) == bins


def test_what_the_plan_gives_a_member_above_its_headroom_it_gets() -> None:
    """But no more than that: half a byte/s beyond it makes the move wait."""
    assert repair([100.0, 0.0], [0, 1], [1, LOOSE], [200.0, 70.0]) == [1, 1]
    assert repair([100.0, 0.5], [0, 1], [1, LOOSE], [200.0, 70.0]) == [0, 1]


def test_only_moves_between_members_wait() -> None:
    """A partition without an owner goes where it is planned, also to a member that is full of loose ones."""
    weights = [60.0, 50.0, 10.0, 1.0]
    assert repair(weights, [2, UNOWNED, 0, 1], [LOOSE, 2, 2, LOOSE], [90.0, 90.0, 90.0]) == [2, 2, 0, 1]


def test_loose_partitions_go_to_the_least_full_with_room() -> None:
    """By load ÷ capacity, not by load; the last member, too."""
    assert repair([10.0, 9.0, 1.0], [0, 1, UNOWNED], [0, 1, LOOSE], [100.0, 10.0]) == [0, 1, 0]
    assert repair([50.0, 1.0, 30.0], [0, 1, UNOWNED], [0, 1, LOOSE], [90.0, 100.0]) == [0, 1, 1]


def test_without_room_only_a_reader_takes_a_loose_partition() -> None:
    """Although the other is emptier."""
    reads = [[True, False], [True, True]]
    assert repair([95.0, 90.0], [0, UNOWNED], [0, LOOSE], [100.0, 50.0], topic=[1, 0], reads=reads) == [0, 0]


def test_what_a_smaller_member_cannot_hold_stays_with_its_owner_if_it_fits() -> None:
    """So nothing moves for it, although a third member is emptier."""
    weights = [40.0, 30.0, 20.0, 10.0]
    assert repair(weights, [1, 0, 1, 0], [1, 1, 1, 0], [50.0, 60.0, 90.0], smaller=[1]) == [1, 0, 1, 0]


@pytest.mark.parametrize(
    ("weights", "capacity", "given_away"),
    [
        ([50.0, 30.0, 20.0], 90.0, {20.0}),  # the smallest that suffices
        ([BOUND - 30, 30.0, 20.0], 70.0, {20.0}),  # exactly suffices
        ([50.0, 40.0, 20.0], 30.0, {50.0, 40.0}),  # none does: the largest, then what suffices
        ([0.6, 0.6], 1.0, {0.6}),  # also below 1 byte/s
        ([200.0, 0.0], 100.0, set()),  # what fits nowhere, and what weighs nothing, stays
    ],
)
def test_a_smaller_member_gives_the_least_that_suffices(
    weights: list[float], capacity: float, given_away: set[float]
) -> None:
    """Rule 4: to another one with room."""
    everything = [0] * len(weights)
    bins = repair(weights, everything, everything, [capacity, 120.0], smaller=[0])
    assert {w for w, member in zip(weights, bins, strict=True) if member == 1} == given_away


def test_members_beyond_the_plan_take_what_is_too_much_and_nothing_else_moves() -> None:
    """Rule 5: the third member is no receiver, although it is empty."""
    assert repair([60.0, 40.0], [0, 0], [0, 0], [90.0, 90.0, 90.0], surplus=[2]) == [0, 2]


def test_only_loose_partitions_leave_when_absent_members_are_overdue() -> None:
    """Rule 6: what is planned for the overfull member stays, though it would suffice."""
    given = ([60.0, 50.0], [0, 0], [0, LOOSE], [90.0, 90.0])
    assert repair(*given) == [0, 0]
    assert repair(*given, overdue=True) == [0, 1]


def test_what_relief_returned_to_its_owner_stays_there_when_absent_members_are_overdue() -> None:
    """Rule 6 makes only moves that waited, and fills a smaller member no further than its headroom."""
    weights = [40.0, 30.0, 20.0, 10.0]
    planned = [1, 1, 1, 0]
    room = [50.0, 60.0, 90.0]
    assert repair(weights, [1, 0, 1, 0], planned, room, smaller=[1], overdue=True) == [1, 0, 1, 0]
    assert repair([60.0, 40.0, 5.0], [0, 2, 0], [0, 0, 0], [90.0] * 3, surplus=[2], overdue=True) == [0, 2, 0]
    # The plan gives member 0 more than it can hold: 90 of 40. The move that waits would not have room.
    assert repair([50.0, 50.0, 40.0], [0, 0, 1], [LOOSE, 0, 0], [40.0, 90.0], smaller=[0], overdue=True) == [
        1,
        0,
        1,
    ]


@settings(deadline=None)
@given(st.data())
def test_every_partition_has_a_reader_and_no_receiver_of_relief_is_overfull(data: st.DataObject) -> None:
    """What is as planned, or stays, may overfill a member; what it gets beside that does not."""
    members = data.draw(st.integers(1, 4))
    member = st.integers(0, members - 1)
    count = data.draw(st.integers(1, 8))
    weight = data.draw(st.lists(st.integers(0, 60).map(float), min_size=count, max_size=count))
    owner = data.draw(st.lists(st.one_of(st.just(UNOWNED), member), min_size=count, max_size=count))
    planned = data.draw(st.lists(st.one_of(st.just(LOOSE), member), min_size=count, max_size=count))
    capacity = data.draw(st.lists(st.sampled_from([50.0, 90.0]), min_size=members, max_size=members))
    smaller, surplus = data.draw(st.sets(member)), data.draw(st.sets(member))
    overdue = data.draw(st.booleans())
    bins = repair(weight, owner, planned, capacity, smaller=smaller, surplus=surplus, overdue=overdue)
    assert all(0 <= b < members for b in bins)
    for m in range(members):
        load = sum(w for w, b in zip(weight, bins, strict=True) if b == m)
        kept = sum(
            w for w, b, *known in zip(weight, bins, planned, owner, strict=True) if b == m and m in known
        )
        as_planned = sum(w for w, p in zip(weight, planned, strict=True) if p == m)
        # A loose partition without room anywhere goes to the least full.
        crowded = any(
            b == m and p == LOOSE and o == UNOWNED for b, p, o in zip(bins, planned, owner, strict=True)
        )
        assert crowded or load <= max(capacity[m], kept, as_planned) * (1 + 1e-6)
    again = repair(weight, bins, planned, capacity, smaller=smaller, surplus=surplus, overdue=overdue)
    assert all(0 <= b < members for b in again)
