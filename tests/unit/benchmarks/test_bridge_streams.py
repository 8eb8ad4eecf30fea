"""The reads of bench_bridge are compared with a replay that knows what each change does."""

import random
from importlib import import_module
from itertools import islice
from typing import Any

import pytest


@pytest.fixture
def streams(import_bench: Any) -> Any:
    """Return the module under test."""
    return import_bench("benchmarks.bridge_streams")


def test_each_kind_of_difference_is_counted(streams: Any) -> None:
    """A row is missing, older than the newest, twice there, or that of a deleted key."""
    old, (one, two) = streams.ChangedRow(0, 2, 2), (streams.ChangedRow(0, n, n) for n in (4, 5))
    cases = {
        (0, 0, 0): [(1, one), (2, two)],
        (1, 0, 0): [(1, one)],
        (0, 0, 1): [(1, old), (2, two)],
        (0, 1, 0): [(1, one), (1, one), (2, two)],
        (0, 1, 1): [(1, old), (1, one), (2, two)],
        (1, 0, 1): [(1, one), (3, old)],
    }
    for expected, rows in cases.items():
        assert tuple(streams.compare_rows({1: one, 2: two}, rows).values()) == expected


def test_the_replay_follows_updates_deletes_tombstones_and_moves(streams: Any) -> None:
    """The last change of a key counts; a row that moves leaves none at its old key."""

    def change(before: int | None, after: int | None) -> bytes:
        first, second = (None if key is None else {"id": key, "version": 7} for key in (before, after))
        return bytes(streams.encode_change({"op": "u", "before": first, "after": second}))

    values = [change(None, 1), change(None, 1), change(None, 2), change(2, None), None, change(1, 5)]
    rows: dict[int, Any] = {}
    for offset, value in enumerate(values):
        streams.apply_change(rows, 0, offset, import_module("benchmarks.harness").Record(0, value, b"2"))
    assert rows == {5: streams.ChangedRow(0, 5, 7)}


def test_drawn_changes_keep_each_key_in_one_partition(streams: Any) -> None:
    """Between partitions there is no order, so that a replay by partition could differ from the table."""
    rows: dict[int, Any] = {}
    records = list(islice(streams.draw_changes(random.Random(1), 40, 4), 400))  # noqa: S311 - no secret
    for offset, record in enumerate(records):
        streams.apply_change(rows, record.partition, offset, record)
        assert all(key % 4 == row.partition for key, row in rows.items())
    assert 20 < len(rows) < 40
    assert {record.value is None for record in records} == {True, False}
