"""A flush that is measured: how long it took, what the tables got, how fresh the rows are.

The clock is read on the stager's thread, when the commit has just returned: that is when the rows
can be seen, whenever the application's loop comes to hear of it.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from trimtab.common.clock import Clock
from trimtab.consumer_sdk.lake.metrics import Meters
from trimtab.consumer_sdk.lake.offsets.table_offsets import lost
from trimtab.consumer_sdk.lake.ports import Records
from trimtab.consumer_sdk.lake.retry import Pace
from trimtab.consumer_sdk.lake.writer.flush import Batch, Landed, Outcome

Run: TypeAlias = Callable[[Batch, Pace], Outcome]


def metered(run: Run, meters: Meters, clock: Clock) -> Run:
    """Return a flush that tells the meters what has landed."""

    def measured(batch: Batch, pace: Pace) -> Outcome:
        begun = clock.monotonic()
        outcome = run(batch, pace)
        if isinstance(outcome, Landed):
            meters.flushed(batch.table, clock.monotonic() - begun)
            meters.landed(batch.table, ages(batch.records, clock.wall()))
            for written in outcome.tables:
                meters.wrote(written.table, written.rows, written.bytes)
            for partition, gaps in lost(batch.spans).items():
                meters.lost(partition, sum(gap.offsets for gap in gaps))
        return outcome

    return measured


def ages(records: Records, now: float) -> NDArray[np.float64]:
    """Return how old each record is, in seconds; those without a timestamp are left out."""
    stamps = records.column("timestamp").drop_null().cast("int64")
    return now - np.asarray(stamps) / 1e6
