"""The simulated lake keeps the table formats' contract, except for the formats themselves."""

import inspect
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from contract import test_lake_table as contract
from simulation.lake import Lake, Table
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_SCHEMA
from trimtab.testing.simulation import green

HELD = (
    contract.test_a_missing_table_is_none,
    contract.test_creating_a_table_twice_returns_the_existing_one,
    contract.test_rows_and_offsets_are_committed_together,
    contract.test_offsets_can_be_committed_without_rows,
    contract.test_gaps_and_offsets_are_committed_together,
    contract.test_offsets_that_changed_since_they_were_read_refuse_the_commit,
    contract.test_the_history_contains_the_committed_attempts,
    contract.test_a_surplus_column_is_named,
)


@pytest.mark.parametrize("promise", HELD, ids=lambda promise: promise.__name__)
def test_the_simulated_lake_keeps_the_contract(promise: Callable[..., None]) -> None:
    """The contract tests of the real table formats pass on the simulated one."""
    hub = green.Hub(1)
    died: list[BaseException | None] = []
    process = green.Process(hub, "test")
    process.on_death = died.append
    process.start(lambda: promise(**_given(hub, promise)), main=True)
    assert hub.run(60)
    assert died == [None]


def _count(table: Table) -> int:
    return table.content.count()


def _given(hub: green.Hub, promise: Callable[..., None]) -> dict[str, Any]:
    lake = Lake(hub)

    def frame(rows: int) -> Any:
        offsets = [{"topic": "t", "partition": 0, "offset": n, "value": b""} for n in range(rows)]
        return lake.to_frame(pa.Table.from_pylist(offsets, schema=RECORD_SCHEMA))

    wanted = inspect.signature(promise).parameters
    given: dict[str, Any] = {"formats": lake, "namespace": "n", "frame": frame, "count": _count}
    if "table" in wanted:
        given["table"] = lake.create_table("n.t", frame(0))
    return {name: given[name] for name in wanted}
