"""Settings: units people write, a file under flags, and named errors for what cannot be."""

from pathlib import Path
from typing import Any

import pytest

from trimtab.assignor.errors import SettingError
from trimtab.sidecar.settings import load

GOOD: dict[str, Any] = {"bootstrap": "b:9092", "group": "g", "capacity": "2.3 MB/s"}
PROCESS = {"target": "process", "worker-command": ["w", "{instance}"], "state": "s"}


def test_units_and_defaults() -> None:
    """Rates and durations come as people write them, and every default is there."""
    settings = load(None, {**GOOD, "window": "1 min", "interval": "500 ms", "topics": "a, b"})
    assert (settings.capacity, settings.window, settings.interval) == (2.3e6, 60.0, 0.5)
    assert settings.topics == ("a", "b")
    assert (settings.min, settings.max, settings.target) == (1, 10, "none")
    assert settings.policy.placement.consolidate


def test_a_pattern_is_one_topic() -> None:
    """A pattern may hold commas."""
    assert load(None, {**GOOD, "topics": "^a{1,2}$"}).topics == ("^a{1,2}$",)


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    """The file's values stand where no flag is given; librdkafka's settings are joined."""
    file = tmp_path / "sidecar.yaml"
    file.write_text(
        "bootstrap: file:1\ngroup: g\ncapacity: 1 MB/s\nmax: 3\nkafka: {sasl.username: me, a: 1}\n"
    )
    settings = load(file, {"bootstrap": "flag:1", "max": None, "kafka": {"a": 2}})
    assert (settings.bootstrap, settings.max) == ("flag:1", 3)
    assert settings.kafka == {"sasl.username": "me", "a": 2}


def test_a_move_is_paid_for_in_time_of_a_consumer() -> None:
    """15 s of a consumer, where changes are 30 s apart, is half a consumer until the next one."""
    settings = load(None, {**GOOD, "move-cost": "15 s", "cool-down": "30 s"})
    assert settings.policy.placement.heuristic == "steady:0.5"
    assert settings.moves_cost == 0.5
    assert load(None, {**GOOD, "heuristic": "steady:calm"}).moves_cost > settings.moves_cost


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"min": 5, "max": 2}, "min=5 is above max=2"),
        ({"step-out": 0}, "step-out=0"),
        ({"step_in": 0}, "step-in=0"),
        ({"capacity": 0}, "capacity must be above 0"),
        ({"capacity": "fast"}, "capacity: 'fast' is not understood"),
        ({"headroom": 1.5}, "headroom=1.5"),
        ({"dead-band": 1}, "dead-band=1"),
        ({"heuristic": "mbb"}, "did you mean 'mbf'"),
        ({"heuristic": "steady:clam"}, "did you mean 'calm'"),
        ({"heuristic": "mbf", "move-cost": "15 s"}, "leave one of the two out"),
        ({"move-cost": 0}, "move-cost must be above 0"),
        ({"target": "kubernets"}, "target"),
        ({"source": "disk"}, "source"),
        ({"window": "2 s", "interval": "2 s"}, "window=2 s"),
        ({"port": 70000}, "port=70000"),
        ({"capasity": 1}, "did you mean 'capacity'?"),
        ({"zzz": 1}, "there is: bootstrap"),
        ({"bootstrap": " "}, "bootstrap is empty"),
        ({"max": "many"}, "max: "),
        ({"target": "process"}, "needs worker-config"),
        ({**PROCESS, "state": None}, "needs state"),
        ({**PROCESS, "target": "none"}, "write target=process"),
        ({**PROCESS, "worker-command": ["w"]}, "{instance}"),
        ({**PROCESS, "worker-command": [], "worker-config": "/no/such"}, "is no file"),
        ({"stop-workers": True}, "stop-workers needs"),
    ],
)
def test_bad_settings_are_named(given: dict[str, Any], said: str) -> None:
    """What cannot be is refused with its name and what to do, as exit code 2."""
    with pytest.raises(SettingError) as caught:
        load(None, {**GOOD, **given})
    assert said in str(caught.value)
    assert caught.value.exit_code == 2


def test_all_contradictions_are_told_together() -> None:
    """Nobody has to mend one setting after the other."""
    with pytest.raises(SettingError, match=r"min=5.*step-out=0"):
        load(None, {**GOOD, "min": 5, "max": 2, "step-out": 0})


@pytest.mark.parametrize("name", ["bootstrap", "group", "capacity"])
def test_missing_settings_are_named(name: str) -> None:
    """What every sidecar needs is asked for by name."""
    with pytest.raises(SettingError, match=f"{name} is missing"):
        load(None, {k: v for k, v in GOOD.items() if k != name})


@pytest.mark.parametrize(
    ("text", "said"),
    [("a: [", "line 1"), ("- a\n", "not a mapping"), (None, "No such file")],
)
def test_bad_files_are_named(tmp_path: Path, text: str | None, said: str) -> None:
    """A file that is missing, no YAML or no mapping is refused with its name."""
    file = tmp_path / "sidecar.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SettingError, match=said) as caught:
        load(file, {})
    assert "sidecar.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reset"),
    [(None, "latest"), ("topics: [a]\n", "earliest"), ("auto.offset.reset: latest\n", "latest")],
)
def test_offset_reset_is_that_of_the_workers(tmp_path: Path, text: str | None, reset: str) -> None:
    """Without a commit, readers begin where their own settings say."""
    more: dict[str, Any] = {}
    if text is not None:
        worker = tmp_path / "ingest.yaml"
        worker.write_text(text)
        more = {"target": "process", "worker-config": worker, "state": tmp_path}
    assert load(None, {**GOOD, **more}).offset_reset == reset


def test_secrets_stay_secret(tmp_path: Path) -> None:
    """Neither the settings' text nor an error about them holds a password."""
    secret = {"sasl.password": "hunter2", "sasl.username": "me"}
    assert "hunter2" not in repr(load(None, {**GOOD, "kafka": secret}))
    for bad in ({"kafka": {"sasl.password": ["hunter2"]}}, {"kafka": "hunter2"}):
        with pytest.raises(SettingError) as caught:
            load(None, {**GOOD, **bad})
        assert "hunter2" not in str(caught.value)
    file = tmp_path / "sidecar.yaml"
    file.write_text("kafka: {sasl.password: hunter2\n")
    with pytest.raises(SettingError) as caught:
        load(file, GOOD)
    assert "hunter2" not in str(caught.value)
