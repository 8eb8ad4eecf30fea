"""Heuristics by name, built-in and third-party ones."""

from importlib.metadata import EntryPoint, EntryPoints

import numpy as np
import pytest

from trimtab.assignor import (
    BrokenHeuristicError,
    ConsumerGroup,
    Heuristic,
    Load,
    Member,
    PackingProblem,
    PlacementPolicy,
    TopicPartition,
    UnknownHeuristicError,
    get_heuristic,
    list_heuristics,
    place_partitions,
)
from trimtab.assignor.heuristics import registry
from trimtab.assignor.model import IntArray

PAPER = ("nf", "nfd", "ff", "ffd", "wf", "wfd", "bf", "bfd", "mwf", "mbf", "mwfp", "mbfp")


def all_to_the_last(problem: PackingProblem) -> IntArray:
    """Everything to the last member.

    More words.
    """
    return np.full(len(problem.weight), len(problem.capacity) - 1, dtype=np.int32)


def out_of_range(problem: PackingProblem) -> IntArray:
    return np.full(len(problem.weight), 99, dtype=np.int32)


def too_few(problem: PackingProblem) -> IntArray:
    return np.zeros(len(problem.weight) + 1, dtype=np.int32)


def regardless(problem: PackingProblem) -> IntArray:
    return np.zeros(len(problem.weight), dtype=np.int32)


def never(problem: PackingProblem) -> IntArray:
    return np.full(len(problem.weight), -1, dtype=np.int32)


def failing(_problem: PackingProblem) -> IntArray:
    raise ZeroDivisionError("no bins")


WITH_PRESETS = Heuristic("as-its-author-calls-it", all_to_the_last, "x", "y", presets={"calm": regardless})
NOT_A_FUNCTION = 3


@pytest.fixture
def third_parties(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install entry points that point into this file, and a broken one."""
    here = EntryPoints(
        EntryPoint(name.replace("_", "-"), f"{__name__}:{name}", registry.ENTRY_POINT_GROUP)
        for name in (
            "all_to_the_last",
            "out_of_range",
            "too_few",
            "regardless",
            "never",
            "failing",
            "WITH_PRESETS",
            "NOT_A_FUNCTION",
        )
    )
    broken = EntryPoint("broken", "no_such_package.heuristic:pack", registry.ENTRY_POINT_GROUP)
    shadow = EntryPoint("mbf", "no_such_package.heuristic:pack", registry.ENTRY_POINT_GROUP)
    found = EntryPoints((*here, broken, shadow))
    monkeypatch.setattr(registry, "entry_points", lambda group: found.select(group=group))
    registry.get_heuristic.cache_clear()


def decide(heuristic: str) -> dict[str, int]:
    group = ConsumerGroup(
        (Member("a", frozenset({"u"})), Member("b", frozenset({"t"}))),
        tuple(TopicPartition("t", p) for p in range(3)),
    )
    plan = place_partitions(group, Load(), PlacementPolicy(heuristic=heuristic))
    return {m: len(held) for m, held in plan.assignment.items()}


def test_built_in_names() -> None:
    """The built-in names are listed in the order of their sources."""
    assert list_heuristics() == ("steady", *PAPER, "lag-aware", "sticky", "rack-aware")
    assert all(get_heuristic(name).summary and get_heuristic(name).source for name in list_heuristics())


def test_properties() -> None:
    """The classics and those that only place are idempotent; the latter do not pack by capacity."""
    assert [n for n in list_heuristics() if not get_heuristic(n).idempotent] == [
        "steady",
        "mwf",
        "mbf",
        "mwfp",
        "mbfp",
    ]
    assert [n for n in list_heuristics() if not get_heuristic(n).packs_by_capacity] == [
        "lag-aware",
        "sticky",
        "rack-aware",
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("stikcy", "heuristic 'stikcy' is not known; did you mean 'sticky'\\? there is: steady, nf,"),
        ("mfb", "did you mean 'mbf'"),
        ("lagaware", "did you mean 'lag-aware'"),
        ("", "heuristic '' is not known; there is: steady"),
        ("foo", "heuristic 'foo' is not known; there is: steady"),
        ("steady:clam", "did you mean 'calm'"),
        ("steady:-1", "must be finite and above 0"),
        ("steady:nan", "must be finite and above 0"),
        ("STEADY", "did you mean 'steady'"),
        ("steady:brisk", "preset 'brisk' of steady .* lexicographic, or a number"),
        ("mbf:0.5", "preset '0.5' of mbf is not known; there is: none"),
        ("mbf:calm", "preset 'calm' of mbf is not known; there is: none"),
    ],
)
def test_an_unknown_name_suggests_the_nearest(name: str, message: str) -> None:
    """A misspelt name raises an error with the nearest one and exit code 2."""
    with pytest.raises(UnknownHeuristicError, match=message) as caught:
        get_heuristic(name)
    assert caught.value.exit_code == 2


@pytest.mark.usefixtures("third_parties")
def test_a_function_of_a_third_party_is_a_heuristic() -> None:
    """A plain function is enough; its first line is its summary."""
    assert get_heuristic("all-to-the-last").summary == "Everything to the last member."
    assert decide("all-to-the-last") == {"a": 0, "b": 3}


@pytest.mark.usefixtures("third_parties")
def test_presets_are_chosen_after_a_colon() -> None:
    """name:preset gives a variant under the name of the entry point."""
    assert get_heuristic("WITH-PRESETS").name == "WITH-PRESETS"
    assert get_heuristic("WITH-PRESETS:calm").pack is regardless
    assert get_heuristic("WITH-PRESETS:calm").name == "WITH-PRESETS:calm"
    with pytest.raises(UnknownHeuristicError, match="did you mean 'calm'"):
        get_heuristic("WITH-PRESETS:clam")


@pytest.mark.usefixtures("third_parties")
def test_a_broken_entry_point_affects_no_other() -> None:
    """It is listed, raises an error on use, and replaces no built-in heuristic."""
    assert "broken" in list_heuristics()
    assert get_heuristic("mbf").source.startswith("Kafka Consumer Group Autoscaler")
    with pytest.raises(BrokenHeuristicError, match=r"'no_such_package\.heuristic:pack' cannot be"):
        get_heuristic("broken")
    with pytest.raises(BrokenHeuristicError, match="gives int; it must give a Heuristic or a function"):
        get_heuristic("NOT-A-FUNCTION")


@pytest.mark.usefixtures("third_parties")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("failing", "failed: ZeroDivisionError"),
        ("too-few", "gave \\(4,\\) bins for 3 partitions"),
        ("out-of-range", "gave a bin outside -1..1"),
        ("regardless", "gave a partition to a member that does not subscribe to it"),
        ("never", "leaves partitions out although any member could hold them all"),
    ],
)
def test_a_third_party_cannot_corrupt_a_plan(name: str, message: str) -> None:
    """A heuristic that fails or returns invalid bins raises an error with its name."""
    with pytest.raises(BrokenHeuristicError, match=message):
        decide(name)
