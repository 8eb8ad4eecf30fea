"""Chooses between spans by OpenTelemetry and those that do nothing, which import nothing of it."""

from typing import TYPE_CHECKING

from trimtab.common.clock import Clock
from trimtab.common.telemetry.export import TELEMETRY_SETTING, require_telemetry_extra
from trimtab.consumer_sdk.telemetry.consumer_spans import ConsumerSpans

if TYPE_CHECKING:  # it needs pyarrow, which a consumer does without
    from trimtab.consumer_sdk.telemetry.flush_spans import FlushSpans


def open_consumer_spans(group: str, client_id: str, clock: Clock, *, enabled: bool) -> ConsumerSpans:
    """Return the spans of a consumer. Raises SettingError if the extra is not installed."""
    if not enabled:
        return ConsumerSpans()
    require_telemetry_extra(TELEMETRY_SETTING)
    from trimtab.consumer_sdk.telemetry.otel_consumer_spans import OtelConsumerSpans  # noqa: PLC0415 - an extra

    return OtelConsumerSpans(group, client_id, clock)


def open_flush_spans(group: str, *, enabled: bool) -> "FlushSpans":
    """Return the spans of a writer. Raises SettingError if the extra is not installed."""
    if not enabled:
        from trimtab.consumer_sdk.telemetry.flush_spans import FlushSpans  # noqa: PLC0415 - as above

        return FlushSpans()
    require_telemetry_extra(TELEMETRY_SETTING)
    from trimtab.consumer_sdk.telemetry.otel_flush_spans import OtelFlushSpans  # noqa: PLC0415 - an extra

    return OtelFlushSpans(group)
