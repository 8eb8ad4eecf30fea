"""Spans of a lake writer: links to a batch's producers, stage and commit below it, failures without text."""

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from support.recorded_spans import record_spans
from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import TransformError
from trimtab.consumer_sdk.lake.commits.retry import RetryBackoff
from trimtab.consumer_sdk.lake.flush.flush import BatchCommitted, BatchRefused, FlushBatch, TableWrite
from trimtab.consumer_sdk.lake.flush.flush_spans import FlushSpans
from trimtab.consumer_sdk.lake.flush.otel_flush_spans import link_producers
from trimtab.consumer_sdk.lake.flush.span_factory import open_flush_spans
from trimtab.consumer_sdk.lake.model.interfaces import StagedFiles
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets, OffsetConflict, OffsetSpan
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_SCHEMA

P = TopicPartition("orders", 3)
BACKOFF: Any = RetryBackoff(random.Random(1))  # noqa: S311 - unused by these runs
PRIVATE = b"private-text-of-a-record"


def batch_of(count: int, header: Callable[[int], list[tuple[str, bytes]] | None]) -> FlushBatch:
    rows = [
        {"topic": "orders", "partition": 3, "offset": n, "value": PRIVATE, "headers": header(n)}
        for n in range(count)
    ]
    return FlushBatch("lake.orders", {P: OffsetSpan(0, 0, count)}, pa.Table.from_pylist(rows, RECORD_SCHEMA))


def sampled(number: int) -> list[tuple[str, bytes]]:
    return [("traceparent", b"00-%032x-%016x-01" % (number + 1, number + 1)), ("token", PRIVATE)]


def flush(batch: FlushBatch, run: Callable[..., Any]) -> tuple[ReadableSpan, ...]:
    """Run one flush with spans on; return the spans that ended, the flush's last."""
    recorder = record_spans()
    spans = open_flush_spans("lake", enabled=True)
    spans.trace_run(run)(batch, BACKOFF)
    return recorder.get_finished_spans()


def committed(batch: FlushBatch, _: RetryBackoff) -> BatchCommitted:
    return BatchCommitted(batch, (TableWrite("lake.orders", batch.records.num_rows, 100),))


def test_a_batch_of_100_000_records_has_64_links() -> None:
    """The links are spread over the batch; the span says to how many producers there were."""
    (span,) = flush(batch_of(100_000, sampled), committed)
    assert span.attributes is not None
    assert len(span.links) == 64
    offsets = [int((link.attributes or {})["messaging.kafka.offset"]) for link in span.links]
    assert offsets == sorted(set(offsets))
    assert offsets[-1] - offsets[0] > 95_000
    assert [link.context.trace_id - 1 for link in span.links] == offsets
    assert span.attributes["trimtab.producer_contexts"] == 10_000
    assert span.attributes["messaging.batch.message_count"] == 100_000
    assert span.parent is None


@pytest.mark.parametrize("batch", [batch_of(5, lambda _: None), batch_of(5, lambda _: [("token", PRIVATE)])])
def test_records_without_a_context_make_no_link(batch: FlushBatch) -> None:
    """Records without headers, or with other ones only."""
    (span,) = flush(batch, committed)
    assert span.links == ()


def test_the_few_records_with_a_context_are_found() -> None:
    """Three of 30,000 records have a context, one of which is of a trace that nothing exports."""
    parents = {17: b"1", 20_000: b"1", 29_999: b"0"}
    headers = {
        n: [("traceparent", b"00-%032x-%016x-0%s" % (n, n, flag)), ("tracestate", b"a=b")]
        for n, flag in parents.items()
    }
    links, count = link_producers(batch_of(30_000, headers.get).records)
    assert count == 2
    assert [link.context.trace_id for link in links] == [17, 20_000]
    assert dict(links[0].context.trace_state) == {"a": "b"}


def test_a_flush_tells_what_it_wrote() -> None:
    """Attributes by the messaging conventions, and an event for each commit; nothing of a record."""
    (span,) = flush(batch_of(4, sampled), committed)
    assert span.name == "flush orders"
    assert span.kind is trace.SpanKind.CONSUMER
    assert dict(span.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "flush",
        "messaging.operation.type": "process",
        "messaging.consumer.group.name": "lake",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "3",
        "messaging.batch.message_count": 4,
        "trimtab.offsets": ("orders/3: 0-3",),
        "trimtab.producer_contexts": 4,
        "trimtab.lake.table": "lake.orders",
        "trimtab.flush.outcome": "committed",
    }
    (event,) = span.events
    assert dict(event.attributes or {})["trimtab.lake.rows"] == 4
    assert PRIVATE.decode() not in span.to_json()


def test_refused_and_cancelled_batches_are_told_apart() -> None:
    """A refused batch is an error with the offsets; a cancelled one is none."""
    conflict = OffsetConflict(P, 0, 7)
    (refused,) = flush(batch_of(4, sampled), lambda batch, _: BatchRefused(batch, {P: 7}, (conflict,)))
    assert (refused.attributes or {})["trimtab.flush.outcome"] == "refused"
    assert refused.status.status_code is StatusCode.ERROR
    (cancelled,) = flush(batch_of(4, sampled), lambda batch, _: BatchRefused(batch, {P: 0}))
    assert (cancelled.attributes or {})["trimtab.flush.outcome"] == "cancelled"
    assert cancelled.status.status_code is StatusCode.UNSET


def test_an_error_has_its_kind_and_not_its_text() -> None:
    """The text of an error may quote a record."""

    def fail(*_: Any) -> None:
        raise TransformError(PRIVATE.decode())

    recorder = record_spans()
    with pytest.raises(TransformError):
        open_flush_spans("lake", enabled=True).trace_run(fail)(batch_of(1, sampled), BACKOFF)
    (span,) = recorder.get_finished_spans()
    assert (span.attributes or {})["error.type"] == "TransformError"
    assert span.status.status_code is StatusCode.ERROR
    assert PRIVATE.decode() not in span.to_json()


def test_stage_and_commit_are_below_the_flush_and_the_offsets_follow() -> None:
    """One trace from the batch to Kafka's offsets, which another thread commits later."""
    recorder = record_spans()
    spans = open_flush_spans("lake", enabled=True)
    staged = StagedFiles("attempt", (), 4, 100)
    table = SimpleNamespace(name="lake.orders", stage_rows=lambda *_: staged, commit=lambda *_, **__: None)
    plain: Any = SimpleNamespace(
        open_table=lambda _: table, create_table=lambda *_: table, close=lambda: "end"
    )
    lake: Any = spans.trace_lake(plain)

    def run(batch: FlushBatch, backoff: RetryBackoff) -> BatchCommitted:
        opened = lake.open_table("lake.orders")
        files = opened.stage_rows(None, "attempt")
        opened.commit(files, CommittedOffsets(), None, gaps=None)
        return committed(batch, backoff)

    spans.trace_run(run)(batch_of(4, sampled), BACKOFF)
    with spans.continue_batch("lake.orders"), trace.get_tracer("test").start_as_current_span("offsets"):
        pass
    with spans.continue_batch("lake.orders"):  # of a batch that another writer has: a trace of its own
        assert not trace.get_current_span().get_span_context().is_valid
    by_name = {span.name: span for span in recorder.get_finished_spans()}
    assert set(by_name) == {"stage lake.orders", "commit lake.orders", "flush orders", "offsets"}
    parent = by_name["flush orders"].context
    assert parent is not None
    for name in ("stage lake.orders", "commit lake.orders", "offsets"):
        assert by_name[name].parent is not None
        assert by_name[name].parent.span_id == parent.span_id
    assert (by_name["stage lake.orders"].attributes or {})["trimtab.lake.rows"] == 4
    assert lake.close() == "end"


def test_off_changes_neither_lake_nor_flush() -> None:
    """The writer calls the same functions as without this code."""
    spans = open_flush_spans("lake", enabled=False)
    assert type(spans) is FlushSpans
    lake: Any = object()
    assert spans.trace_lake(lake) is lake
    assert spans.trace_run(committed) is committed
    with spans.continue_batch("lake.orders"):
        pass
