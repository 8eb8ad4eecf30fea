"""The demo's proof on a real table: what is lost, doubled or harmed is seen by Spark."""

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
    """What a table should hold."""
    rng = random.Random(7)  # noqa: S311 - filler
    records = [make_record(WHERE, n, 200, rng) for n in range(COUNT)]
    return [
        {**WHERE._asdict(), "offset": n, "key": record.key, "value": record.value}
        for n, record in enumerate(records)
    ]


@pytest.fixture
def check(lake: Any, namespace: str) -> Callable[[list[dict[str, Any]]], DeliveryProof]:
    """Write rows into a table and prove it against what was to be written."""
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
def test_all_is_well(check: Callable[..., DeliveryProof], rows: list[dict[str, Any]]) -> None:
    """Every record once, in any order: a good end."""
    assert check(rows[::-1]).summary_line() == f"exactly once: {COUNT} records, 0 lost, 0 duplicated"


def test_lost_and_doubled(check: Callable[..., DeliveryProof], rows: list[dict[str, Any]]) -> None:
    """One row in the place of another: as many rows as records, yet one lost, one doubled."""
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
def test_harm_is_seen(
    check: Callable[..., DeliveryProof],
    rows: list[dict[str, Any]],
    harm: Callable[[dict[str, Any]], dict[str, Any]],
) -> None:
    """A record that is not what was written at its place is corrupt."""
    found = check([*rows[:-1], rows[-1] | harm(rows[-1])])
    assert (found.corrupt, found.is_exactly_once) == (1, False)
