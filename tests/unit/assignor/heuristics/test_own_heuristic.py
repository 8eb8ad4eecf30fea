"""The heuristic of examples/, registered by an entry point as from a package."""

import json
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

from trimtab.assignor import (
    ConsumerGroup,
    Load,
    Member,
    PlacementPolicy,
    TopicPartition,
    place_partitions,
    size_group,
)
from trimtab.assignor.heuristics import registry
from trimtab.cli.main import main

EXAMPLES = Path(__file__).parents[4] / "examples"
WALK = ("simulate", "--random-walk", "5", "--ticks", "9", "--partitions", "9", "--format", "json")


@pytest.fixture(autouse=True)
def example(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the example as "round-robin"."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    found = EntryPoints([EntryPoint("round-robin", "own_heuristic:ROUND_ROBIN", registry.ENTRY_POINT_GROUP)])
    monkeypatch.setattr(registry, "entry_points", lambda group: found.select(group=group))
    registry.get_heuristic.cache_clear()


def simulated(capsys: pytest.CaptureFixture[str], *names: str) -> Any:
    assert main([*WALK, "--heuristic", *names]) == 0
    return json.loads(capsys.readouterr().out)["heuristics"]


def test_it_is_simulated_beside_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    """It gets as many members as the load needs and leaves other scores unchanged."""
    both = simulated(capsys, "mbf", "bfd", "round-robin")
    without = simulated(capsys, "mbf", "bfd")
    assert both.pop("round-robin")["summary"]["cbs_percent"] is None
    assert both == without


def test_it_places_and_is_sized() -> None:
    """It places partitions on subscribers; without members, members are added."""
    here, other = frozenset({"t"}), frozenset({"u"})
    names = tuple(TopicPartition("t", n) for n in range(4))
    members = (Member("a", here), Member("b", here), Member("c", other))
    load, policy = Load(dict.fromkeys(names, 10.0)), PlacementPolicy("round-robin", capacity=20.0)
    held = place_partitions(ConsumerGroup(members, names), load, policy).assignment
    assert held == {"a": names[::2], "b": names[1::2], "c": ()}
    assert size_group(ConsumerGroup((), names), load, policy).consumers == 2


def test_it_is_listed_with_its_properties(capsys: pytest.CaptureFixture[str]) -> None:
    """The list shows that it only places, and which presets others have."""
    assert main(["heuristics", "--verbose"]) == 0
    output = capsys.readouterr().out
    assert "round-robin" in output
    assert "or a number" in " ".join(output.replace("│", " ").split())
