"""What-if: changed settings on the recorded write rates, by the closed-loop simulation in its process."""

import json
from time import monotonic, sleep
from typing import Any

import numpy as np
import pytest

from support.page.page_reports import CAPACITY, ReportSource
from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import SystemClock
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.common.errors import TrimtabError
from trimtab.sidecar.records.decision_record import RecordTerms
from trimtab.sidecar.settings.settings import SidecarSettings, load_settings
from trimtab.sidecar.simulation.policy_comparison import ComparisonInput, compare_policies
from trimtab.sidecar.web.history import GroupHistory
from trimtab.sidecar.web.recorded_stream import build_recorded_stream, encode_rates
from trimtab.sidecar.web.sample import HistorySample
from trimtab.sidecar.web.what_if_runner import WhatIfRunner
from trimtab.sidecar.web.what_if_settings import change_settings, describe_settings

A, B, C = (TopicPartition("t", n) for n in (1, 0, 2))
FACTS = json.dumps(
    {
        "moved": 1, "moved_rate": 50.0, "capacity": 100.0, "handovers": [["t", 0, 0.5]],
        "metrics": {"running_replicas": 2},
    }
)  # fmt: skip


def settings(**changes: Any) -> SidecarSettings:
    given = {"bootstrap": "b:1", "group": "lake", "capacity": CAPACITY, "headroom": 0.8, "max": 20}
    return load_settings(None, {**given, **changes})


def sample(time: float, **rates: float | None) -> HistorySample:
    names = {"a": A, "b": B, "c": C}
    loads = {names[n]: PartitionLoad(bytes_per_s=rate) for n, rate in rates.items()}
    return HistorySample(1, time, FACTS, rates=encode_rates({A: 0, B: 1, C: 2}, loads, 100.0))


def test_gaps_and_unknown_rates_are_filled() -> None:
    """A missing sample repeats the one before; an unknown rate is the last known; partitions are sorted."""
    samples = [
        sample(0, a=10, b=None), sample(10, a=None, b=40),
        sample(20, a=30, b=50), sample(50, a=60, b=70, c=80),
    ]  # fmt: skip
    recorded = build_recorded_stream([A, B, C], samples, 100.0)
    assert recorded is not None
    assert recorded.stream.partitions == (B, A, C)
    expected = [*[[40, 10, np.nan]] * 2, *[[50, 30, np.nan]] * 3, [70, 60, 80]]
    np.testing.assert_allclose(recorded.stream.rates, expected, rtol=0.022)
    assert (recorded.tick, recorded.seconds, recorded.moves, recorded.moved_consumers) == (10, 60, 4, 2.0)
    assert recorded.consumer_hours == pytest.approx(2 * 60 / 3600)
    assert recorded.pause == 0.5


def test_too_little_is_no_stream() -> None:
    """Two samples, or rates that are all unknown, are no stream."""
    assert build_recorded_stream([A, B, C], [sample(0, a=1), sample(10, a=1)], 100.0) is None
    assert build_recorded_stream([A, B, C], [sample(n, a=None) for n in (0, 10, 20)], 100.0) is None


@pytest.mark.parametrize(
    ("given", "query", "heuristic", "lines"),
    [
        ({}, {"lambda": "1.25"}, "steady:1.25", ("heuristic: steady:1.25",)),
        ({"move-cost": "15 s"}, {"lambda": "2"}, "steady:2", ("move-cost: 60 s",)),
        ({}, {"heuristic": "mwf"}, "mwf", ("heuristic: mwf",)),
        (
            {"move-cost": "15 s"}, {"heuristic": "mwf", "max": "7"}, "mwf",
            ("heuristic: mwf", "# and take move-cost out", "max: 7"),
        ),
        (
            {"heuristic": "steady:calm:rack_cost=0.5"}, {"lambda": "1"}, "steady:1:rack_cost=0.5",
            ("heuristic: steady:1:rack_cost=0.5",),
        ),
        ({}, {"headroom": "0.7"}, "steady", ("headroom: 0.7",)),
    ],
)  # fmt: skip
def test_changes_are_lines_of_a_settings_file(
    given: dict[str, Any], query: dict[str, str], heuristic: str, lines: tuple[str, ...]
) -> None:
    """A change has the effect of the lines that the page offers to copy."""
    changed, shown = change_settings(settings(**given), query)
    assert changed.effective_heuristic == heuristic
    assert shown == lines


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({"min": "5", "max": "3"}, "min=5 is above max=3"),
        ({"headroom": "2"}, "headroom=2"),
        ({"headroom": "x"}, "headroom='x': write a number"),
        ({"max": "2.5"}, "max='2.5': write a whole number"),
        ({"lambda": "0"}, "steady:0"),
        ({"heuristic": "nix"}, "nix"),
    ],
)
def test_a_wrong_setting_is_named(query: dict[str, str], text: str) -> None:
    """Settings that contradict each other, or do not exist, are named."""
    with pytest.raises(TrimtabError, match=text.replace("[", r"\[")):
        change_settings(settings(), query)


def record_history(iterations: int) -> GroupHistory:
    history, source = GroupHistory(RecordTerms("lake", 10.0, CAPACITY, 0.8)), ReportSource(20, 4)
    for _ in range(iterations):
        history(source.next_report())
    return history


def test_less_headroom_needs_more_consumers() -> None:
    """The closed loop is simulated under each policy; half the headroom costs more consumer-hours."""
    recorded = record_history(12).build_recorded_stream()
    assert recorded is not None
    changed = (change_settings(settings(), {"headroom": h})[0] for h in ("0.8", "0.4"))
    policies = tuple(one.autoscaling_policy for one in changed)
    progress: list[float] = []
    given = ComparisonInput(recorded.stream, recorded.begin, 10.0, policies, 0.1, late=15.0, startup=5.0)
    full, half = compare_policies(given, progress.append)
    assert half.consumer_hours > full.consumer_hours
    assert progress[-1] == 1.0
    assert full.changes[0][0] == 0


def test_a_question_is_answered_in_a_process() -> None:
    """An answer has both simulations beside what was recorded; another question ends the one before."""
    runner = WhatIfRunner(settings(), SystemClock(), record_history(8))
    try:
        assert runner.ask({})["present"] == describe_settings(settings())
        assert runner.ask({"headroom": "0.5"})["state"] == "running"
        abandoned = runner._simulation  # pyright: ignore[reportPrivateUsage]
        deadline = monotonic() + 120
        while (answer := runner.ask({"lambda": "1.25"}))["state"] == "running" and monotonic() < deadline:
            sleep(0.05)
        assert answer["state"] == "done"
        assert answer["settings"] == ("heuristic: steady:1.25",)
        assert answer["recorded"]["partitions"] == 20
        assert answer["present"]["consumer_hours"] > 0
        assert abandoned is not None
        assert not abandoned.process.is_alive()
        assert runner.ask({"min": "9", "max": "2"})["state"] == "failed"
    finally:
        runner.close()


def test_nothing_recorded_is_told() -> None:
    """Before the first iterations there is nothing to simulate."""
    answer = WhatIfRunner(settings(), SystemClock(), record_history(0)).ask({"max": "3"})
    assert answer["state"] == "failed"
    assert "nothing is recorded yet" in answer["error"]
