"""`trimtab simulate` and `trimtab heuristics`, run as commands."""

import json
from pathlib import Path

import pytest
import typer
import yaml
from typer.testing import CliRunner, Result

from trimtab.assignor import InvalidStreamError, SettingError, UnknownHeuristicError, list_heuristics
from trimtab.assignor.analysis.simulation import default_contender_names
from trimtab.cli.heuristics.options import COMMAND as HEURISTICS
from trimtab.cli.simulate.options import COMMAND as SIMULATE

STREAM = '[{"a": {"0": 60, "1": 50}}, {"a": {"0": 40, "1": 50}}]'

app = typer.Typer()
app.command("simulate")(SIMULATE)
app.command("heuristics")(HEURISTICS)


def call(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


@pytest.fixture
def stream(tmp_path: Path) -> str:
    file = tmp_path / "stream.json"
    file.write_text(STREAM)
    return str(file)


def test_heuristics_prints_a_table() -> None:
    """Each heuristic is a row with its name and its whole summary."""
    output = call("heuristics").output
    rows = [line.split("│") for line in output.splitlines() if line.startswith("│")]
    assert [row[1].strip() for row in rows] == list(list_heuristics())
    assert all(row[2].strip() and "…" not in row[2] for row in rows)


def test_verbose_heuristics_have_their_source() -> None:
    """--verbose adds the source of each heuristic."""
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
def test_simulate_prints_json(stream: str, words: tuple[str, ...]) -> None:
    """Each heuristic has three lists with an entry per tick, however the names are given."""
    result = call("simulate", "--stream", stream, "--capacity", "100", *words, "--format", "json")
    results = json.loads(result.stdout)["heuristics"]
    lists = {"consumers": [2, 1], "rscore": [0.0, 0.4], "moved": [0, 1]}
    assert {name: {key: series[key] for key in lists} for name, series in results.items()} == {
        "mbf": lists,
        "sticky": lists,
    }


def test_simulate_prints_a_table() -> None:
    """By default each heuristic that recommends a replica count has a row."""
    output = call("simulate", "--random-walk", "5", "--ticks", "3", "--partitions", "9").output
    assert "CBS %" in output
    assert "over L2 %" in output
    assert all(f"│ {name} " in output for name in default_contender_names())
    assert "sticky" not in output


SMALL = ("--ticks", "12", "--partitions", "12")


@pytest.mark.parametrize("words", [("--zipf",), ("--flash-crowd",), ("--oversize",)])
def test_the_last_line_is_the_result(words: tuple[str, ...]) -> None:
    """RESULT has an object for each heuristic, whose figures name their units."""
    names = ("--heuristic", "mbf", "keda", "range")
    lines = call("simulate", *words, *SMALL, *names).output.splitlines()
    assert lines[-1].startswith("RESULT {")
    result = json.loads(lines[-1].removeprefix("RESULT "))
    assert list(result["heuristics"]) == ["mbf", "keda", "range"]
    assert result["heuristics"]["mbf"]["cbs_percent"] == 0
    assert result["heuristics"]["keda"]["over_l2_percent"] is None
    assert result["heuristics"]["range"]["consumer_hours"] > 0
    assert result["recommended"]["heuristic"] == "mbf"


def test_shapes_reach_the_generator() -> None:
    """--shape changes the generated stream, and is validated."""
    words = ("simulate", "--zipf", *SMALL, "--heuristic", "mbf", "--format", "json")
    flat = call(*words, "--shape", "exponent=0", "--shape", "wave=2").stdout
    assert json.loads(flat)["heuristics"] != json.loads(call(*words).stdout)["heuristics"]
    assert "--shape nope is not known" in str(call(*words, "--shape", "nope=1").exception)
    assert "must be a number" in str(call(*words, "--shape", "day=x").exception)


def test_several_seeds_have_means() -> None:
    """Several streams have means, and lists for each stream."""
    words = ("--random-walk", "15", *SMALL, "--seeds", "3", "--heuristic", "mwf", "bfd")
    body = json.loads(call("simulate", *words, "--format", "json").stdout)
    assert body["streams"] == len(body["heuristics"]["mwf"]["streams"]) == 3


def test_a_recommendation_tries_headrooms() -> None:
    """--recommend tries seven headrooms and prints the settings to write."""
    words = ("--random-walk", "15", *SMALL, "--heuristic", "mwf", "keda", "--recommend")
    output = call("simulate", *words, "--late-limit", "100", "--capacity", "2 MB/s").output
    assert "7 simulated settings" in output
    assert "    heuristic: mwf\n    capacity: 2 MB/s\n    headroom: 1\n" in output
    crowd = ("--flash-crowd", "--ticks", "40", "--partitions", "60", "--heuristic", "mwf", "--recommend")
    assert "Nearest to the limit: none of" in call("simulate", *crowd, "--late-limit", "0").output


def test_the_closed_loop_is_simulated_live(stream: str) -> None:
    """With --live the figures of a tick are those done: a consumer joins --startup after its start."""
    words = ("simulate", "--stream", stream, "--capacity", "100", "--headroom", "1", "--heuristic", "mbf")
    body = json.loads(call(*words, "--live", "--format", "json").stdout)
    assert (body["live"], body["model"]) == (True, "live")
    # the paper's replay ends with one consumer: the sidecar waits for its stabilization window
    done = body["heuristics"]["mbf"]
    assert (done["consumers"], done["rscore"], done["moved"]) == ([2, 2], [0.0, 0.0], [0, 0])
    assert done["fullest"] == [0.6, 0.5]
    assert (done["decided"], done["feasible"], done["avoidable"]) == ([False] * 2, [True] * 2, [False] * 2)
    eager = (*words, "--live", "--set", "scale-down-stabilization-window=0", "--set", "tolerance=0")
    assert json.loads(call(*eager, "--format", "json").stdout)["heuristics"]["mbf"]["moved"] == [0, 1]
    paper = json.loads(call(*words, "--format", "json").stdout)
    assert (paper["live"], paper["model"]) == (False, "paper")
    assert paper["heuristics"]["mbf"]["fullest"] == [0.6, 0.9]


def test_live_results_count_what_was_over() -> None:
    """RESULT has the ticks over headroom and capacity, and the fullest consumer; all but range run live."""
    words = ("simulate", "--zipf", *SMALL, "--live")
    output = call(*words, "--heuristic", "all").output
    assert output.startswith("The closed loop: ")
    found = json.loads(output.splitlines()[-1].removeprefix("RESULT "))["heuristics"]
    assert {"steady:calm", "mbfp", "sticky", "lag-aware", "keda:range", "keda:sticky"} < set(found)
    assert "range" not in found
    assert {"over_headroom", "over_capacity", "max_fullest"} < set(found["steady:calm"])
    assert 0 < found["mbfp"]["max_fullest"] < found["keda:range"]["max_fullest"]


def test_a_season_is_at_least_a_tick() -> None:
    """--season is one of the closed loop's options, and changes nothing without a season of record."""
    walk = (
        "simulate",
        "--random-walk",
        "15",
        "--partitions",
        "6",
        "--ticks",
        "8",
        "--heuristic",
        "mwf",
        "--live",
    )
    assert call(*walk, "--season", "4 min").output == call(*walk, "--season", "1 d").output
    assert isinstance(call(*walk, "--season", "29 s").exception, SettingError)
    assert isinstance(call(*walk[:-1], "--season", "90 s").exception, SettingError)


def test_the_recommendation_is_of_the_closed_loop() -> None:
    """--recommend names the cheapest of the live runs of --live."""
    words = ("simulate", "--random-walk", "15", *SMALL, "--heuristic", "mwf,mbfp", "--late-limit", "100")
    chosen = json.loads(call(*words, "--recommend", "--format", "json").stdout)["recommended"]
    live = {
        (name, headroom): json.loads(
            call(*words, "--live", "--headroom", headroom, "--format", "json").stdout
        )["heuristics"][name]["summary"]
        for name in ("mwf", "mbfp")
        for headroom in ("1", "0.9", "0.8")
    }
    best = live[chosen["heuristic"], f"{chosen['headroom']:g}"]
    assert chosen["consumer_hours"] == best["consumer_hours"]
    assert best["consumer_hours"] <= 1.01 * min(summary["consumer_hours"] for summary in live.values())


def test_the_recommended_settings_are_those_of_the_run() -> None:
    """Who copies the block runs what was simulated, --set too; the last one of a name counts."""
    words = ("--random-walk", "15", "--partitions", "10", "--ticks", "15", "--live", "--heuristic", "steady")
    sets = ("--set", "move-cost=1 s", "--set", "pause=scale-down", "--set", "move-cost=900 s")
    lines = call("simulate", *words, *sets).output.splitlines()
    block = yaml.safe_load("\n".join(line for line in lines if line.startswith("    ") and ": " in line))
    assert block == {
        "heuristic": "steady",
        "capacity": "100 B/s",
        "headroom": 0.9,
        "move-cost": "900 s",
        "pause": "scale-down",
    }


@pytest.mark.parametrize(("initial", "filled"), [("0", 0.0), ("50", 0.5), ("100", 1.0)])
def test_a_walk_begins_where_it_is_told(tmp_path: Path, initial: str, filled: float) -> None:
    """--initial sets all first write rates, in percent of the capacity."""
    file = tmp_path / "walk.json"
    words = ("--random-walk", "5", *SMALL, "--heuristic", "mwf", "--capacity", "200", "--save", str(file))
    call("simulate", *words, "--initial", initial)
    assert set(json.loads(file.read_text())[0]["walk"].values()) == {200 * filled}


def test_oversized_partitions_are_reported() -> None:
    """The output names partitions that write more than one consumer sustains."""
    output = call("simulate", "--oversize", *SMALL, "--heuristic", "mbf").output
    assert "more than one consumer sustains" in output


def test_the_report_is_self_contained(tmp_path: Path) -> None:
    """The HTML holds its plots, loads nothing, and follows the reader's theme."""
    file = tmp_path / "report.html"
    names = ("--heuristic", "mbf", "mwf", "sticky", "keda")
    assert call("simulate", "--zipf", *SMALL, *names, "--html", str(file)).exit_code == 0
    page = file.read_text()
    assert page.count('<svg role="img" aria-label="') == 3
    assert "color-scheme: light dark" in page
    outside = ('src="', "<script", "<link", "url(http")
    assert [word for word in outside if word in page] == []
    assert '<th scope="row">sticky' in page


def test_a_saved_stream_replays_to_the_same_result(tmp_path: Path) -> None:
    """--stream reads the file that --save writes."""
    file = str(tmp_path / "walk.json")
    words = ("--heuristic", "mwf", "--format", "json")
    walk = ("--random-walk", "15", "--ticks", "5", "--capacity", "2 MB/s")
    first = call("simulate", *walk, "--save", file, *words)
    again = call("simulate", "--stream", file, "--capacity", "2 MB/s", *words)
    assert json.loads(first.stdout)["heuristics"] == json.loads(again.stdout)["heuristics"]
    assert call("simulate", *walk, *words).stdout == first.stdout
    assert call("simulate", *walk, "--seed", "1", *words).stdout != first.stdout


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "no stream is given; choose one source"),
        (("--stream", "x", "--random-walk", "5"), "--stream and --random-walk are given"),
        (("--stream", "x"), "--stream needs the capacity"),
        (("--stream", "no-such-file", "--capacity", "1"), "no-such-file cannot be read"),
        (("--random-walk", "5", "--save", "no/such/folder/x"), "cannot be written"),
        (("--random-walk", "5", "--capacity", "lots"), "--capacity: 'lots' is not understood"),
        (("--random-walk", "5", "--capacity", "0"), "--capacity '0' must be above 0"),
        (("--random-walk", "5", "--headroom", "1.1"), "--headroom 1.1 must be"),
        (("--random-walk", "5", "--tick", "0"), "--tick '0' must be above 0"),
        (("--random-walk", "5", "--shape", "day=1"), "a random walk's only shape is its"),
        (("--zipf", "--oversize"), "--zipf and --oversize are given"),
        (("--zipf", "--shape", "load=.nan"), "--shape load=nan must be a finite number"),
        (("--zipf", "--capacity", "1e-300"), "--capacity '1e-300' must be 0.001 to 1e+15"),
        (("--zipf", "--heuristic", "mbf,"), "a name in a list of heuristics is empty"),
        (("--zipf", "--html", "no/such/folder/x"), "--html: no/such/folder/x cannot be written"),
        (
            ("--stream", "x", "--capacity", "1", "--seeds", "2", "--unclamped"),
            "only a generated stream has --seeds, --unclamped; leave out --stream",
        ),
        (("--zipf", "--initial", "50"), "--initial: only a random walk has initial write rates"),
        (("--zipf", "--startup", "5"), "only the closed loop has --startup; add --live"),
        (("--zipf", "--live", "--set", "headroom=1"), "headroom: set by the simulation's own options"),
        (("--zipf", "--live", "--set", "cooldwn=1"), "cooldwn"),
        (("--zipf", "--live", "--set", "interval=5"), "set by the simulation's own options; write --tick"),
        (
            ("--zipf", "--live", "--set", "learn-capacity=true"),
            "learn-capacity: not simulated; leave it out. The closed loop has backlog-grace,",
        ),
        (("--zipf", "--live", "--set", "target=kubernetes"), "target: not simulated"),
        (
            ("--zipf", "--live", "--set", "co-partitioned=[[a,b]]"),
            "a is no topic of the stream, which has zipf",
        ),
        (("--zipf", "--live", "--heuristic", "keda", "--set", "cooldown=5"), "--set: keda decides without"),
        (
            ("--zipf", "--live", "--heuristic", "steady,mwf", "--set", "move-cost=9 s"),
            "move-cost tunes steady, but --heuristic mwf; leave",
        ),
        (
            ("--zipf", "--live", "--set", "freshness-slo=p99-freshness 30 s"),
            "freshness-slo=30 s is less than twice --tick 30 s",
        ),
        (("--zipf", "--live", "--heuristic", "range"), "range decides no number of consumers"),
    ],
)
def test_simulate_rejects_invalid_settings(words: tuple[str, ...], text: str) -> None:
    """The error names a setting that is missing, contradictory or malformed."""
    error = call("simulate", *words).exception
    assert isinstance(error, SettingError)
    assert text in str(error)


def test_simulate_rejects_unknown_heuristics_and_invalid_streams(tmp_path: Path) -> None:
    """The assignor's errors reach the command unchanged."""
    file = tmp_path / "bad.json"
    file.write_text("{}")
    assert isinstance(call("simulate", "--random-walk", "-5").exception, InvalidStreamError)
    assert isinstance(
        call("simulate", "--stream", str(file), "--capacity", "1").exception, InvalidStreamError
    )
    file.write_text("[{}]")
    empty = call("simulate", "--stream", str(file), "--capacity", "1").exception
    assert isinstance(empty, InvalidStreamError)
    assert "names no partition" in str(empty)
    file.write_text("[" * 100_000)
    deep = call("simulate", "--stream", str(file), "--capacity", "1").exception
    assert isinstance(deep, InvalidStreamError)
    assert call("simulate", "--random-walk", "5", "--seeds", "0").exit_code == 2
    assert call("simulate", "--random-walk", "5", "--late-limit", "200").exit_code == 2
    unknown = call("simulate", "--random-walk", "5", "--heuristic", "nope").exception
    assert isinstance(unknown, UnknownHeuristicError)
    assert "rack-aware, range, keda, keda:sticky, all" in str(unknown)


def test_a_stream_may_come_from_a_pipe() -> None:
    """The file "-" is standard input."""
    words = ["simulate", "--stream", "-", "--capacity", "100", "--heuristic", "mbf"]
    result = CliRunner().invoke(app, words, input=STREAM)
    assert '"stream": "stream from standard input"' in result.output
    silent = json.dumps([{"a": {"0": 0}}] * 20)
    result = CliRunner().invoke(app, words, input=silent)
    assert "No recommendation: nothing is written in this stream." in result.output


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--random-walk", "5", "--ticks", "3"), "lasts 60 s, too short to tell what would be"),
        (("--zipf", "--heuristic", "keda", "range"), "none of those simulated is a setting"),
    ],
)
def test_no_recommendation_without_evidence(words: tuple[str, ...], text: str) -> None:
    """A short stream, or a run without a setting of Trimtab, yields no recommendation."""
    output = call("simulate", "--ticks", "12", "--partitions", "9", *words).output
    assert "No recommendation: " in output
    assert text in output
    assert '"recommended": null' in output


def test_the_recommendation_names_excluded_contenders() -> None:
    """The recommendation lists the contenders that are not settings of Trimtab."""
    names = ("--heuristic", "range,keda,sticky")
    output = call("simulate", "--random-walk", "15", *SMALL, *names).output
    assert "the one simulated setting" in output
    assert "Not to be set in Trimtab, so not considered: range, keda." in output
