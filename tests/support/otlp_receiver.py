"""A receiver of OTLP by HTTP: decodes what an exporter puts on the wire, by OpenTelemetry's own protocol."""

import gzip
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

REQUESTS: dict[str, Any] = {
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
}


@dataclass
class OtlpReceiver:
    """What has been received so far; `raw` are the bodies, uncompressed."""

    endpoint: str = ""
    traces: list[Any] = field(default_factory=list)
    metrics: list[Any] = field(default_factory=list)
    logs: list[Any] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)

    def receive(self, path: str, body: bytes) -> None:
        request = REQUESTS[path].FromString(body)
        self.raw.append(body)
        getattr(self, path.rpartition("/")[2]).append(request)

    def spans(self) -> list[Any]:
        """Return the spans, in the order of their export."""
        return _list_entries(self.traces, "spans", "spans")

    def newest_metrics(self) -> dict[str, Any]:
        """Return the metrics of the last export, by name."""
        return {metric.name: metric for metric in _list_entries(self.metrics[-1:], "metrics", "metrics")}

    def log_records(self) -> list[Any]:
        return _list_entries(self.logs, "logs", "log_records")

    def services(self) -> set[str]:
        """Return the names of the services that exported spans, metrics or logs."""
        resources = [one.resource for request in self.traces for one in request.resource_spans]
        resources += [one.resource for request in self.metrics for one in request.resource_metrics]
        resources += [one.resource for request in self.logs for one in request.resource_logs]
        return {str(attributes_of(resource)["service.name"]) for resource in resources}

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that send a process's telemetry here, soon."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_METRIC_EXPORT_INTERVAL": "200",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "OTEL_BLRP_SCHEDULE_DELAY": "100",
        }


@contextmanager
def receive_otlp() -> Iterator[OtlpReceiver]:
    """Yield a receiver at a free port of the loopback."""
    receiver = OtlpReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            receiver.receive(self.path, body)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()


def _list_entries(requests: Iterable[Any], signal: str, name: str) -> list[Any]:
    """Return the entries of every scope of every resource, in the order of their export."""
    return [
        entry
        for request in requests
        for resource in getattr(request, f"resource_{signal}")
        for scope in getattr(resource, f"scope_{signal}")
        for entry in getattr(scope, name)
    ]


def attributes_of(one: Any) -> dict[str, Any]:
    """Return the attributes of a span, link, event, data point or resource, in Python's types."""
    return {pair.key: _value_of(pair.value) for pair in one.attributes}


def _value_of(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value_of(one) for one in value.array_value.values]
    return getattr(value, kind)
