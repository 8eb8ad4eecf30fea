"""Placement under a plan: small cases of each rule of `exact_mode`."""

from dataclasses import replace

import numpy as np
import pytest

from trimtab.assignor import UNASSIGNED, PackingProblem, get_heuristic
from trimtab.assignor.model import IntArray
from trimtab.assignor.model.heuristic import Heuristic, run_heuristic
from trimtab.assignor.modes import exact_mode
from trimtab.assignor.modes.exact_mode import pack_exactly
from trimtab.assignor.scores.feasibility import confine_partitions, find_feasible, is_within_capacities


def problem(weight: list[float], capacity: list[float], owner: list[int] | None = None) -> PackingProblem:
    items = len(weight)
    return PackingProblem(
        weight=np.array(weight, dtype=np.float64),
        owner=np.array(owner or [UNASSIGNED] * items, dtype=np.int32),
        topic=np.zeros(items, dtype=np.int32),
        lag=np.zeros(items),
        capacity=np.array(capacity),
        subscribed=np.ones((1, len(capacity)), dtype=np.bool_),
    )


@pytest.mark.parametrize("name", ["steady", "mwf", "nf", "ff"])
def test_an_empty_member_gets_no_partition_that_only_another_can_hold(name: str) -> None:
    """30 goes beside 60 on the member of 100, not to an empty one of 20."""
    bins, is_overloaded = pack_exactly(get_heuristic(name), problem([60, 30, 5], [100, 20]))
    assert not is_overloaded
    assert bins[:2].tolist() == [0, 0]


def test_what_no_member_can_hold_excuses_only_its_own() -> None:
    """A partition of 300 has a member to itself; the others stay within their capacities."""
    given = problem([300, 50, 40, 60, 30], [100, 100, 100])
    bins, is_overloaded = pack_exactly(get_heuristic("ff"), given)
    assert not is_overloaded
    assert (bins == bins[0]).sum() == 1


def test_fragments_are_packed_anew() -> None:
    """Worst fit decreasing and the present owners leave no room for the last one; a search finds it."""
    given = problem([6, 4, 4, 3, 3], [10, 10], [0, 1, 0, 1, UNASSIGNED])
    for name in ("wfd", "steady"):
        bins, is_overloaded = pack_exactly(get_heuristic(name), given)
        assert not is_overloaded
        assert is_within_capacities(given, bins)


def test_an_overload_keeps_owners_that_share_it() -> None:
    """Nobody moves as long as the fullest is about as full as it has to be."""
    given = problem([30.0] * 8, [100, 100], [0, 0, 0, 0, 1, 1, 1, 1])
    bins, is_overloaded = pack_exactly(get_heuristic("mbf"), given)
    assert is_overloaded
    assert bins.tolist() == given.owner.tolist()


def test_a_load_above_all_capacities_takes_no_try() -> None:
    """The heuristic is not asked; an oversized partition needs a member of its own."""

    def refuse(_: PackingProblem) -> IntArray:
        raise AssertionError("nothing can fit")

    asked = replace(get_heuristic("mbf"), pack=refuse)
    assert pack_exactly(asked, problem([60, 60, 60, 60], [100, 100]))[1]
    assert pack_exactly(asked, problem([300, 60, 60], [100, 100]))[1]


@pytest.mark.parametrize(
    ("partitions", "members", "least", "most_packings"),
    [(1000, 100, 0.0, 1), (120, 100, 80.0, 1), (150, 100, 80.0, 1), (250, 100, 80.0, 3)],
)
def test_an_overload_takes_few_packings(
    partitions: int, members: int, least: float, most_packings: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where two of many partitions on one member are too many, too: the bound knows it."""
    packings: list[PackingProblem] = []

    def count(entry: Heuristic, given: PackingProblem) -> IntArray:
        packings.append(given)
        return run_heuristic(entry, given)

    monkeypatch.setattr(exact_mode, "run_heuristic", count)
    rng = np.random.default_rng(3)
    weight = rng.uniform(least, 120, partitions)
    owner = rng.integers(0, members, partitions)
    capacity = [float(weight.sum()) / members / 1.3] * members
    bins, is_overloaded = pack_exactly(
        get_heuristic("steady"), problem(weight.tolist(), capacity, owner.tolist())
    )
    assert is_overloaded
    assert (bins != UNASSIGNED).all()
    assert len(packings) <= most_packings


def test_the_search_ends_with_its_effort() -> None:
    """Too little effort finds nothing, rather than a placement above the capacities."""
    given = problem([5, 5, 4, 3, 3], [10, 10])
    assert find_feasible(given, effort=9) is None
    found = find_feasible(given, effort=1000)
    assert found is not None
    assert is_within_capacities(given, found)
    assert find_feasible(problem([6, 6, 6], [10, 10]), effort=1000) is None


def test_members_read_what_they_can_hold() -> None:
    """A partition loses the readers that are too small, unless all are, and an owner that is."""
    confined = confine_partitions(problem([30, 10, 300], [100, 20], [1, 1, 1]))
    assert confined.subscribed[confined.topic].tolist() == [[True, False], [True, True], [True, True]]
    assert confined.owner.tolist() == [UNASSIGNED, 1, 1]
