"""`trimtab plan` on groups that are given as values: certificates, names, and odd groups."""

import json
import sys
from typing import Any

import pytest

from trimtab.assignor import TopicPartition
from trimtab.cli.main import main
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.diagnostics.what_if import GroupBaseline
from trimtab.sidecar.measurement.observation import GroupState, ObservedGroup, ObservedMember

SPEEDS = (60.0, 50.0, 40.0, 30.0, 20.0)
WORDS = ("plan", "--bootstrap", "nowhere:1", "--group", "g", "--capacity", "100", "--headroom", "1")


def found(*speeds: float | None, members: int = 2) -> GroupBaseline:
    """A group whose members hold the partitions in turn."""
    names = [TopicPartition("t", n) for n in range(len(speeds))]
    held = [frozenset(names[m::members]) for m in range(members)]
    readers = tuple(ObservedMember(f"id{m}", f"w{m}", mine) for m, mine in enumerate(held))
    state = GroupState.STABLE if members else GroupState.EMPTY
    known = {p: PartitionLoad(bytes_per_s=s) for p, s in zip(names, speeds, strict=True)}
    return GroupBaseline(ObservedGroup(state, readers), known, "given", None)


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Call the command on a group; gives exit code, output and error output."""

    def call(group: GroupBaseline, *words: str) -> tuple[int, str, str]:
        monkeypatch.setattr("trimtab.cli.plan.run.measure_baseline", lambda *_, **__: group)
        monkeypatch.setenv("COLUMNS", "200")
        code = main([*WORDS, *words])
        said = capsys.readouterr()
        return code, said.out, said.err

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
        code, out, _ = plan(found(*SPEEDS), "--format", "json", *words)
        assert (code, list(heuristics(out))) == (0, ["mbf", "mwf"])


def test_an_unknown_name_is_told_at_once(plan: Any) -> None:
    """A misspelt heuristic ends the command before anything is measured."""
    code, out, err = plan(found(*SPEEDS), "--heuristic", "mfb")
    assert (code, out) == (2, "")
    assert "did you mean 'mbf'" in err


def test_all_are_asked_once(plan: Any) -> None:
    """ "all" is everybody, and a name that is there twice is asked once."""
    _, everybody, _ = plan(found(*SPEEDS), "--format", "json")
    _, listed, _ = plan(found(*SPEEDS), "--format", "json", "--heuristic", "all")
    assert list(heuristics(everybody)) == list(heuristics(listed))
    _, twice, _ = plan(found(*SPEEDS), "--format", "json", "--heuristic", "mbf,mwf,mbf")
    assert list(heuristics(twice)) == ["mbf", "mwf"]


def test_a_partition_beyond_a_consumer_is_told(plan: Any) -> None:
    """No heuristic can help it: the table and the JSON say what can."""
    said = "t-1 receives 250 B/s, above the usable capacity of a consumer (100 B/s): split the key"
    _, out, _ = plan(found(60.0, 250.0, 40.0), "--heuristic", "mbf")
    assert said in out
    _, body, _ = plan(found(60.0, 250.0, 40.0), "--heuristic", "mbf", "--format", "json")
    assert said in json.loads(body)["notes"][0]
    assert "split the key" in heuristics(body)["mbf"]["notes"][0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--time-limit", "5 s"), "--time-limit is of --certify"),
        (("--heuristic", "mwf", "--move-cost", "9 s"), "--move-cost tunes steady"),
        (("--seconds", "0s"), "--seconds '0s' must be above 0"),
        (("--heuristic", "mwf,"), "a name in a list of heuristics is empty"),
    ],
)
def test_an_option_that_would_change_nothing_is_refused(plan: Any, words: tuple[str, ...], said: str) -> None:
    """What cannot be meant is named before anything is measured."""
    code, out, err = plan(found(*SPEEDS), *words)
    assert (code, out) == (2, "")
    assert said in err


def test_a_group_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a group the command says so, and speaks of nobody else."""
    for command in (["plan"], ["record", "--out", "nowhere.json"]):
        assert main(command) == 2
        said = capsys.readouterr().err
        assert "--bootstrap and --group missing; say which group is meant" in said
        assert "sidecar" not in said


def test_each_heuristic_is_certified(plan: Any) -> None:
    """The JSON has value, bound and gap of each; they agree with consumers and R."""
    words = ("--certify", "--move-cost", "7.5 s", "--format", "json", "--heuristic", "mbf", "bfd")
    code, out, _ = plan(found(*SPEEDS), *words)
    assert code == 0
    assert json.loads(out)["certify"]["moves_cost"] == 0.25
    for row in heuristics(out).values():
        made = row["certificate"]
        assert made["value"] == pytest.approx(row["consumers"] + 0.25 * row["r_score"])
        assert made["lower_bound"] <= made["best_known"] <= made["value"]
        assert made["complete"]
        assert made["fits"]


def test_the_table_says_how_far_at_most(plan: Any) -> None:
    """A column for each heuristic, and a line with the bound that all have in common."""
    code, out, _ = plan(found(*SPEEDS), "--certify", "--heuristic", "mbf", "lag-aware")
    assert code == 0
    assert "above the optimum" in out
    assert "at most " in out
    assert "optimum of consumers + 0.5 x R: between " in out


def test_what_overfills_is_not_compared(plan: Any) -> None:
    """A decision that overfills a consumer may cost less than the optimum, and is said to."""
    _, out, _ = plan(found(90.0, 60.0, 50.0), "--certify", "--heuristic", "sticky")
    assert "overfull" in out


def test_certify_asks_for_its_extra(plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without HiGHS the command says what to install, before it measures."""
    for name in [
        n for n in sys.modules if n.startswith(("highspy", "trimtab.assignor.analysis.certificate"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "highspy", None)
    code, out, err = plan(found(*SPEEDS), "--certify")
    assert (code, out) == (1, "")
    assert "pip install 'trimtab[certify]'" in err


@pytest.mark.parametrize("text", ["0", "-3", "soon"])
def test_a_time_limit_that_is_none_is_refused(plan: Any, text: str) -> None:
    """A limit must be a time above 0."""
    code, _, err = plan(found(*SPEEDS), "--certify", "--time-limit", text)
    assert code == 2
    assert "--time-limit" in err


def test_a_group_without_members_is_planned(plan: Any) -> None:
    """Nobody is there: the consumers that are needed are all new, and nothing is moved."""
    code, out, _ = plan(found(*SPEEDS, members=0), "--certify", "--format", "json")
    rows = heuristics(out)
    assert code == 0
    assert {row["consumers"] for row in rows.values()} <= {2, 3}
    assert {row["r_score"] for row in rows.values()} == {0.0}
    assert all(row["certificate"]["lower_bound"] == pytest.approx(2) for row in rows.values())


def test_a_group_without_partitions_needs_nobody(plan: Any) -> None:
    """Nothing is read: no heuristic wants a consumer, and that is optimal."""
    code, out, _ = plan(found(members=1), "--certify", "--format", "json")
    assert code == 0
    for row in heuristics(out).values():
        assert (row["consumers"], row["moves"], row["certificate"]["gap"]) == (0, 0, 0.0)


def test_unknown_speeds_are_planned_with_a_guess(plan: Any) -> None:
    """Where no speed is known every partition weighs the same; the command still answers."""
    code, out, _ = plan(found(None, None), "--certify", "--format", "json", "--heuristic", "mbf")
    assert code == 0
    assert heuristics(out)["mbf"]["consumers"] == 1


@pytest.mark.parametrize("speed", [-1.0, float("nan"), float("inf")])
def test_a_speed_that_cannot_be_is_named(plan: Any, speed: float) -> None:
    """Such a speed ends the command with the partition's name, not with a guess."""
    code, _, err = plan(found(10.0, speed))
    assert code == 1
    assert f"write rate of t-1 is {speed} bytes/s" in err
