"""Records of an AsyncConsumer as the messages that spans are made of."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from confluent_kafka import Message

from trimtab.consumer_sdk.consumer.asyncio.record_buffer import ConsumerRecord


class _RecordMessage:
    """A record with the methods of `Message` that spans call."""

    __slots__ = ("_record",)

    def __init__(self, record: ConsumerRecord) -> None:
        self._record = record

    def topic(self) -> str:
        return self._record.topic

    def partition(self) -> int:
        return self._record.partition

    def offset(self) -> int:
        return self._record.offset

    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        return self._record.headers

    def error(self) -> None:
        """Return None: errors are raised by `getone` and `getmany`."""


def to_messages(records: ConsumerRecord | Iterable[ConsumerRecord] | Mapping[Any, Any]) -> list[Message]:
    """Return one record, several, or those of `getmany`, as messages."""
    if isinstance(records, ConsumerRecord):
        found: Iterable[ConsumerRecord] = (records,)
    elif isinstance(records, Mapping):
        found = (record for taken in records.values() for record in taken)
    else:
        found = records
    return [cast("Message", _RecordMessage(record)) for record in found]
