"""Each heuristic on small cases, and the rules for the gaps in Algorithm 1."""

from collections.abc import Sequence

import numpy as np
import pytest

from trimtab.assignor import UNASSIGNED, PackingProblem, get_heuristic

ALL_COUNTING = ("nf", "nfd", "ff", "ffd", "wf", "wfd", "bf", "bfd", "mwf", "mbf", "mwfp", "mbfp")
MODIFIED = ("mwf", "mbf", "mwfp", "mbfp")


def problem(
    weights: Sequence[float],
    owners: Sequence[int] | None = None,
    capacity: Sequence[float] = (),
    *,
    spare: float | None = 10.0,
    topics: Sequence[int] | None = None,
    subscribed: Sequence[Sequence[bool]] | None = None,
) -> PackingProblem:
    """Return a problem: by default open, capacity 10, one topic, no owners."""
    owner = np.array(owners if owners is not None else [UNASSIGNED] * len(weights), dtype=np.int32)
    members = capacity or [10.0] * (int(owner.max(initial=UNASSIGNED)) + 1)
    topic = np.array(topics or [0] * len(weights), dtype=np.int32)
    readers = subscribed or [[True] * len(members)] * (int(topic.max(initial=0)) + 1)
    return PackingProblem(
        weight=np.array(weights, dtype=np.float64),
        owner=owner,
        topic=topic,
        lag=np.array(weights, dtype=np.float64),
        capacity=np.array(members, dtype=np.float64),
        subscribed=np.array(readers, dtype=np.bool_).reshape(len(readers), len(members)),
        new_member_capacity=spare,
    )


def bins(name: str, given: PackingProblem) -> list[int]:
    packed: list[int] = get_heuristic(name).pack(given).tolist()
    return packed


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nf", [0, 0, 1, 2, 2, 2, 3]),
        ("ff", [0, 0, 1, 2, 0, 1, 2]),
        ("wf", [0, 0, 1, 2, 2, 0, 1]),
        ("bf", [0, 0, 1, 2, 1, 0, 2]),
    ],
)
def test_classics_in_the_order_given(name: str, expected: list[int]) -> None:
    """Next fit uses one bin; first, worst and best fit choose differently among the open ones."""
    assert bins(name, problem([4, 3, 8, 6, 2, 2, 2])) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nfd", [1, 2, 0, 1, 2, 2, 2]),
        ("ffd", [1, 2, 0, 1, 2, 0, 2]),
        ("wfd", [1, 2, 0, 1, 2, 2, 0]),
        ("bfd", [1, 2, 0, 1, 2, 0, 2]),
    ],
)
def test_classics_decreasing(name: str, expected: list[int]) -> None:
    """The decreasing variants take the largest first, ties in the order of the partitions."""
    assert bins(name, problem([4, 3, 8, 6, 3, 2, 2])) == expected


def test_rule_1_consumers_by_total_or_by_largest_partition() -> None:
    """mbf visits the consumer with the largest total first, mbfp that with the largest partition.

    The first consumer keeps its own; the other's small partitions go where they fit.
    """
    given = problem([4, 4, 1, 7, 1], [0, 0, 0, 1, 1])
    assert bins("mbf", given) == [0, 0, 0, 1, 0]  # 9 before 8
    assert bins("mbfp", given) == [0, 0, 1, 1, 1]  # 7 before 4


def test_rule_2_a_consumer_is_emptied_from_its_smallest_up() -> None:
    """Small partitions move to open bins until one fits nowhere; the own bin keeps the rest."""
    given = problem([7, 1, 2, 3], [0, 1, 1, 1])
    assert bins("mbf", given) == [0, 0, 0, 1]


def test_rule_2_the_first_misfit_sets_aside_all_smaller_ones() -> None:
    """If a consumer outgrew its capacity, all partitions after the first misfit are set aside, too.

    7 stays; 6 does not fit, and 2, which would, is set aside with it. Then 6 opens a new bin, and 2
    goes where there is least room (best fit) or most (worst fit).
    """
    given = problem([7, 6, 2], [0, 0, 0])
    assert bins("mbf", given) == [0, 1, 0]
    assert bins("mwf", given) == [0, 1, 1]


def test_rule_3_unread_partitions_open_the_lowest_free_bin() -> None:
    """Partitions without an owner go where they fit, largest first, else to the lowest free bin."""
    given = problem([9, 9, 8, 7], [1, 3, UNASSIGNED, UNASSIGNED])
    assert bins("mbf", given) == [1, 3, 0, 2]


@pytest.mark.parametrize("name", ALL_COUNTING)
def test_rule_3_a_new_bin_is_the_current_consumer_if_closed(name: str) -> None:
    """A partition that needs a bin of its own keeps its consumer."""
    assert bins(name, problem([9, 8, 7], [4, 2, 5])) == [4, 2, 5]


@pytest.mark.parametrize("name", ALL_COUNTING)
def test_rule_4_an_empty_bin_takes_a_partition_of_any_size(name: str) -> None:
    """A partition above every capacity stays alone with its owner."""
    assert bins(name, problem([25, 1], [1, 0])) == [1, 0]
    assert bins(name, problem([25, 1])) == [0, 1]


@pytest.mark.parametrize("name", MODIFIED)
def test_rule_4_with_different_capacities_it_goes_to_a_bin_that_holds_it(name: str) -> None:
    """A partition too large for its consumer moves to one that holds it; the others stay."""
    assert bins(name, problem([25, 8], [0, 0], [10.0, 30.0], spare=None)) == [1, 0]
    assert bins(name, problem([25], [0], [10.0, 30.0], spare=None)) == [1]


def test_rule_5_ties_go_to_the_lowest_bin() -> None:
    """Of bins with equal room the lowest number is taken, by every fit."""
    given = problem([6, 6, 2], [2, 1, UNASSIGNED])
    for name in ("ff", "bf", "wf", "mbf", "mwf"):
        assert bins(name, given) == [2, 1, 1]


def test_rule_5_idle_partitions_are_items() -> None:
    """A partition without load is placed like any other, but in no overfull bin."""
    assert bins("bfd", problem([10, 0, 0])) == [0, 0, 0]
    assert bins("bfd", problem([11, 0, 0])) == [0, 1, 1]


def test_rule_8_next_fit_sees_the_last_opened_bin_only() -> None:
    """Room left in an earlier bin is lost to next fit."""
    assert bins("nf", problem([2, 9, 2])) == [0, 1, 2]


def test_fit_tolerates_sums_of_floats() -> None:
    """0.1 and 0.2 fill a bin of 0.3 exactly, whatever the rounding of the sum."""
    assert bins("ff", problem([0.1, 0.2], spare=0.3)) == [0, 0]


@pytest.mark.parametrize("name", ALL_COUNTING)
def test_closed_mode_leaves_out_what_fits_nowhere(name: str) -> None:
    """In closed mode a partition without room is UNASSIGNED."""
    assert sorted(bins(name, problem([8, 8, 8], capacity=[10.0, 10.0], spare=None))) == [-1, 0, 1]


@pytest.mark.parametrize("name", ALL_COUNTING)
def test_members_get_only_what_they_subscribe_to(name: str) -> None:
    """A member gets only topics that it subscribes to; an added one subscribes to all."""
    given = problem(
        [1, 1, 1, 9.5],
        [1, 0, UNASSIGNED, UNASSIGNED],
        [10.0, 10.0],
        topics=[0, 1, 0, 1],
        subscribed=[[True, False], [False, True]],
    )
    packed = bins(name, given)
    assert packed[0] == 0
    assert packed[2] in {0, 2}
    assert {packed[1], packed[3]} <= {1, 2}


def test_capacities_may_differ() -> None:
    """Best fit fills the small member as far as it goes, the large one with the rest."""
    assert bins("bfd", problem([9, 4, 4], capacity=[5.0, 20.0], spare=None)) == [1, 1, 1]
    assert bins("mbf", problem([9, 4, 4], [1, 0, 0], [5.0, 20.0], spare=None)) == [1, 1, 1]


@pytest.mark.parametrize("name", ALL_COUNTING)
def test_no_partitions_need_no_bins(name: str) -> None:
    """An empty problem gives no bins, in either mode."""
    assert bins(name, problem([])) == []
    assert bins(name, problem([], spare=None)) == []


def test_lag_aware_gives_the_example_of_its_proposal() -> None:
    """KAFKA-5337: lags 100,000, 60,000 and 50,000 on two consumers become 100,000 and 110,000."""
    given = problem([100_000, 60_000, 50_000], capacity=[1.0, 1.0], spare=None)
    assert bins("lag-aware", given) == [0, 1, 1]


def test_lag_aware_evens_counts_before_lags() -> None:
    """Counts come first: four partitions on two consumers are two each."""
    given = problem([100, 1, 1, 1], capacity=[1.0, 1.0], spare=None)
    assert bins("lag-aware", given) == [0, 1, 1, 0]


def test_lag_aware_breaks_ties_by_the_groups_totals() -> None:
    """Counts and lags are per topic; where they are equal the member with less lag in all gets more."""
    given = problem(
        [9, 5, 7, 2],
        capacity=[1.0, 1.0],
        spare=None,
        topics=[0, 0, 1, 1],
        subscribed=[[True, True], [True, True]],
    )
    assert bins("lag-aware", given) == [0, 1, 1, 0]


def test_lag_aware_breaks_ties_by_the_groups_counts_first() -> None:
    """Topics of one partition each do not all go to the first member."""
    given = problem([0, 0, 0], capacity=[1.0] * 3, spare=None, topics=[0, 1, 2], subscribed=[[True] * 3] * 3)
    assert bins("lag-aware", given) == [0, 1, 2]


def test_lag_aware_breaks_ties_by_the_groups_counts_before_its_lags() -> None:
    """The member with one partition of a large lag is before the one with two of little lag."""
    given = problem(
        [1, 1, 100, 5],
        capacity=[1.0, 1.0],
        spare=None,
        topics=[0, 0, 1, 2],
        subscribed=[[True, False], [False, True], [True, True]],
    )
    assert bins("lag-aware", given) == [0, 0, 1, 1]


def test_sticky_keeps_an_even_assignment() -> None:
    """An assignment whose counts differ by at most one stays."""
    given = problem([1, 1, 1, 1, 1], [1, 0, 1, 0, 1], [1.0, 1.0], spare=None)
    assert bins("sticky", given) == [1, 0, 1, 0, 1]


def test_sticky_gives_a_newcomer_its_share_and_no_more() -> None:
    """A third member that joins two with three each gets one from each."""
    given = problem([1] * 6, [0, 0, 0, 1, 1, 1], [1.0] * 3, spare=None)
    packed = bins("sticky", given)
    assert sorted(packed) == [0, 0, 1, 1, 2, 2]
    assert sum(a != b for a, b in zip(packed, given.owner.tolist(), strict=True)) == 2


def test_sticky_passes_on_unowned_partitions_first() -> None:
    """To even the counts it passes on a partition without an owner before one at its owner."""
    given = problem(
        [1] * 6,
        [1, 0, UNASSIGNED, 0, UNASSIGNED, UNASSIGNED],
        [1.0] * 2,
        spare=None,
        topics=[0, 0, 0, 0, 1, 1],
        subscribed=[[True, True], [False, True]],
    )
    assert bins("sticky", given) == [1, 0, 0, 0, 1, 1]


def test_sticky_passes_partitions_along_a_chain() -> None:
    """The fullest member may give to the emptiest through a third one.

    Member 0 reads topic 0 only, member 2 topic 1 only; member 1 reads both, and passes on one of
    topic 1 for the one of topic 0 that it takes over.
    """
    given = problem(
        [1] * 5,
        [0, 0, 0, 1, 1],
        [1.0] * 3,
        spare=None,
        topics=[0, 0, 0, 1, 1],
        subscribed=[[True, True, False], [False, True, True]],
    )
    assert sorted(bins("sticky", given)) == [0, 0, 1, 1, 2]
