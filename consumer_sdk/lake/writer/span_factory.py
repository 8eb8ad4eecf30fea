"""Chooses between a writer's spans by OpenTelemetry and those that do nothing."""

from trimtab.common.telemetry.export import TELEMETRY_SETTING, require_telemetry_extra
from trimtab.consumer_sdk.lake.writer.flush_spans import FlushSpans


def open_flush_spans(group: str, *, enabled: bool) -> FlushSpans:
    """Return the spans of a writer. Raises SettingError if the extra is not installed."""
    if not enabled:
        return FlushSpans()
    require_telemetry_extra(TELEMETRY_SETTING)
    from trimtab.consumer_sdk.lake.writer.otel_flush_spans import OtelFlushSpans  # noqa: PLC0415 - an extra

    return OtelFlushSpans(group)
