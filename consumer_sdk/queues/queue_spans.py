"""Spans of a queue: `process` of each message, and of a share group also `poll` and `acknowledge`."""

from trimtab.common.clock import Clock
from trimtab.consumer_sdk.queues.settings import QueueSettings
from trimtab.consumer_sdk.telemetry.consumer_spans import ConsumerSpans
from trimtab.consumer_sdk.telemetry.factory import open_consumer_spans


def open_queue_spans(settings: QueueSettings, clock: Clock) -> ConsumerSpans:
    """Return the spans of a queue, which do nothing while telemetry is off. Raises SettingError."""
    return open_consumer_spans(settings.group, settings.instance, clock, enabled=settings.telemetry)
