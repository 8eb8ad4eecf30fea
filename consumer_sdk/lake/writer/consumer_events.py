"""Error events among a consumer's messages."""

import logging
from collections.abc import Iterable
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from trimtab.consumer_sdk.errors import MissingAclError
from trimtab.consumer_sdk.lake.interfaces import ConsumedMessage

log = logging.getLogger("trimtab.lake")

# `pop_offset_resets` reports an expired offset, with details.
_SILENT_ERROR_CODES: Final = (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET)  # noqa: SLF001 - their public names


def drop_error_events(messages: Iterable[ConsumedMessage]) -> Iterable[ConsumedMessage]:
    """Yield the records; log error events. Raises KafkaException for a fatal one, MissingAclError."""
    for message in messages:
        error = message.error()
        if error is None:
            yield message
        elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            topic = message.topic()
            raise MissingAclError(f"no read access to topic {topic}; grant Read on topic {topic}")
        elif error.fatal():
            raise KafkaException(error)
        elif error.code() not in _SILENT_ERROR_CODES:
            # librdkafka recovers by itself, e.g. from a broker that is down.
            log.warning("%s-%s: %s", message.topic(), message.partition(), error)
