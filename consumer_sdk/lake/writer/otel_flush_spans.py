"""A lake writer's spans by OpenTelemetry: flush (process) of a batch, and below it stage, commit and settle.

A batch has many producers: its span begins a trace, and links to theirs (`common.telemetry.spans`).
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final, cast

import numpy as np
import pyarrow.compute as pc
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode, Tracer

from trimtab.common.telemetry import spans
from trimtab.common.telemetry.otel_export import ensure_tracing
from trimtab.consumer_sdk.lake.interfaces import Frame, Lake, LakeTable, Records, StagedFiles
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets, describe_conflicts
from trimtab.consumer_sdk.lake.retry import RetryBackoff
from trimtab.consumer_sdk.lake.schema.partition_spec import PartitionSpec
from trimtab.consumer_sdk.lake.writer.flush import BatchCommitted, FlushBatch, FlushOutcome, FlushRun
from trimtab.consumer_sdk.lake.writer.flush_spans import FlushSpans
from trimtab.consumer_sdk.telemetry.otel_consumer_spans import SERVICE, build_links, mark_failure, set_failed

TABLE: Final = "trimtab.lake.table"
OUTCOME: Final = "trimtab.flush.outcome"
ROWS: Final = "trimtab.lake.rows"
BYTES: Final = "trimtab.lake.bytes"
_COMPUTE: Final[Any] = pc  # pyarrow ships no types of its functions


class OtelFlushSpans(FlushSpans):
    """Spans of one writer. Raises SettingError for an exporter that is not installed."""

    def __init__(self, group: str) -> None:
        ensure_tracing(SERVICE)
        self._group = group
        self._tracer = spans.get_tracer()
        self._contexts: dict[str, otel_context.Context] = {}  # of the last batch, by table

    def trace_lake(self, lake: Lake) -> Lake:
        """Return the lake with spans of staging and commits."""
        return cast("Lake", _TracedLake(lake, self._tracer))  # by __getattr__ it has all methods

    def trace_run(self, run: FlushRun) -> FlushRun:
        """Return the flush function with a span of each batch."""

        def run_traced(batch: FlushBatch, backoff: RetryBackoff) -> FlushOutcome:
            with self._trace_batch(batch) as span:
                outcome = run(batch, backoff)
                _describe_outcome(span, outcome)
                return outcome

        return run_traced

    @contextmanager
    def continue_batch(self, table: str) -> Generator[None]:
        """Return a block that belongs to the last batch of a table."""
        token = otel_context.attach(self._contexts.pop(table, otel_context.Context()))
        try:
            yield
        finally:
            otel_context.detach(token)

    @contextmanager
    def _trace_batch(self, batch: FlushBatch) -> Generator[trace.Span]:
        place = spans.describe_place(batch.spans)
        links, contexts = link_producers(batch.records)
        with _trace(
            self._tracer,
            spans.name_span("flush", place),
            {
                **spans.describe_operation("flush", "process", self._group),
                **place,
                spans.MESSAGE_COUNT: batch.records.num_rows,
                spans.OFFSETS: spans.list_ranges(
                    {p: f"{s.first}-{s.next - 1}" for p, s in batch.spans.items()}
                ),
                spans.PRODUCER_CONTEXTS: contexts,
                TABLE: batch.table,
            },
            links,
        ) as span:
            self._contexts[batch.table] = otel_context.get_current()
            yield span


class _TracedLake:
    """A lake whose tables have spans."""

    def __init__(self, lake: Lake, tracer: Tracer) -> None:
        self._lake = lake
        self._tracer = tracer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lake, name)

    def open_table(self, name: str) -> LakeTable | None:
        table = self._lake.open_table(name)
        return None if table is None else _as_table(_TracedTable(table, self._tracer))

    def create_table(self, name: str, frame: Frame, partition_spec: PartitionSpec = ()) -> LakeTable:
        with _trace(self._tracer, f"create {name}", {TABLE: name}):
            return _as_table(_TracedTable(self._lake.create_table(name, frame, partition_spec), self._tracer))


class _TracedTable:
    """A table with a span of each try to stage rows and to commit them."""

    def __init__(self, table: LakeTable, tracer: Tracer) -> None:
        self._table = table
        self._tracer = tracer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def stage_rows(self, frame: Frame, attempt: str) -> StagedFiles:
        with _trace(self._tracer, f"stage {self._table.name}", {TABLE: self._table.name}) as span:
            staged = self._table.stage_rows(frame, attempt)
            span.set_attributes({ROWS: staged.rows, BYTES: staged.bytes})
            return staged

    def commit(self, staged: StagedFiles, offsets: CommittedOffsets, *more: Any, **named: Any) -> None:
        attributes = {TABLE: self._table.name, ROWS: staged.rows, BYTES: staged.bytes}
        with _trace(self._tracer, f"commit {self._table.name}", attributes):
            self._table.commit(staged, offsets, *more, **named)


def link_producers(records: Records) -> tuple[list[Link], int]:
    """Return links to the contexts in the records' headers, and how many contexts there were.

    `common.telemetry.spans` has the bounds.
    """
    headers = records.column("headers")
    with_headers = np.flatnonzero(np.asarray(headers.is_valid()))
    if not len(with_headers):
        return [], 0
    rows = spans.spread_evenly(range(len(with_headers)), spans.MAX_SCANNED_RECORDS)
    scanned = records.select(["partition", "offset", "headers"]).take(with_headers[np.asarray(rows)])
    parents = _COMPUTE.map_lookup(scanned.column("headers"), spans.TRACEPARENT, "last").to_pylist()
    chosen = spans.choose_producers(parents)
    linked = spans.spread_evenly(chosen, spans.MAX_LINKS)
    picked = scanned.take(np.asarray(linked, np.int64))
    states = _COMPUTE.map_lookup(picked.column("headers"), spans.TRACESTATE, "last").to_pylist()
    places = (picked.column(name).to_pylist() for name in ("partition", "offset"))
    return build_links(zip([parents[i] for i in linked], states, *places, strict=True)), len(chosen)


@contextmanager
def _trace(
    tracer: Tracer, name: str, attributes: dict[str, Any], links: list[Link] | None = None
) -> Generator[trace.Span]:
    kind = SpanKind.INTERNAL if links is None else SpanKind.CONSUMER
    with (
        tracer.start_as_current_span(
            name,
            kind=kind,
            attributes=attributes,
            links=links,
            record_exception=False,  # its text may quote a record
            set_status_on_exception=False,
        ) as span,
        mark_failure(span),
    ):
        yield span


def _describe_outcome(span: trace.Span, outcome: FlushOutcome) -> None:
    if isinstance(outcome, BatchCommitted):
        span.set_attribute(OUTCOME, "committed")
        for write in outcome.table_writes:
            span.add_event("committed", {TABLE: write.table, ROWS: write.rows, BYTES: write.bytes})
        return
    if outcome.error is not None:
        set_failed(span, outcome.error)
        return
    reason = describe_conflicts(outcome.conflicts)
    span.set_attribute(OUTCOME, "refused" if reason else "cancelled")
    if reason:  # offsets only
        span.set_status(Status(StatusCode.ERROR, reason))


def _as_table(table: Any) -> LakeTable:
    return cast("LakeTable", table)  # by __getattr__ it has all methods
