"""The demo's proof on a real table: Spark finds lost, duplicate and corrupt records."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.cli.demo.producers import PartitionTally, make_record
from trimtab.cli.demo.proof import DeliveryProof, prove_delivery, read_stored_partitions
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets

pytestmark = pytest.mark.spark

WHERE = TopicPartition("orders", 3)
COUNT = 20
SCHEMA = "topic string, partition int, offset bigint, key binary, value binary"


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    """The expected content of a table."""
    rng = random.Random(7)  # noqa: S311 - filler
    records = [make_record(WHERE, n, 200, rng) for n in range(COUNT)]
    return [
        {**WHERE._asdict(), "offset": n, "key": record.key, "value": record.value}
        for n, record in enumerate(records)
    ]


@pytest.fixture
def check(lake: Any, namespace: str) -> Callable[[list[dict[str, Any]]], DeliveryProof]:
    """Write rows into a table and prove it against the expected ones."""
    rng = random.Random(7)  # noqa: S311 - filler
    sums = sum(make_record(WHERE, n, 200, rng).checksum for n in range(COUNT))

    def run(found: list[dict[str, Any]]) -> DeliveryProof:
        frame = lake.spark.createDataFrame(found, SCHEMA)
        table = lake.create_table(f"{namespace}.orders", frame)
        table.commit(table.stage_rows(frame, "a"), CommittedOffsets(), table.read_offsets())
        held = read_stored_partitions(lake, [table.name, f"{namespace}.never_made"])
        return prove_delivery(held, {WHERE: COUNT}, {WHERE: PartitionTally(COUNT, sums)})

    return run


@pytest.mark.parametrize("lake", ["iceberg", "delta"], indirect=True)
def test_a_complete_table_passes(check: Callable[..., DeliveryProof], rows: list[dict[str, Any]]) -> None:
    """Every record once, in any order."""
    assert check(rows[::-1]).summary_line() == f"exactly once: {COUNT} records, 0 lost, 0 duplicated"


def test_a_lost_and_a_duplicate_record_are_found(
    check: Callable[..., DeliveryProof], rows: list[dict[str, Any]]
) -> None:
    """A row replaced by a copy of another: as many rows as records, one lost, one duplicate."""
    found = check([*rows[1:], rows[5]])
    assert (found.lost, found.duplicated, found.is_exactly_once) == (1, 1, False)


@pytest.mark.parametrize(
    "harm",
    [
        lambda row: {"value": row["value"][:50] + b"?" + row["value"][51:]},
        lambda row: {"value": row["value"][:-1]},
        lambda _: {"value": None},
        lambda _: {"key": b"orders-3-99"},
        lambda row: {"offset": row["offset"] + 1000},
        lambda _: {"partition": 4},
    ],
    ids=["a flipped byte", "cut short", "no value", "another's key", "moved", "elsewhere"],
)
def test_a_corrupt_record_is_found(
    check: Callable[..., DeliveryProof],
    rows: list[dict[str, Any]],
    harm: Callable[[dict[str, Any]], dict[str, Any]],
) -> None:
    """A row that differs from its record is corrupt."""
    found = check([*rows[:-1], rows[-1] | harm(rows[-1])])
    assert (found.corrupt, found.is_exactly_once) == (1, False)
