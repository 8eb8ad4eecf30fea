"""The embedded broker's start, without Java: on a machine that is too slow, and with the plugin."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trimtab.cli.broker import broker_config, embedded_broker, start_progress
from trimtab.cli.broker.embedded_broker import EmbeddedBroker
from trimtab.cli.broker.options import BrokerOptions
from trimtab.cli.broker.run import broker
from trimtab.cli.broker.start_progress import (
    BROKER_STALL_S,
    BROKER_START_TIMEOUT_S,
    StartEffort,
    StartProgress,
)
from trimtab.cli.errors import EmbeddedBrokerError
from trimtab.common.errors import SettingError

IDLE = "print('x' * 10_000, flush=True); import time; time.sleep(600)"
BUSY = "while True: pass"


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], EmbeddedBrokerError]:
    """Start a Python program in place of the broker; returns the error."""

    def start(program: str) -> EmbeddedBrokerError:
        commands = [[sys.executable, "-c", program]]
        monkeypatch.setattr(embedded_broker, "require_java", lambda: Path("java"))
        monkeypatch.setattr(embedded_broker, "fetch_jars", lambda *_, **__: ())
        monkeypatch.setattr(broker_config, "build_commands", lambda *_: commands)
        with pytest.raises(EmbeddedBrokerError) as caught:
            EmbeddedBroker().start()
        return caught.value

    return start


def test_a_start_lasts_while_it_progresses() -> None:
    """Each line of its log and each second of its processor time count, up to the longest start."""
    progress, now = StartProgress(0.0), 0.0
    efforts = [StartEffort(pid=1), StartEffort(1, 0, 80), StartEffort(1, 1, 80), StartEffort(2, 0, 80)]
    for effort in efforts:
        now += BROKER_STALL_S
        assert progress.explain_failure(now, effort) == ""
    assert progress.explain_failure(now + BROKER_STALL_S + 1, efforts[-1]) == "it made no progress for 60 s"
    late = progress.explain_failure(BROKER_START_TIMEOUT_S + 1, StartEffort(2, 9, 99))
    assert late == "it is not ready after 600 s"


def test_a_start_that_stalls_says_what_to_do(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text ends with the log, of which no line is longer than a screen."""
    monkeypatch.setattr(start_progress, "BROKER_STALL_S", 4.0)
    error = start(IDLE)
    first, *log = str(error).splitlines()
    assert "the broker did not start: it made no progress for 4 s; is the machine busy" in first
    assert first.endswith("run the command again; the end of its log:")
    assert log == ["x" * 200 + " …"]


def test_a_busy_start_goes_on(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that computes is starting: it is given the longest time."""
    monkeypatch.setattr(start_progress, "_TICKS_PER_S", 1)
    monkeypatch.setattr(start_progress, "BROKER_STALL_S", 3.0)
    monkeypatch.setattr(start_progress, "BROKER_START_TIMEOUT_S", 6.0)
    assert "it is not ready after 6 s" in str(start(BUSY))


@pytest.mark.parametrize("option", [True, False])
def test_the_option_gives_the_broker_the_assignor_plugin(
    *, option: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its JAR is on the class path and its class is the first assignor; own properties still count."""
    started: list[tuple[tuple[Path, ...], str]] = []

    def build(_: Path, jars: tuple[Path, ...], folder: Path, __: str) -> list[list[str]]:
        started.append((jars, (folder / "server.properties").read_text()))
        raise SettingError("enough seen")

    monkeypatch.setattr(embedded_broker, "require_java", lambda: Path("java"))
    monkeypatch.setattr(embedded_broker, "fetch_jars", lambda *_, **__: ())
    monkeypatch.setattr(embedded_broker, "cache_plugin_jar", lambda _: Path("plugin.jar"))
    monkeypatch.setattr(broker_config, "build_commands", build)
    with pytest.raises(SettingError, match="enough"):
        broker(BrokerOptions(port=0, assignor_plugin=option, settings=["num.io.threads=9"]))
    ((jars, properties),) = started
    assert jars == ((Path("plugin.jar"),) if option else ())
    assert ("group.consumer.assignors=io.trimtab.PlannedAssignor,uniform,range\n" in properties) is option
    assert "num.io.threads=9\n" in properties
