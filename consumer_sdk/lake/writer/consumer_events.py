"""Error events among a consumer's messages."""

import logging
from collections.abc import Iterable
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from trimtab.consumer_sdk.lake.model.interfaces import ConsumedMessage

log = logging.getLogger("trimtab.lake")

# `pop_offset_resets` reports an expired offset, with details.
_SILENT_ERROR_CODES: Final = (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET)  # noqa: SLF001 - their public names


def drop_error_events(messages: Iterable[ConsumedMessage]) -> Iterable[ConsumedMessage]:
    """Yield the records; log error events. Raises KafkaException for a fatal one."""
    for message in messages:
        error = message.error()
        if error is None:
            yield message
        elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            # Not raised: a pattern may find such a topic. After the grant, librdkafka fetches it.
            where = (message.topic(), message.partition(), message.topic())
            log.error("%s-%s waits for the right to read: grant Read on topic %s", *where)
        elif error.fatal():
            raise KafkaException(error)
        elif error.code() not in _SILENT_ERROR_CODES:
            # librdkafka recovers by itself, e.g. from a broker that is down.
            log.warning("%s-%s: %s", message.topic(), message.partition(), error)
