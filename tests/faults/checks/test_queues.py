"""A short run of `make faults-queues`, and the figures of its RESULT line."""

import pytest

from faults.queues import QueueRunOptions, figures, run


@pytest.mark.broker
def test_killed_workers_and_trackers_lose_no_message() -> None:
    """After a dozen kills under load, with hostile records, every message has been handled."""
    found = run(QueueRunOptions(kills=12, seed=3, rate=100))
    assert found["lost"] == 0
    assert found["redelivered"] > 0
    assert found["hostile"] > 0


def test_missing_and_late_messages_are_counted() -> None:
    """Unhandled messages are lost; redeliveries are late beyond two seconds."""
    found = figures(QueueRunOptions(5), 10, {3, 4}, [0, 10, 2000, 2001])
    assert (found["lost"], found["beyond_2s"], found["late_ms"]["max"]) == (2, 1, 2001)


def test_run_without_redelivery_has_zero_figures() -> None:
    """Without a redelivery the figures are zeros."""
    found = figures(QueueRunOptions(0), 10, set(), [])
    assert (found["redelivered"], found["late_ms"]) == (0, {"p50": 0, "p99": 0, "max": 0})
