"""`trimtab plan` on groups given as values: names, and unusual groups."""

import json
from dataclasses import replace
from typing import Any

import pytest

from trimtab.assignor import TopicPartition
from trimtab.cli.main import main
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.diagnostics.what_if import SOURCE_PUBLISHED, GroupBaseline
from trimtab.sidecar.model.observation import GroupState, ObservedGroup, ObservedMember

RATES = (60.0, 50.0, 40.0, 30.0, 20.0)
WORDS = ("plan", "--bootstrap", "nowhere:1", "--group", "g", "--capacity", "100", "--headroom", "1")


def baseline(*rates: float | None, members: int = 2) -> GroupBaseline:
    """A group whose members own the partitions in turn."""
    names = [TopicPartition("t", n) for n in range(len(rates))]
    held = [frozenset(names[m::members]) for m in range(members)]
    readers = tuple(ObservedMember(f"id{m}", f"w{m}", mine) for m, mine in enumerate(held))
    state = GroupState.STABLE if members else GroupState.EMPTY
    known = {p: PartitionLoad(bytes_per_s=s) for p, s in zip(names, rates, strict=True)}
    return GroupBaseline(ObservedGroup(state, readers), known, "given", None)


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the command on a group; return exit code, output and error output."""

    def call(group: GroupBaseline, *words: str, columns: int = 200) -> tuple[int, str, str]:
        monkeypatch.setattr("trimtab.cli.plan.run.measure_baseline", lambda *_, **__: group)
        monkeypatch.setenv("COLUMNS", str(columns))
        code = main([*WORDS, *words])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def heuristics(output: str) -> dict[str, Any]:
    return dict(json.loads(output)["heuristics"])


def test_names_may_follow_in_a_list(plan: Any) -> None:
    """--heuristic takes names as simulate does: repeated, listed, or with commas."""
    for words in (
        ("--heuristic", "mbf", "mwf"),
        ("--heuristic", "mbf", "--heuristic", "mwf"),
        ("--heuristic", "mbf,mwf"),
    ):
        code, out, _ = plan(baseline(*RATES), "--format", "json", *words)
        assert (code, list(heuristics(out))) == (0, ["mbf", "mwf"])


def test_an_unknown_name_is_rejected_before_measuring(plan: Any) -> None:
    """A misspelt heuristic ends the command with a suggestion."""
    code, out, err = plan(baseline(*RATES), "--heuristic", "mfb")
    assert (code, out) == (2, "")
    assert "did you mean 'mbf'" in err


def test_each_heuristic_is_evaluated_once(plan: Any) -> None:
    """ "all" is the default, and a repeated name counts once."""
    _, default, _ = plan(baseline(*RATES), "--format", "json")
    _, listed, _ = plan(baseline(*RATES), "--format", "json", "--heuristic", "all")
    assert list(heuristics(default)) == list(heuristics(listed))
    _, twice, _ = plan(baseline(*RATES), "--format", "json", "--heuristic", "mbf,mwf,mbf")
    assert list(heuristics(twice)) == ["mbf", "mwf"]


def test_an_oversized_partition_is_reported(plan: Any) -> None:
    """Table and JSON suggest the remedy: no heuristic can place it."""
    note = "t-1 receives 250 B/s, above the usable capacity of a consumer (100 B/s): split the key"
    _, out, _ = plan(baseline(60.0, 250.0, 40.0), "--heuristic", "mbf")
    assert note in out
    _, body, _ = plan(baseline(60.0, 250.0, 40.0), "--heuristic", "mbf", "--format", "json")
    assert note in json.loads(body)["notes"][0]
    assert "split the key" in heuristics(body)["mbf"]["notes"][0]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--heuristic", "mwf", "--move-cost", "9 s"), "--move-cost tunes steady"),
        (("--seconds", "0s"), "--seconds '0s' must be above 0"),
        (("--heuristic", "mwf,"), "a name in a list of heuristics is empty"),
    ],
)
def test_an_option_without_effect_is_rejected(plan: Any, words: tuple[str, ...], text: str) -> None:
    """The error names it before the measurement."""
    code, out, err = plan(baseline(*RATES), *words)
    assert (code, out) == (2, "")
    assert text in err


def test_a_group_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a group the error names the missing options, and no sidecar."""
    for command in (["plan"], ["record", "--out", "nowhere.json"]):
        assert main(command) == 2
        error = capsys.readouterr().err
        assert "--bootstrap and --group missing; say which group is meant" in error
        assert "sidecar" not in error


def test_a_group_without_members_is_planned(plan: Any) -> None:
    """All needed consumers are new, and nothing moves."""
    code, out, _ = plan(baseline(*RATES, members=0), "--format", "json")
    rows = heuristics(out)
    assert code == 0
    assert {row["consumers"] for row in rows.values()} <= {2, 3}
    assert {row["r_score"] for row in rows.values()} == {0.0}


def test_a_group_without_partitions_needs_no_consumer(plan: Any) -> None:
    """Each heuristic recommends 0 consumers."""
    code, out, _ = plan(baseline(members=1), "--format", "json")
    assert code == 0
    for row in heuristics(out).values():
        assert (row["consumers"], row["moves"]) == (0, 0)


def test_unknown_write_rates_weigh_the_same(plan: Any) -> None:
    """Without any known write rate the command still recommends a count."""
    code, out, _ = plan(baseline(None, None), "--format", "json", "--heuristic", "mbf")
    assert code == 0
    assert heuristics(out)["mbf"]["consumers"] == 1


@pytest.mark.parametrize("rate", [-1.0, float("nan"), float("inf")])
def test_an_invalid_write_rate_is_rejected(plan: Any, rate: float) -> None:
    """The error names the partition and its rate."""
    code, _, err = plan(baseline(10.0, rate))
    assert code == 1
    assert f"write rate of t-1 is {rate} bytes/s" in err


def test_a_narrow_terminal_shows_each_reason_once(plan: Any) -> None:
    """Below the table, with the heuristics that give it."""
    _, out, _ = plan(baseline(*RATES), "--heuristic", "mbf,mwf", columns=80)
    assert "mbf, mwf: t-4 -> w1: w0 would be at 120% of its capacity" in out
    assert out.count("t-4 -> w1") == 1


@pytest.mark.parametrize(
    ("source", "ending"),
    [
        (SOURCE_PUBLISHED, ", as the published rates and backlogs do: not bytes on the wire"),
        (
            "measured for 30 s",
            "; the rates measured here count bytes alone: the fill of these consumers is inexact",
        ),
    ],
)
def test_learned_capacities_are_named_with_their_unit(plan: Any, source: str, ending: str) -> None:
    """Of the members only, and not those of bytes alone, which have the unit of all figures."""
    learned = GroupPlan("g", 3, 0.0, 2, "mbf", 100.0, capacities={"w0": 80.0, "w1": 130.0, "gone": 900.0})
    group = replace(baseline(*RATES), plan=learned, rate_source=source)
    _, out, _ = plan(group, "--heuristic", "mbf", "--format", "json")
    assert json.loads(out)["notes"] == []
    weighed = replace(group, plan=replace(learned, record_weights=(0.75, 150.4)))
    _, out, _ = plan(weighed, "--heuristic", "mbf", "--format", "json")
    unit = "counting 0.75 B for each byte and 150 B for each record"
    told = f"learned capacities of 2 consumers: 80 B/s to 130 B/s, {unit}{ending}"
    assert json.loads(out)["notes"] == [told]
