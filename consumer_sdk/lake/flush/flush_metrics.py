"""Metrics of a flush: duration, written rows and bytes, freshness, lost offsets."""

import numpy as np
from numpy.typing import NDArray

from trimtab.common.clock import Clock
from trimtab.consumer_sdk.lake.commits.retry import RetryBackoff
from trimtab.consumer_sdk.lake.flush.flush import BatchCommitted, FlushBatch, FlushOutcome, FlushRun
from trimtab.consumer_sdk.lake.flush.metrics import LakeMetrics
from trimtab.consumer_sdk.lake.model.interfaces import Records
from trimtab.consumer_sdk.lake.offsets.table_offsets import gaps_before


def with_flush_metrics(run: FlushRun, metrics: LakeMetrics, clock: Clock) -> FlushRun:
    """Return a flush function that records metrics of each committed batch."""

    def run_measured(batch: FlushBatch, backoff: RetryBackoff) -> FlushOutcome:
        started_at = clock.monotonic()
        outcome = run(batch, backoff)
        if isinstance(outcome, BatchCommitted):
            # On the flush thread, right after the commit: rows are visible from here on.
            metrics.observe_flush(batch.table, clock.monotonic() - started_at)
            metrics.observe_freshness(batch.table, record_ages(batch.records, clock.wall()))
            for written in outcome.table_writes:
                metrics.count_written(written.table, written.rows, written.bytes)
            for partition, gaps in gaps_before(batch.spans).items():
                metrics.count_lost(partition, sum(gap.offset_count for gap in gaps))
        return outcome

    return run_measured


def record_ages(records: Records, now: float) -> NDArray[np.float64]:
    """Return the ages in seconds of the records that have a timestamp; `now` is a wall clock."""
    stamps = records.column("timestamp").drop_null().cast("int64")  # microseconds
    return now - np.asarray(stamps) / 1e6
