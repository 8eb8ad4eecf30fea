"""What else than records comes out of a consumer: the end of a partition, and errors."""

import logging
from collections.abc import Iterable
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from trimtab.consumer_sdk.errors import MissingAclError
from trimtab.consumer_sdk.lake.ports import ConsumedMessage

log = logging.getLogger("trimtab.lake")

_SILENT_ERROR_CODES: Final = (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET)  # noqa: SLF001 - their public names
"""The end of a partition; and an offset that is gone, of which `resets` tells more."""


def drop_error_events(messages: Iterable[ConsumedMessage]) -> Iterable[ConsumedMessage]:
    """Return messages without error events.

    Raises KafkaException for a fatal one, MissingAclError for a topic that may not be read.
    """
    for message in messages:
        error = message.error()
        if error is None:
            yield message
        elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            topic = message.topic()
            raise MissingAclError(f"topic {topic} may not be read; grant Read on topic {topic}")
        elif error.fatal():
            raise KafkaException(error)
        elif error.code() not in _SILENT_ERROR_CODES:
            log.warning("%s-%s: %s", message.topic(), message.partition(), error)
