"""What becomes of a message that is due: decided from what the markers say, and nothing else."""

from dataclasses import replace
from typing import Final

from confluent_kafka import Message as Raw

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

WITHOUT_VALUE_REASON: Final = f"without its value, which makes it {TOO_LARGE_REASON}"

EXPIRED_REASON: Final = "deleted by the topic's retention before it could be delivered again"


def dead_letter_reason(due: DueMessage, max_deliveries: int) -> str | None:
    """Return why a message goes to the dead letters; None where it is delivered again."""
    if due.kind is MarkerKind.REJECT:
        return due.reason
    if due.delivery >= max_deliveries:
        return f"delivered {due.delivery} times, the last one ended by {due.reason}"
    return None


def build_redelivery(
    due: DueMessage, raw: Raw, partition: int, settings: QueueSettings
) -> ProducerRecord:
    """Return what is written for a message that is due: itself once more, or a dead letter."""
    reason = dead_letter_reason(due, settings.max_deliveries)
    if reason is None:
        more: dict[str, str | int] = {
            DELIVERY_HEADER: due.delivery + 1,
            DUE_AT_HEADER: due.deadline_ms,
        }
        topic = settings.topic
    else:
        more = {DELIVERY_HEADER: due.delivery, REASON_HEADER: reason}
        topic = settings.dead_letter_topic
    headers = build_forwarded_headers(raw, {GROUP_HEADER: settings.group, **more})
    return ProducerRecord(topic, partition, raw.value(), raw.key(), headers)


def strip_value(letter: ProducerRecord) -> ProducerRecord:
    """Return a dead letter with our headers alone: its origin tells where the value stands."""
    said = {name: value or b"" for name, value in letter.headers if name.startswith(HEADER_PREFIX)}
    said[REASON_HEADER] += f"; {WITHOUT_VALUE_REASON}".encode()
    return replace(letter, value=None, key=None, headers=list(said.items()))


def too_large_reason(due: DueMessage, settings: QueueSettings) -> str:
    """Return the reason of a dead letter for a message that its topic does not take once more."""
    reason = dead_letter_reason(due, settings.max_deliveries)
    if reason is None:
        return f"cannot be delivered again: it would be {TOO_LARGE_REASON}"
    return f"{reason}; {WITHOUT_VALUE_REASON}"


def build_lost_letter(
    due: DueMessage, partition: int, settings: QueueSettings, reason: str
) -> ProducerRecord:
    """Return the dead letter of a message that cannot be written: it has no key and no value.

    Its origin is the offset that was due: there the value stands for as long as it is kept.
    """
    said: dict[str, str | int] = {
        ORIGIN_HEADER: f"{settings.topic}/{partition}/{due.offset}",
        GROUP_HEADER: settings.group,
        DELIVERY_HEADER: due.delivery,
        REASON_HEADER: reason,
    }
    headers = [(name, str(value).encode()) for name, value in said.items()]
    return ProducerRecord(settings.dead_letter_topic, partition, None, headers=headers)
