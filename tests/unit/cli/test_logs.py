"""Logs of commands that run until they are stopped."""

import logging
import time

import pytest
from kafka.net.selector import NetworkSelector

from support.ticking import Ticking
from trimtab.cli.logs import KafkaPythonLogFilter


def line(logger: str) -> logging.LogRecord:
    return logging.LogRecord(logger, logging.ERROR, "", 0, "Connection failed", None, None)


def test_repeated_lines_of_kafka_python_are_logged_once() -> None:
    """Trimtab's own lines are all logged."""
    log_filter = KafkaPythonLogFilter(Ticking())
    assert [log_filter.filter(line("kafka.net.manager")) for _ in range(3)] == [True, False, False]
    assert all(log_filter.filter(line("trimtab.sidecar")) for _ in range(3))


def test_slow_tasks_of_kafka_python_are_not_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes a step of 0.1 s for a bug of its caller; on a busy machine each one is logged."""
    monkeypatch.setattr(logging.getLogger("kafka.net.selector"), "filters", [])  # the consumer's own
    selector = NetworkSelector(slow_task_threshold_secs=0.01)

    async def slow() -> None:
        time.sleep(0.02)  # noqa: ASYNC251 - what is warned of

    selector.run(slow)
    (warning,) = (record for record in caplog.records if record.name == "kafka.net.selector")
    assert "blocking the event loop" in warning.getMessage()
    assert not KafkaPythonLogFilter(Ticking()).filter(warning)
