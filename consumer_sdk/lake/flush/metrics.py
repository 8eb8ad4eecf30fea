"""Prometheus metrics of the lake writer: rows, bytes, flushes, freshness of tables.

*Freshness* is the time from a record's timestamp to the return of the commit with its row. A record
without a timestamp does not count. All methods are thread-safe.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.errors import SettingError
from trimtab.common.http_server import (
    HEALTH_PATH,
    HTTP_OK,
    METRICS_PATH,
    NO_AUTH,
    AccessPolicy,
    HttpEndpoint,
    build_text_response,
)

# Up to a day: the records of a backlog are hours old.
FRESHNESS_BUCKETS_S: Final = (
    *(0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 45.0),
    *(60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 21_600.0, 86_400.0),
)
FLUSH_BUCKETS_S: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 20.0, 30.0, 60.0)


class VectorHistogram(Collector):
    """Histogram by table that observes many values at once: 100,000 in a millisecond."""

    def __init__(self, name: str, text: str, bounds: tuple[float, ...]) -> None:
        self._name = name
        self._text = text
        self._bounds = np.array(bounds)
        self._counts: dict[str, NDArray[np.int64]] = {}
        self._sums: dict[str, float] = {}
        self._lock = Lock()

    def observe(self, table: str, values: NDArray[np.float64]) -> None:
        """Count values; negative ones count as 0."""
        values = np.maximum(values, 0.0)  # a producer's clock may be ahead
        buckets = np.searchsorted(self._bounds, values)
        counts = np.bincount(buckets, minlength=len(self._bounds) + 1)
        with self._lock:  # the flush thread observes, the HTTP server's threads collect
            self._counts[table] = self._counts.get(table, 0) + counts
            self._sums[table] = self._sums.get(table, 0.0) + float(values.sum())

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Yield the histogram of every table."""
        family = HistogramMetricFamily(self._name, self._text, labels=["table"])
        names = [*(f"{bound:g}" for bound in self._bounds), "+Inf"]
        with self._lock:
            for table, counts in sorted(self._counts.items()):
                buckets = [(name, float(n)) for name, n in zip(names, counts.cumsum(), strict=True)]
                family.add_metric([table], buckets, self._sums[table])
        yield family


class LakeMetrics:
    """Metrics of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()  # not the default one: an application decides what it exposes
        self._rows = self._create_counter("trimtab_written_rows", "Rows added")
        self._bytes = self._create_counter("trimtab_written_bytes", "Bytes of the data files added")
        self._lost_records = Counter(
            "trimtab_lost_offsets",
            "Offsets that expired before they were read, so that tables lack them",
            ["topic", "partition"],
            registry=self.registry,
        )
        self._halted_partitions = Gauge(
            "trimtab_halted_partitions",
            "Owned partitions that are not read: by themselves, or with their table",
            ["topic"],
            registry=self.registry,
        )
        self._halted_tables = Gauge(
            "trimtab_halted_tables",
            "1 while a table is not written for an error of its own or an outage",
            ["table"],
            registry=self.registry,
        )
        self._flush_seconds = Histogram(
            "trimtab_flush_seconds",
            "From the start of a flush to the commit of the topic table",
            ["table"],
            buckets=FLUSH_BUCKETS_S,
            registry=self.registry,
        )
        self._freshness = VectorHistogram(
            "trimtab_freshness_seconds",
            "From a record's timestamp to the commit that makes its row visible",
            FRESHNESS_BUCKETS_S,
        )
        self.registry.register(self._freshness)
        self._leader_fallback = Gauge(
            "trimtab_leader_fallback",
            "1 if the last rebalance could not be decided by the plan, or by the leader's heuristic",
            registry=self.registry,
        )

    def watch_leader(self, read_fault: Callable[[], str]) -> None:
        """Export whether `read_fault` returns the fault of the last rebalance."""
        self._leader_fallback.set_function(lambda: float(bool(read_fault())))

    def count_written(self, table: str, rows: int, size: int) -> None:
        """Count rows and bytes added to a table."""
        self._rows.labels(table).inc(rows)
        self._bytes.labels(table).inc(size)

    def count_lost(self, partition: TopicPartition, offsets: int) -> None:
        """Count expired offsets that a table has recorded as a gap."""
        self._lost_records.labels(partition.topic, partition.partition).inc(offsets)

    def set_halted(self, topic: str, partitions: int) -> None:
        """Set the number of a topic's halted partitions."""
        self._halted_partitions.labels(topic).set(partitions)

    def set_table_halted(self, table: str, *, halted: bool) -> None:
        """Set whether a table is halted."""
        self._halted_tables.labels(table).set(float(halted))

    def observe_flush(self, table: str, duration_s: float) -> None:
        """Observe the duration of a flush."""
        self._flush_seconds.labels(table).observe(duration_s)

    def observe_freshness(self, table: str, ages_s: NDArray[np.float64]) -> None:
        """Observe the ages of a batch's records at the commit."""
        self._freshness.observe(table, ages_s)

    def _create_counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, ["table"], registry=self.registry)


@contextmanager
def serve_metrics(
    metrics: LakeMetrics, host: str, port: int, access: AccessPolicy = NO_AUTH
) -> Generator[str, None, None]:
    """Serve /metrics and /healthz while the block runs; yield the URL. Raises SettingError."""
    endpoint = HttpEndpoint(
        {
            METRICS_PATH: lambda: (HTTP_OK, CONTENT_TYPE_LATEST, generate_latest(metrics.registry)),
            HEALTH_PATH: lambda: build_text_response(HTTP_OK, "alive"),  # no token: probes have none
        }
    )
    try:
        bound_port = endpoint.start(host, port, access, "trimtab-metrics")
    except OSError as error:
        raise SettingError(
            f"trimtab.metrics.port: {host}:{port}: {error.strerror}; choose another one (0: a free one)"
        ) from error
    try:
        yield f"{access.scheme}://{host}:{bound_port}{METRICS_PATH}"
    finally:
        endpoint.stop()
