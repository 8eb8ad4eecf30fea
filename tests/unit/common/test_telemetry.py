"""Telemetry: which producers a span links to, metrics as Prometheus shows them, logs, and its errors."""

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from support.otlp_receiver import OtlpReceiver, attributes_of, receive_otlp
from support.recorded_spans import record_spans
from trimtab.common.errors import SettingError
from trimtab.common.telemetry import export, otel_export, spans
from trimtab.common.telemetry.export import export_telemetry
from trimtab.common.telemetry.otel_metrics import convert_families, parse_milliseconds
from trimtab.consumer_sdk.lake.flush.metrics import VectorHistogram

SAMPLED = b"00-%032x-%016x-01"
UNSAMPLED = b"00-%032x-%016x-00"


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpReceiver]:
    with receive_otlp() as receiver:
        for name, value in receiver.environment.items():
            monkeypatch.setenv(name, value)
        yield receiver


def test_a_producers_context_counts_once_and_sampled_ones_first() -> None:
    """Records of one producer's span are one choice; contexts of which nothing was exported are none."""
    first, second, dropped = SAMPLED % (1, 1), SAMPLED % (2, 2), UNSAMPLED % (3, 3)
    assert spans.choose_producers([None, dropped, first, first, b"", second, first]) == [2, 5]
    assert spans.choose_producers([None, dropped, dropped]) == [1]
    assert spans.choose_producers([b"garbage", None]) == [0]  # parse_context refuses it


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 100_000])
def test_links_are_spread_and_bounded(count: int) -> None:
    """At most 64, in order, without repetition, over the whole batch."""
    chosen = list(spans.spread_evenly(range(count), spans.MAX_LINKS))
    assert len(chosen) == min(count, 64)
    assert chosen == sorted(set(chosen))
    assert not chosen or (chosen[0] == 0 and chosen[-1] >= count - 1 - count // 64)


@pytest.mark.parametrize(
    "header",
    [
        *(b"", b"garbage", b"\xff" * 55, b"00-" + b"0" * 32 + b"-" + b"1" * 16 + b"-01", b"00-" + b"g" * 52),
        *(b"ff-%032x-%016x-01" % (1, 1), SAMPLED % (1, 0), SAMPLED % (1, 1) + b"-more"),
    ],
)
def test_an_invalid_context_is_none(header: bytes) -> None:
    """Whatever a producer writes into the header, it is a W3C context or nothing."""
    assert spans.parse_context(header, None) is None


def test_a_context_keeps_its_state_unless_it_is_long() -> None:
    """`tracestate` is passed on up to the 512 bytes that W3C asks for."""
    context = spans.parse_context(SAMPLED % (5, 7), b"vendor=1")
    assert context is not None
    assert (context.trace_id, context.span_id, context.trace_flags, context.is_remote) == (5, 7, 1, True)
    assert dict(context.trace_state) == {"vendor": "1"}
    members = b",".join(b"vendor%d=%s" % (n, b"1" * 100) for n in range(6))  # each is valid
    long = spans.parse_context(SAMPLED % (5, 7), members)
    assert long is not None
    assert dict(long.trace_state) == {}


class WholeNumbers(Collector):
    """A gauge as the sidecar's: of whatever type the figure has."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield GaugeMetricFamily("replicas", "Replicas", value=2)


def fill_registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    counter = Counter("rows", "Rows", ["table"], registry=registry)
    counter.labels("a").inc(3)
    counter.labels("b").inc(5)
    registry.register(WholeNumbers())
    histogram = Histogram("flush_seconds", "Flush", ["table"], buckets=(1, 2), registry=registry)
    for seconds in (0.5, 1.5, 1.6, 9):
        histogram.labels("a").observe(seconds)
    vector = VectorHistogram("freshness_seconds", "Age", (1.0, 10.0))
    registry.register(vector)
    vector.observe("a", np.array([0.5, 0.6, 20.0]))
    Counter("unused", "Without samples", ["table"], registry=registry)
    return registry


def test_every_sample_of_metrics_is_exported() -> None:
    """OTLP has the values that /metrics shows, in its own form: nothing is missing, nothing else is there."""
    registry = fill_registry()
    shown = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
        if not sample.name.endswith("_created")
    }
    exported: dict[tuple[object, ...], float] = {}
    for metric in convert_families(registry.collect(), 1, 2):
        for point in metric.data.data_points:
            labels = sorted(point.attributes.items())
            if hasattr(point, "bucket_counts"):
                bounds = [*(str(float(bound)) for bound in point.explicit_bounds), "+Inf"]
                for bound, count in zip(bounds, np.cumsum(point.bucket_counts), strict=True):
                    shown_bound = bound if metric.name == "flush_seconds" else bound.removesuffix(".0")
                    key = (f"{metric.name}_bucket", *sorted([*labels, ("le", shown_bound)]))
                    exported[key] = float(count)
                exported[(f"{metric.name}_count", *labels)] = point.count
                exported[(f"{metric.name}_sum", *labels)] = point.sum
            else:
                suffix = "_total" if getattr(metric.data, "is_monotonic", False) else ""
                exported[(metric.name + suffix, *labels)] = point.value
                assert isinstance(point.value, float)  # else its type would change with its value
    assert exported == shown


def test_metrics_and_logs_reach_the_receiver(
    receiver: OtlpReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    """What goes over the wire has the service's name, the counters' sums, the log's text and its severity."""
    caplog.set_level(logging.INFO, "trimtab")
    record_spans()  # the application's own provider stays
    registry = fill_registry()
    with export_telemetry("trimtab-test", registry, "telemetry", enabled=True):
        logging.getLogger("trimtab.lake").warning("%s: batch refused", "orders")
        try:
            int("secret-in-an-error")
        except ValueError:
            logging.getLogger("trimtab.lake").exception("its flush failed")
        logging.getLogger("other").error("not ours")
    assert receiver.services() == {"trimtab-test"}
    rows = receiver.newest_metrics()["rows"]
    assert {attributes_of(p)["table"]: p.as_double for p in rows.sum.data_points} == {"a": 3, "b": 5}
    assert rows.sum.is_monotonic
    flush = receiver.newest_metrics()["flush_seconds"].histogram.data_points[0]
    assert list(flush.bucket_counts) == [1, 2, 1]
    assert not flush.HasField("min")
    found = {record.body.string_value: record for record in receiver.log_records()}
    assert set(found) == {
        "telemetry: exporting traces, metrics, logs",
        "orders: batch refused",
        "its flush failed",
    }
    assert found["orders: batch refused"].severity_text == "WARNING"
    assert attributes_of(found["its flush failed"]) == {"exception.type": "ValueError"}
    assert not any(b"secret-in-an-error" in body for body in receiver.raw)


def test_signals_are_switched_off_by_the_environment(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """OTEL_METRICS_EXPORTER=none sends no metrics, OTEL_SDK_DISABLED=true nothing at all."""
    caplog.set_level(logging.INFO, "trimtab")
    record_spans()
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    with export_telemetry("trimtab-test", fill_registry(), "telemetry", enabled=True):
        pass
    assert (len(receiver.metrics), len(receiver.logs)) == (0, 1)
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "otlp")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    with export_telemetry("trimtab-test", fill_registry(), "telemetry", enabled=True):
        logging.getLogger("trimtab").warning("nobody hears it")
    assert (len(receiver.metrics), len(receiver.logs)) == (0, 1)


def test_the_service_may_have_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win over our default."""
    name = "service.name"
    monkeypatch.delenv("OTEL_SERVICE_NAME", raising=False)
    assert otel_export.build_resource("trimtab-ingest").attributes[name] == "trimtab-ingest"
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=lake,team=a")
    assert otel_export.build_resource("trimtab-ingest").attributes[name] == "lake"
    monkeypatch.setenv("OTEL_SERVICE_NAME", "orders")
    assert otel_export.build_resource("trimtab-ingest").attributes[name] == "orders"


@pytest.mark.parametrize(
    ("variable", "value", "error"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "OTEL_EXPORTER_OTLP_PROTOCOL=http/json: write one of"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "x", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=x: write one of"),
        ("OTEL_TRACES_EXPORTER", "no-such", "OTEL_TRACES_EXPORTER asks for the exporter 'no-such', which is"),
    ],
)
def test_an_exporter_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, error: str
) -> None:
    """The error says which variable asks for it, and what to write or install."""
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingError, match=error):
        otel_export.create_exporters("traces")


def test_an_interval_is_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A word, or 0, is refused with the variable's name."""
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "soon")
    with pytest.raises(SettingError, match="OTEL_METRIC_EXPORT_INTERVAL=soon: write milliseconds above 0"):
        parse_milliseconds("OTEL_METRIC_EXPORT_INTERVAL", 60_000)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the packages the error names the setting and what to install."""
    monkeypatch.setattr(export, "find_spec", lambda _name: None)
    with (
        pytest.raises(SettingError, match=r"telemetry needs an extra: pip install 'trimtab\[otel\]'"),
        export_telemetry("trimtab-test", CollectorRegistry(), "telemetry", enabled=True),
    ):
        pass


def test_off_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """While telemetry is off its modules may be missing altogether."""
    monkeypatch.setitem(sys.modules, "trimtab.common.telemetry.otel_export", None)
    with export_telemetry("trimtab-test", CollectorRegistry(), "telemetry", enabled=False):
        pass
    assert Path(str(export.__file__)).name == "export.py"


def test_a_collector_that_does_not_answer_delays_the_end_by_seconds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Exporters would retry for a minute; what is left is given up, and the log says so."""
    record_spans()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(otel_export, "CLOSE_TIMEOUT_S", 0.05)
    with export_telemetry("trimtab-test", fill_registry(), "telemetry", enabled=True):
        logging.getLogger("trimtab").warning("a line")
    assert "the last export did not end within" in caplog.text
