"""What `trimtab ingest` does before Spark starts."""

import logging
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Never

import pytest

from trimtab.cli import main as command
from trimtab.cli.ingest import run
from trimtab.cli.signals import STOP_SIGNALS, exit_on_signals
from trimtab.consumer_sdk.lake.writer import ingest


@pytest.fixture(autouse=True)
def _keep_handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings whose broker does not answer: its port is bound, and nothing listens on it."""
    monkeypatch.setattr(run, "log_to_stderr", lambda: None)
    monkeypatch.setattr(ingest, "BROKER_SILENCE_NOTICE_S", 0.5)
    monkeypatch.setattr(ingest, "BROKER_ANSWER_TIMEOUT_S", 0.5)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
    file = tmp_path / "ingest.yaml"
    file.write_text(f"bootstrap.servers: {address}\ngroup.id: g\ntopics: [orders]\nlake.warehouse: ./lake\n")
    return file


def test_a_wrong_broker_is_told_before_spark_starts(
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """After the place of the tables: one warning, and one error without lines of the Kafka clients."""

    def open_lake(*_: Any, **__: Any) -> Never:
        raise AssertionError("Spark starts first")

    monkeypatch.setattr(run, "open_lake", open_lake)
    with caplog.at_level(logging.INFO):
        assert command.main(["ingest", "--config", str(config)]) == 1
    assert [record.message.partition(";")[0] for record in caplog.records] == [
        f"writing tables to {config.parent}/lake (a new folder)",
        f"no broker answers at {config.read_text().split()[1]} yet",
    ]
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("trimtab: no Kafka broker answers at 127.0.0.1:")
    assert not (config.parent / "lake").exists()


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_ends_the_start_of_spark(
    config: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: signal.Signals
) -> None:
    """At once, with exit code 0 as later; a second one does not interrupt the cleaning up."""
    cleaned: list[bool] = []

    def open_lake(*_: Any, **__: Any) -> Never:
        try:
            os.kill(os.getpid(), number)
            raise AssertionError("Spark starts nonetheless")
        finally:
            os.kill(os.getpid(), number)
            cleaned.append(True)

    monkeypatch.setattr(ingest, "check_broker", lambda _settings: None)
    monkeypatch.setattr(run, "open_lake", open_lake)
    with caplog.at_level(logging.INFO):
        assert command.main(["ingest", "--config", str(config)]) == 0
    assert cleaned
    assert caplog.records[-1].message == "stopped before joining group g; nothing was read"


def test_a_dropped_exit_is_made_up_for() -> None:
    """A library may catch every exception, or be in a finalizer, whose exceptions Python ignores."""
    with pytest.raises(SystemExit), exit_on_signals(), suppress(SystemExit):
        os.kill(os.getpid(), signal.SIGTERM)
