"""The metrics of a Prometheus registry as OpenTelemetry's: what /metrics shows is what is exported.

Counters become monotonic sums, histograms explicit-bucket histograms, everything else gauges; all are
cumulative, as Prometheus is, and all values are doubles. The names are Prometheus's, counters without
`_total`, which a Prometheus that takes OTLP adds again.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from threading import Event, Thread
from typing import Any, Final, TypeAlias

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric as Family
from prometheus_client.samples import Sample

from trimtab.common.clock import SystemClock
from trimtab.common.errors import SettingError

SCOPE: Final = InstrumentationScope("trimtab")
CUMULATIVE: Final = AggregationTemporality.CUMULATIVE
INTERVAL_VARIABLE: Final = "OTEL_METRIC_EXPORT_INTERVAL"
TIMEOUT_VARIABLE: Final = "OTEL_METRIC_EXPORT_TIMEOUT"
_BOUND_LABEL: Final = "le"
Labels: TypeAlias = tuple[tuple[str, str], ...]


class RegistryExport:
    """Exports a registry each OTEL_METRIC_EXPORT_INTERVAL milliseconds, and when it is shut down.

    Not the SDK's reader: it takes metrics from the SDK's own instruments only.
    """

    def __init__(self, exporter: MetricExporter, registry: CollectorRegistry, resource: Resource) -> None:
        self._exporter = exporter
        self._registry = registry
        self._resource = resource
        self._started_at = _now_ns()
        self._interval_s = parse_milliseconds(INTERVAL_VARIABLE, 60_000) / 1000
        self._timeout_ms = parse_milliseconds(TIMEOUT_VARIABLE, 30_000)
        self._ending = Event()
        self._thread = Thread(target=self._run, name="trimtab-metrics-export", daemon=True)
        self._thread.start()

    def shutdown(self) -> None:
        """Export the last time, and end."""
        self._ending.set()
        self._thread.join()
        self._exporter.shutdown()

    def _run(self) -> None:
        ends = False
        while not ends:
            ends = self._ending.wait(self._interval_s)
            metrics = convert_families(self._registry.collect(), self._started_at, _now_ns())
            scope = ScopeMetrics(SCOPE, metrics, schema_url="")
            data = MetricsData([ResourceMetrics(self._resource, [scope], schema_url="")])
            self._exporter.export(data, timeout_millis=self._timeout_ms)


def parse_milliseconds(variable: str, default: float) -> float:
    """Return a time of the environment. Raises SettingError."""
    text = os.environ.get(variable) or str(default)
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if value <= 0:
        raise SettingError(f"{variable}={text}: write milliseconds above 0, like {default:g}")
    return value


def convert_families(families: Iterable[Family], started_at: int, now: int) -> list[Metric]:
    """Return the metrics that have samples; times are in ns since the epoch."""
    converted = [_convert_family(family, started_at, now) for family in families]
    return [metric for metric in converted if metric.data.data_points]


def _convert_family(family: Family, started_at: int, now: int) -> Metric:
    created = {
        _key(sample.labels): int(sample.value * 1e9)
        for sample in family.samples
        if sample.name == f"{family.name}_created"
    }
    data: Sum | Gauge | Histogram
    if family.type == "histogram":
        data = Histogram(_convert_histograms(family, created, started_at, now), CUMULATIVE)
    elif family.type == "counter":
        totals = [sample for sample in family.samples if sample.name == f"{family.name}_total"]
        points = [
            NumberDataPoint(s.labels, created.get(_key(s.labels), started_at), now, float(s.value))
            for s in totals
        ]
        data = Sum(points, CUMULATIVE, is_monotonic=True)
    else:
        data = Gauge([NumberDataPoint(s.labels, 0, now, float(s.value)) for s in family.samples])
    return Metric(family.name, family.documentation, family.unit, data)


def _convert_histograms(
    family: Family, created: Mapping[Labels, int], started_at: int, now: int
) -> list[HistogramDataPoint]:
    by_labels: dict[Labels, list[Sample]] = defaultdict(list)
    for sample in family.samples:
        if not sample.name.endswith("_created"):
            by_labels[_key(sample.labels)].append(sample)
    return [
        _build_histogram(family.name, dict(labels), samples, created.get(labels, started_at), now)
        for labels, samples in by_labels.items()
    ]


def _build_histogram(
    name: str, labels: Mapping[str, str], samples: Sequence[Sample], started_at: int, now: int
) -> HistogramDataPoint:
    buckets = sorted(
        (float(s.labels[_BOUND_LABEL]), int(s.value)) for s in samples if s.name == f"{name}_bucket"
    )
    counts = [count for _, count in buckets]  # cumulative, unlike OpenTelemetry's
    total = next((s.value for s in samples if s.name == f"{name}_sum"), 0.0)
    unknown: Any = None  # the least and the greatest value, which Prometheus does not keep
    return HistogramDataPoint(
        attributes=labels,
        start_time_unix_nano=started_at,
        time_unix_nano=now,
        count=counts[-1] if counts else 0,
        sum=total,
        bucket_counts=[count - below for count, below in zip(counts, [0, *counts], strict=False)],
        explicit_bounds=[bound for bound, _ in buckets[:-1]],  # the last one is infinite
        min=unknown,
        max=unknown,
    )


def _key(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted((name, value) for name, value in labels.items() if name != _BOUND_LABEL))


def _now_ns() -> int:
    return int(SystemClock().wall() * 1e9)
