"""The load on a database, and the comparison of its tables with their copies."""

import random
import re
from datetime import date

from debezium.__main__ import plan_round
from debezium.load import count_changed_rows, make_transaction
from debezium.sinks import count_differences


def test_a_load_has_all_kinds_of_changes() -> None:
    """Inserts, updates of rows and of keys, deletes, and TRUNCATEs where they are wanted."""
    chance = random.Random(1)  # noqa: S311 - test data
    lines = [line for _ in range(1000) for line in make_transaction(chance, has_note=False, truncates=True)]
    kinds = ("INSERT INTO", r"UPDATE \w+ SET name", r"UPDATE \w+ SET id", "DELETE FROM", "TRUNCATE")
    assert all(any(re.match(kind, line) for line in lines) for kind in kinds)
    assert not any("note" in line for line in lines)


def test_a_later_column_is_written_once_it_is_there() -> None:
    """A load that may not truncate does not."""
    chance = random.Random(1)  # noqa: S311 - test data
    lines = [line for _ in range(1000) for line in make_transaction(chance, has_note=True, truncates=False)]
    assert any("note = 'noted'" in line for line in lines)
    assert not any("TRUNCATE" in line for line in lines)


def test_changed_rows_are_counted_by_command_tags() -> None:
    """A TRUNCATE tells no number."""
    assert count_changed_rows(["INSERT 0 21", "UPDATE 3", "UPDATE 0", "DELETE 7", "TRUNCATE TABLE"]) == 31


def test_a_round_kills_every_part_and_adds_the_column_once() -> None:
    """Within the round, in the order of time."""
    chance = random.Random(1)  # noqa: S311 - test data
    plan = plan_round(chance, 10.0, adds_column=True)
    assert sorted(name for _, name in plan) == ["add column", "kill delta", "kill engine", "kill iceberg"]
    assert plan == sorted(plan)
    assert all(1.0 <= at <= 8.0 for at, _ in plan)


def test_rows_differ_by_value_and_by_number() -> None:
    """A changed row is one of either side; a row that is there twice is one too many."""
    one, other = {"id": 1, "day": date(2026, 1, 1)}, {"id": 1, "day": None}
    assert count_differences([one, other], [other, one]) == 0
    assert count_differences([one], [other]) == 2
    assert count_differences([one], [one, one]) == 1
    assert count_differences([one], []) == 1
