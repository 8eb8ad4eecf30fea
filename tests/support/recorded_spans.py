"""Spans of the test process, recorded by the SDK's exporter in memory.

OpenTelemetry sets its global tracer provider once: tests share the recorder, and clear it first.
"""

from functools import cache

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


@cache
def _start_recorder() -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


def record_spans() -> InMemorySpanExporter:
    """Return the recorder without the spans of earlier tests."""
    recorder = _start_recorder()
    recorder.clear()
    return recorder
