"""OpenTelemetry's providers of a process, built from the OTEL_* environment variables.

1. The application's own tracer provider, if it has set one, stays; otherwise ours becomes the global one.
2. OTEL_TRACES_EXPORTER, OTEL_METRICS_EXPORTER and OTEL_LOGS_EXPORTER choose an exporter by the name of its
   entry point, `otlp` by default; `none` switches a signal off, OTEL_SDK_DISABLED=true all of them.
3. OTLP is sent by HTTP. OTEL_EXPORTER_OTLP_PROTOCOL=grpc needs the package of that exporter.
4. Exporting never blocks what is exported: spans and logs wait in a bounded queue, and the oldest metrics are
   replaced. A collector that does not answer delays the end of the process by `CLOSE_TIMEOUT_S` per signal.
"""

import logging
import os
from importlib.metadata import entry_points
from threading import Thread
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from prometheus_client import CollectorRegistry

from trimtab.common.errors import SettingError
from trimtab.common.telemetry.otel_logs import OtelLogHandler
from trimtab.common.telemetry.otel_metrics import RegistryExport

log = logging.getLogger("trimtab.telemetry")

SIGNALS: Final = ("traces", "metrics", "logs")
CLOSE_TIMEOUT_S: Final = 5.0
DEFAULT_PROTOCOL: Final = "http/protobuf"
_OTLP: Final = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}


class OtelExport:
    """Exports a process's spans, metrics of a registry, and Trimtab's logs, until `close`.

    Raises SettingError for an exporter that is not installed.
    """

    def __init__(self, service: str, registry: CollectorRegistry) -> None:
        resource = build_resource(service)
        exporters = {signal: create_exporters(signal) for signal in SIGNALS}
        self._tracer_provider = start_tracing(resource, exporters["traces"])
        self._metric_exports = [
            RegistryExport(exporter, registry, resource) for exporter in exporters["metrics"]
        ]
        self._logger_provider = LoggerProvider(resource, shutdown_on_exit=False)
        for exporter in exporters["logs"]:
            self._logger_provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
        self._log_handler = OtelLogHandler(self._logger_provider)
        if exporters["logs"]:
            logging.getLogger("trimtab").addHandler(self._log_handler)
        exported = [signal for signal in SIGNALS if exporters[signal]]
        log.info("telemetry: exporting %s", ", ".join(exported) or "nothing, by the OTEL_* variables")

    def close(self) -> None:
        """Export what is left, each signal for at most `CLOSE_TIMEOUT_S`."""
        logging.getLogger("trimtab").removeHandler(self._log_handler)
        parts: list[Any] = [*self._metric_exports, self._logger_provider]
        if self._tracer_provider is not None:
            parts.append(self._tracer_provider)
        # Threads, since the exporters' own timeouts add up: the retries of one request take a minute.
        threads = [Thread(target=part.shutdown, name="trimtab-telemetry", daemon=True) for part in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(CLOSE_TIMEOUT_S)
        if any(thread.is_alive() for thread in threads):
            log.warning(
                "telemetry: the last export did not end within %.0f s and is given up", CLOSE_TIMEOUT_S
            )


def ensure_tracing(service: str) -> None:
    """Start to export spans unless the process does already. Raises SettingError."""
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        start_tracing(build_resource(service), create_exporters("traces"), shutdown_on_exit=True)


def start_tracing(
    resource: Resource, exporters: list[Any], *, shutdown_on_exit: bool = False
) -> TracerProvider | None:
    """Set the global tracer provider and return it; None if there are no exporters, or another provider."""
    is_taken = not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    if is_taken or not exporters:
        return None
    provider = TracerProvider(resource=resource, shutdown_on_exit=shutdown_on_exit)
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return provider


def build_resource(service: str) -> Resource:
    """Return the resource by the environment; `service` is the default of the service's name."""
    is_named = os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    return Resource.create({} if is_named else {"service.name": service})


def create_exporters(signal: str) -> list[Any]:
    """Return the exporters of a signal that the environment names. Raises SettingError."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    variable = f"OTEL_{signal.upper()}_EXPORTER"
    names = [name.strip() for name in (os.environ.get(variable) or "otlp").split(",")]
    return [_create_exporter(signal, name, variable) for name in names if name not in ("", "none")]


def _create_exporter(signal: str, name: str, variable: str) -> Any:
    if name == "otlp":
        variable = f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL"
        common = "OTEL_EXPORTER_OTLP_PROTOCOL"
        protocol = os.environ.get(variable) or os.environ.get(common) or DEFAULT_PROTOCOL
        variable = variable if os.environ.get(variable) else common
        if protocol not in _OTLP:
            raise SettingError(f"{variable}={protocol}: write one of {', '.join(_OTLP)}")
        name = _OTLP[protocol]
    found = list(entry_points(group=f"opentelemetry_{signal}_exporter", name=name))
    if not found:
        package = f"opentelemetry-exporter-{name.replace('_', '-')}"
        raise SettingError(
            f"{variable} asks for the exporter {name!r}, which is not installed: pip install {package}, or "
            "name another one"
        )
    return found[0].load()()
