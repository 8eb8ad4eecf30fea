"""Logs of commands that run until they are stopped."""

import logging

from ticking import Ticking

from trimtab.cli.logs import KafkaPythonLogFilter


def line(logger: str) -> logging.LogRecord:
    return logging.LogRecord(logger, logging.ERROR, "", 0, "Connection failed", None, None)


def test_repeated_lines_of_kafka_python_are_logged_once() -> None:
    """Trimtab's own lines are all logged."""
    log_filter = KafkaPythonLogFilter(Ticking())
    assert [log_filter.filter(line("kafka.net.manager")) for _ in range(3)] == [True, False, False]
    assert all(log_filter.filter(line("trimtab.sidecar")) for _ in range(3))
