"""`trimtab simulate` and `trimtab heuristics`, called as functions of the command line."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from trimtab.assignor import BadStream, SettingError, UnknownHeuristic, names
from trimtab.assignor.simulation import default_names
from trimtab.cli.heuristics import heuristics
from trimtab.cli.simulate import simulate

STREAM = '[{"a": {"0": 60, "1": 50}}, {"a": {"0": 40, "1": 50}}]'

app = typer.Typer()
app.command()(simulate)
app.command()(heuristics)


def call(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


@pytest.fixture
def stream(tmp_path: Path) -> str:
    file = tmp_path / "stream.json"
    file.write_text(STREAM)
    return str(file)


def test_heuristics_prints_plain_names() -> None:
    """One name a line and nothing else."""
    assert call("heuristics").output == "\n".join(names()) + "\n"


def test_heuristics_can_say_more() -> None:
    """--verbose adds what each does, and its source."""
    output = call("heuristics", "--verbose").output
    assert "KAFKA-5337" in output
    assert "mbfp" in output


@pytest.mark.parametrize(
    "words",
    [
        ("--heuristic", "mbf", "--heuristic", "sticky"),
        ("--heuristic", "mbf", "sticky"),
        ("--heuristic", "mbf,sticky"),
    ],
)
def test_simulate_prints_json_for_machines(stream: str, words: tuple[str, ...]) -> None:
    """The three lists per heuristic, one entry a tick, however the heuristics are listed."""
    result = call("simulate", "--stream", stream, "--capacity", "100", *words, "--format", "json")
    told = json.loads(result.stdout)["heuristics"]
    lists = {"consumers": [2, 1], "rscore": [0.0, 0.4], "moved": [0, 1]}
    assert {name: {key: found[key] for key in lists} for name, found in told.items()} == {
        "mbf": lists,
        "sticky": lists,
    }


def test_simulate_prints_a_table_for_people() -> None:
    """By default a row for every heuristic that can count."""
    output = call("simulate", "--random-walk", "5", "--ticks", "3", "--partitions", "9").output
    assert "CBS %" in output
    assert "over L2 %" in output
    assert all(f"│ {name} " in output for name in default_names())
    assert "sticky" not in output


def test_a_saved_walk_replays_to_the_same_end(tmp_path: Path) -> None:
    """--save writes the stream that --stream reads back."""
    file = str(tmp_path / "walk.json")
    words = ("--heuristic", "mwf", "--format", "json")
    walk = ("--random-walk", "15", "--ticks", "5", "--capacity", "2 MB/s")
    first = call("simulate", *walk, "--save", file, *words)
    again = call("simulate", "--stream", file, "--capacity", "2 MB/s", *words)
    assert json.loads(first.stdout)["heuristics"] == json.loads(again.stdout)["heuristics"]
    assert call("simulate", *walk, *words).stdout == first.stdout
    assert call("simulate", *walk, "--seed", "1", *words).stdout != first.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "either --stream FILE or --random-walk"),
        (("--stream", "x", "--random-walk", "5"), "either --stream FILE or --random-walk"),
        (("--stream", "x"), "--stream needs the capacity"),
        (("--stream", "no-such-file", "--capacity", "1"), "no-such-file cannot be read"),
        (("--random-walk", "5", "--save", "no/such/folder/x"), "cannot be written"),
        (("--random-walk", "5", "--capacity", "lots"), "--capacity: 'lots' is not understood"),
        (("--random-walk", "5", "--capacity", "0"), "--capacity '0' must be above 0"),
    ],
)
def test_simulate_refuses_bad_settings(words: tuple[str, ...], said: str) -> None:
    """A setting that is missing, contradictory or malformed is named."""
    error = call("simulate", *words).exception
    assert isinstance(error, SettingError)
    assert said in str(error)


def test_simulate_names_unknown_heuristics_and_bad_streams(tmp_path: Path) -> None:
    """Errors of the assignor reach the command's one error printer unchanged."""
    file = tmp_path / "bad.json"
    file.write_text("{}")
    assert isinstance(call("simulate", "--random-walk", "-5").exception, BadStream)
    assert isinstance(
        call("simulate", "--stream", str(file), "--capacity", "1").exception, BadStream
    )
    unknown = call("simulate", "--random-walk", "5", "--heuristic", "nope").exception
    assert isinstance(unknown, UnknownHeuristic)
