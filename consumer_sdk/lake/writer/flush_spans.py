"""Interface of a lake writer's spans; this implementation does nothing, for `trimtab.telemetry: false`."""

from contextlib import AbstractContextManager

from trimtab.consumer_sdk.lake.interfaces import Lake
from trimtab.consumer_sdk.lake.writer.flush import FlushRun
from trimtab.consumer_sdk.telemetry.consumer_spans import NOTHING


class FlushSpans:
    """Spans of one writer: batches, and what they stage and commit."""

    def trace_lake(self, lake: Lake) -> Lake:
        """Return the lake with spans of staging and commits."""
        return lake

    def trace_run(self, run: FlushRun) -> FlushRun:
        """Return the flush function with a span of each batch."""
        return run

    def continue_batch(self, table: str) -> AbstractContextManager[None]:
        """Return a block that belongs to the last batch of a table."""
        del table
        return NOTHING
