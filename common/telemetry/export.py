"""The switch of telemetry: exports traces, metrics and logs by OTLP while a block runs, or does nothing.

It imports nothing of OpenTelemetry until telemetry is on. Where to export to, sampling, limits and the
service's name come from the standard OTEL_* environment variables.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from trimtab.common.errors import SettingError

if TYPE_CHECKING:  # a consumer without telemetry does without it: 3 MB
    from prometheus_client import CollectorRegistry

TELEMETRY_SETTING: Final = "trimtab.telemetry"
_TRUE_WORDS: Final = frozenset({"true", "yes", "on", "1", "t", "y"})  # those of pydantic


def is_telemetry_on(config: Mapping[str, Any]) -> bool:
    """Return whether a consumer's or writer's configuration turns telemetry on."""
    return str(config.get(TELEMETRY_SETTING, "")).lower() in _TRUE_WORDS


def require_telemetry_extra(setting_name: str) -> None:
    """Raise SettingError if the packages of the extra are not installed."""
    # the first one without the other is a namespace, in which a part cannot be looked for
    installed = find_spec("opentelemetry") and find_spec("opentelemetry.sdk")
    if not installed:
        raise SettingError(f"{setting_name} needs an extra: pip install 'trimtab[otel]'")


@contextmanager
def export_telemetry(
    service: str, registry: "CollectorRegistry", setting_name: str, *, enabled: bool
) -> Generator[None]:
    """Export spans, the registry's metrics and Trimtab's logs while the block runs, if `enabled`.

    `service` is the default of OTEL_SERVICE_NAME. Raises SettingError if the extra, or an exporter that the
    environment asks for, is not installed.
    """
    if not enabled:
        yield
        return
    require_telemetry_extra(setting_name)
    from trimtab.common.telemetry.otel_export import OtelExport  # noqa: PLC0415 - it needs an extra

    export = OtelExport(service, registry)
    try:
        yield
    finally:
        export.close()
