"""What becomes of a message that is due: decided from what the markers say, and nothing else."""

from dataclasses import replace
from typing import Final

from confluent_kafka import Message as Raw

from trimtab.consumer_sdk.queues.durable_producer import TOO_LARGE, Record
from trimtab.consumer_sdk.queues.kmq.markers import Kind
from trimtab.consumer_sdk.queues.kmq.redelivery_state import Due
from trimtab.consumer_sdk.queues.message_headers import (
    DELIVERY,
    DUE,
    GROUP,
    ORIGIN,
    OURS,
    REASON,
    passed_on,
)
from trimtab.consumer_sdk.queues.settings import QueueSettings

SHORT: Final = f"without its value, which makes it {TOO_LARGE}"

GONE: Final = "deleted by the topic's retention before it could be delivered again"


def given_up(due: Due, max_deliveries: int) -> str | None:
    """Return why a message goes to the dead letters; None where it is delivered again."""
    if due.kind is Kind.REJECT:
        return due.reason
    if due.delivery >= max_deliveries:
        return f"delivered {due.delivery} times, the last one ended by {due.reason}"
    return None


def again(due: Due, raw: Raw, partition: int, settings: QueueSettings) -> Record:
    """Return what is written for a message that is due: itself once more, or a dead letter."""
    reason = given_up(due, settings.max_deliveries)
    if reason is None:
        more: dict[str, str | int] = {DELIVERY: due.delivery + 1, DUE: due.deadline}
        topic = settings.topic
    else:
        more = {DELIVERY: due.delivery, REASON: reason}
        topic = settings.dead_letter
    headers = passed_on(raw, {GROUP: settings.group, **more})
    return Record(topic, partition, raw.value(), raw.key(), headers)


def without_value(letter: Record) -> Record:
    """Return a dead letter with our headers alone: its origin tells where the value stands."""
    said = {name: value or b"" for name, value in letter.headers if name.startswith(OURS)}
    said[REASON] += f"; {SHORT}".encode()
    return replace(letter, value=None, key=None, headers=list(said.items()))


def too_large(due: Due, settings: QueueSettings) -> str:
    """Return the reason of a dead letter for a message that its topic does not take once more."""
    reason = given_up(due, settings.max_deliveries)
    if reason is None:
        return f"cannot be delivered again: it would be {TOO_LARGE}"
    return f"{reason}; {SHORT}"


def lost(due: Due, partition: int, settings: QueueSettings, reason: str) -> Record:
    """Return the dead letter of a message that cannot be written: it has no key and no value.

    Its origin is the offset that was due: there the value stands for as long as it is kept.
    """
    said: dict[str, str | int] = {
        ORIGIN: f"{settings.topic}/{partition}/{due.offset}",
        GROUP: settings.group,
        DELIVERY: due.delivery,
        REASON: reason,
    }
    headers = [(name, str(value).encode()) for name, value in said.items()]
    return Record(settings.dead_letter, partition, None, headers=headers)
