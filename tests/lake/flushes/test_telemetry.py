"""An ingest with telemetry, from records on a real broker to rows of a table: one trace, metrics and logs."""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import Producer
from opentelemetry.sdk.trace import ReadableSpan

from support.otlp_receiver import receive_otlp
from support.recorded_spans import record_spans
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.writer import ingest

pytestmark = [pytest.mark.spark, pytest.mark.broker]

COUNT = 50


def test_an_ingest_is_traced_from_its_producers_to_kafkas_offsets(
    lake: SparkLake,
    ingest_settings: dict[str, Any],
    eventually: Callable[..., None],
    rows: Callable[[str], list[Any]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The flush links to every producer; stage, commit and the offsets' commit are its children."""
    caplog.set_level(logging.INFO, "trimtab")
    recorder = record_spans()
    (topic,) = ingest_settings["topics"]
    produce(ingest_settings["bootstrap.servers"], topic)
    table = ingest_settings["lake.tables"][topic]
    config = ingest_settings | {"trimtab.telemetry": "true"}
    stop = threading.Event()
    with receive_otlp() as receiver:
        for name, value in receiver.environment.items():
            monkeypatch.setenv(name, value)
        running = threading.Thread(
            target=ingest.run_ingest, args=(ingest.parse_ingest_settings(config), lake, stop)
        )
        running.start()
        try:
            eventually(lambda: lake.open_table(table) and len(rows(table)) == COUNT, timeout=120)
        finally:
            stop.set()
            running.join(60)
    assert_batches_are_traced(recorder.get_finished_spans(), topic, table)
    written = receiver.newest_metrics()["trimtab_written_rows"].sum.data_points[0]
    assert written.as_double == COUNT
    texts = [record.body.string_value for record in receiver.log_records()]
    assert any(text.startswith(f"{table}: ") for text in texts)
    assert receiver.services() == {"trimtab-ingest"}


def produce(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for n in range(COUNT):
        parent = b"00-%032x-%016x-01" % (1000 + n % 5, 1)
        producer.produce(topic, b"v", b"k", n % 2, headers=[("traceparent", parent)])
    assert producer.flush(30) == 0


def assert_batches_are_traced(spans: Sequence[ReadableSpan], topic: str, table: str) -> None:
    flushes = [span for span in spans if span.name == f"flush {topic}"]
    linked = {link.context.trace_id for span in flushes for link in span.links}
    assert linked == set(range(1000, 1005))
    assert sum((span.attributes or {})["messaging.batch.message_count"] for span in flushes) == COUNT
    for flush in flushes:
        assert flush.context is not None
        trace = [s for s in spans if s.context is not None and s.context.trace_id == flush.context.trace_id]
        children = {
            s.name for s in trace if s.parent is not None and s.parent.span_id == flush.context.span_id
        }
        assert {f"stage {table}", f"commit {table}"} <= children
        assert any((s.attributes or {}).get("messaging.operation.type") == "settle" for s in trace)
    assert any(span.name.startswith("poll") for span in spans)
