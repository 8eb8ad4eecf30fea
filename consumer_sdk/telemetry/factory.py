"""Chooses between spans by OpenTelemetry and those that do nothing, which import nothing of it."""

from trimtab.common.clock import Clock
from trimtab.common.telemetry.export import TELEMETRY_SETTING, require_telemetry_extra
from trimtab.consumer_sdk.telemetry.consumer_spans import ConsumerSpans


def open_consumer_spans(group: str, client_id: str, clock: Clock, *, enabled: bool) -> ConsumerSpans:
    """Return the spans of a consumer. Raises SettingError if the extra is not installed."""
    if not enabled:
        return ConsumerSpans()
    require_telemetry_extra(TELEMETRY_SETTING)
    from trimtab.consumer_sdk.telemetry.otel_consumer_spans import OtelConsumerSpans  # noqa: PLC0415 - an extra

    return OtelConsumerSpans(group, client_id, clock)
