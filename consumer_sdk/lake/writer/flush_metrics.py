"""A flush that is measured: how long it took, what the tables got, how fresh the rows are.

The clock is read on the stager's thread, when the commit has just returned: that is when the rows
can be seen, whenever the application's loop comes to hear of it.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from trimtab.common.clock import Clock
from trimtab.consumer_sdk.lake.metrics import LakeMetrics
from trimtab.consumer_sdk.lake.offsets.table_offsets import gaps_before
from trimtab.consumer_sdk.lake.ports import Records
from trimtab.consumer_sdk.lake.retry import RetryBackoff
from trimtab.consumer_sdk.lake.writer.flush import BatchCommitted, FlushBatch, FlushOutcome

FlushRun: TypeAlias = Callable[[FlushBatch, RetryBackoff], FlushOutcome]


def with_flush_metrics(run: FlushRun, metrics: LakeMetrics, clock: Clock) -> FlushRun:
    """Return a flush that tells the meters what has landed."""

    def measured(batch: FlushBatch, pace: RetryBackoff) -> FlushOutcome:
        begun = clock.monotonic()
        outcome = run(batch, pace)
        if isinstance(outcome, BatchCommitted):
            metrics.observe_flush(batch.table, clock.monotonic() - begun)
            metrics.observe_freshness(batch.table, record_ages(batch.records, clock.wall()))
            for written in outcome.table_writes:
                metrics.count_written(written.table, written.rows, written.bytes)
            for partition, gaps in gaps_before(batch.spans).items():
                metrics.count_lost(partition, sum(gap.offset_count for gap in gaps))
        return outcome

    return measured


def record_ages(records: Records, now: float) -> NDArray[np.float64]:
    """Return how old each record is, in seconds; those without a timestamp are left out."""
    stamps = records.column("timestamp").drop_null().cast("int64")
    return now - np.asarray(stamps) / 1e6
