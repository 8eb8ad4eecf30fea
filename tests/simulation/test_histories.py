"""Simulated histories: CI runs a few, `make simulate-faults` thousands."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from history.anomalies import Kind
from simulation.broken import BROKEN, REPEATED_COMMITS, confirmation_not_awaited
from simulation.history import run

CLEAN = range(1, 81)
REPAIRED = (1458, 3244, 6005, 50643, 50776)
"""Seeds that found a defect of the group or of its checks, and that no range above has."""
FIRST = 1

FOUND_WITHIN = {
    "nothing_withheld": 20,
    "begun_before_the_release": 60,
    "commits_without_a_generation": 60,
    "lease_for_ever": 20,
    "table_offsets_not_compared": 20,
    "kafka_before_the_table": 20,
    "stopped_before_drained": 60,
    "losses_reported_before_a_join_only": 120,
    "gaps_not_recorded": 60,
    "read_on_after_leaving": 60,
    "aborted_records_handed_out": 20,
    "records_fetched_again": 20,
    "first_record_passed_over": 60,
    "one_partition_not_carried_out": 20,
    "repairs_move_owned_partitions": 60,
    "places_given_by_name": 120,
    "revision_ignored": 60,
    "first_change_of_a_key_counts": 20,
    "moved_rows_stay": 20,
}
"""Seeds that it may take to find each broken rule."""


@pytest.mark.parametrize("first", range(CLEAN.start, CLEAN.stop, 20))
def test_no_history_violates_an_invariant(first: int) -> None:
    """Exactly once, one owner, a group at rest: for any faults in any order."""
    wrong = {seed: result.wrong for seed in range(first, first + 20) if (result := run(seed)).wrong}
    assert wrong == {}, f"replay: make simulate-faults SEED={next(iter(wrong))} N=1"


@pytest.mark.parametrize("seed", REPAIRED)
def test_a_repaired_history_violates_no_invariant(seed: int) -> None:
    """What a history has found once stays repaired."""
    assert run(seed).wrong is None, f"replay: make simulate-faults SEED={seed} N=1"


@pytest.mark.parametrize("rule", sorted(BROKEN))
def test_a_broken_rule_is_found(rule: str) -> None:
    """The simulation proves a rule only if it finds its violation."""
    with BROKEN[rule]():
        assert any(run(seed).wrong for seed in range(FIRST, FIRST + FOUND_WITHIN[rule]))


def test_repeated_commits_violate_no_invariant() -> None:
    """A next owner's commits are not rewound by what the former one repeats, or by what takes effect late."""
    wrong = {seed: result.wrong for seed in range(1, 31) if (result := run(seed, repeats_commits=True)).wrong}
    assert wrong == {}


@pytest.mark.parametrize("rule", REPEATED_COMMITS, ids=lambda rule: rule.__name__)
def test_a_broken_fence_of_releases_is_found(rule: Callable[[], AbstractContextManager[Any]]) -> None:
    """Each half of it: the former owner's confirmation, and the next one's wait for it.

    A commit waits for a join for a second only, so one history of some hundred shows the second.
    """
    first = 260 if rule is confirmation_not_awaited else 1
    with rule():
        assert any(run(seed, repeats_commits=True).wrong for seed in range(first, first + 60))


SHOWN_AS = {
    "aborted_records_handed_out": Kind.ABORTED_READ,
    "records_fetched_again": Kind.NONMONOTONIC_POLL,
    "first_record_passed_over": Kind.POLL_SKIP,
    "table_offsets_not_compared": Kind.DUPLICATE,
    "gaps_not_recorded": Kind.LOST_WRITE,
}


@pytest.mark.parametrize("rule", sorted(SHOWN_AS))
def test_a_broken_rule_shows_as_its_anomaly(rule: str) -> None:
    """The history of what consumers and tables got has the class of the violation."""
    with BROKEN[rule]():
        seeds = range(FIRST, FIRST + FOUND_WITHIN[rule])
        assert any(SHOWN_AS[rule] in {anomaly.kind for anomaly in run(seed).anomalies} for seed in seeds)


def test_a_seed_gives_one_history() -> None:
    """Another process, with other hashes, gives the same events to the microsecond."""
    program = (
        "import logging; from simulation.history import run; from simulation import seams\n"
        "logging.disable(logging.CRITICAL)\n"
        "with seams.simulated(): print(run(3, tracing=True))"
    )
    output = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(Path(__file__).parents[1])},
    ).stdout
    assert output.strip() == str(run(3, tracing=True))
