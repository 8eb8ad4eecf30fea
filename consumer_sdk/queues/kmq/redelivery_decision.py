"""Decides between redelivery and dead letter for a due message, and builds the record. Pure."""

from dataclasses import replace
from typing import Final

from confluent_kafka import Message

from trimtab.common.units import format_count
from trimtab.consumer_sdk.queues.durable_producer import TOO_LARGE_REASON, ProducerRecord
from trimtab.consumer_sdk.queues.kmq.markers import MarkerKind
from trimtab.consumer_sdk.queues.kmq.redelivery_state import DueMessage
from trimtab.consumer_sdk.queues.message_headers import (
    DELIVERY_HEADER,
    DUE_AT_HEADER,
    GROUP_HEADER,
    HEADER_PREFIX,
    ORIGIN_HEADER,
    REASON_HEADER,
    build_forwarded_headers,
)
from trimtab.consumer_sdk.queues.settings import QueueSettings

WITHOUT_VALUE_REASON: Final = f"without its value: with it the dead letter is {TOO_LARGE_REASON}"

EXPIRED_REASON: Final = "deleted by the topic's retention before its redelivery"


def dead_letter_reason(due: DueMessage, max_deliveries: int) -> str | None:
    """Return the reason for dead-lettering a message; None if it is redelivered."""
    if due.kind is MarkerKind.REJECT:
        return due.reason
    if due.delivery >= max_deliveries:
        return f"delivered {format_count(due.delivery, 'time')}, the last delivery ended by {due.reason}"
    return None


def build_redelivery(
    due: DueMessage, raw: Message, partition: int, settings: QueueSettings
) -> ProducerRecord:
    """Return the record for a due message: its next delivery, or its dead letter."""
    reason = dead_letter_reason(due, settings.max_deliveries)
    if reason is None:
        more: dict[str, str | int] = {DELIVERY_HEADER: due.delivery + 1, DUE_AT_HEADER: due.deadline_ms}
        topic = settings.topic
    else:
        more = {DELIVERY_HEADER: due.delivery, REASON_HEADER: reason}
        topic = settings.dead_letter_topic
    headers = build_forwarded_headers(raw, {GROUP_HEADER: settings.group, **more})
    return ProducerRecord(topic, partition, raw.value(), raw.key(), headers)


def strip_value(letter: ProducerRecord, raw: Message) -> ProducerRecord:
    """Return a message's dead letter with Trimtab's headers only; its origin header locates the value."""
    headers = {name: value or b"" for name, value in letter.headers if name.startswith(HEADER_PREFIX)}
    # the message's own place: the origin that it names may be another message, or deleted
    headers[ORIGIN_HEADER] = f"{raw.topic()}/{raw.partition()}/{raw.offset()}".encode()
    headers[REASON_HEADER] += f"; {WITHOUT_VALUE_REASON}".encode()
    return replace(letter, value=None, key=None, headers=list(headers.items()))


def too_large_reason(due: DueMessage, settings: QueueSettings) -> str:
    """Return the dead-letter reason of a message that is too large to be written again."""
    reason = dead_letter_reason(due, settings.max_deliveries)
    if reason is None:
        return f"cannot be delivered again: with its headers it is {TOO_LARGE_REASON}"
    return f"{reason}; {WITHOUT_VALUE_REASON}"


def build_lost_letter(
    due: DueMessage, partition: int, settings: QueueSettings, reason: str
) -> ProducerRecord:
    """Return the dead letter, without key and value, of a message that cannot be written."""
    values: dict[str, str | int] = {
        # The value stays at this offset until retention deletes it.
        ORIGIN_HEADER: f"{settings.topic}/{partition}/{due.offset}",
        GROUP_HEADER: settings.group,
        DELIVERY_HEADER: due.delivery,
        REASON_HEADER: reason,
    }
    headers = [(name, str(value).encode()) for name, value in values.items()]
    return ProducerRecord(settings.dead_letter_topic, partition, None, headers=headers)
