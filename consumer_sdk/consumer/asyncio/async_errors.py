"""Errors of AsyncConsumer: aiokafka's classes if it is installed, else kafka-python's of the same names.

So an application's `except` clauses go on to work. The error of Trimtab or confluent-kafka is the
`__cause__` and gives the text.
"""

import logging
from functools import cache
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message

from trimtab.common.errors import SaslAuthenticationError, TlsHandshakeError
from trimtab.consumer_sdk.client.client_adapters import partition_of
from trimtab.consumer_sdk.errors import BrokerUnreachableError, ConsumerClosedError, GroupMembershipError

log = logging.getLogger("trimtab.consumer_sdk")

_UNREACHABLE: Final = (BrokerUnreachableError, SaslAuthenticationError, TlsHandshakeError)
_NAMES: Final[dict[int, str]] = {  # of librdkafka's own codes, and of those that aiokafka renames
    KafkaError._ALL_BROKERS_DOWN: "KafkaConnectionError",  # noqa: SLF001 - these are public names
    KafkaError._ASSIGNMENT_LOST: "CommitFailedError",  # noqa: SLF001
    KafkaError._AUTO_OFFSET_RESET: "OffsetOutOfRangeError",  # noqa: SLF001
    KafkaError._STATE: "IllegalStateError",  # noqa: SLF001
    KafkaError._TIMED_OUT: "KafkaTimeoutError",  # noqa: SLF001
    KafkaError._TRANSPORT: "KafkaConnectionError",  # noqa: SLF001
    KafkaError.FENCED_MEMBER_EPOCH: "CommitFailedError",
    KafkaError.ILLEGAL_GENERATION: "CommitFailedError",
    KafkaError.REBALANCE_IN_PROGRESS: "CommitFailedError",
    KafkaError.STALE_MEMBER_EPOCH: "CommitFailedError",
    KafkaError.UNKNOWN_MEMBER_ID: "CommitFailedError",
}


@cache
def load_client_errors() -> Any:
    """Return the module with the errors: aiokafka.errors, else kafka.errors."""
    try:
        from aiokafka import errors  # noqa: PLC0415 - optional, and slow to import
    except ImportError:
        from kafka import errors  # noqa: PLC0415
    return errors


def illegal_state(text: str) -> Exception:
    """Return an IllegalStateError."""
    error: Exception = load_client_errors().IllegalStateError(text)
    return error


def consumer_stopped() -> Exception:
    """Return a ConsumerStoppedError; ConsumerClosedError without aiokafka."""
    kind = getattr(load_client_errors(), "ConsumerStoppedError", ConsumerClosedError)
    error: Exception = kind("the consumer was used after stop(); create a new one")
    return error


def is_stopped_error(error: Exception) -> bool:
    """Return whether this is the error of a stopped consumer."""
    return isinstance(error, type(consumer_stopped()))


def to_client_error(error: Exception) -> Exception:
    """Return the error that an application of aiokafka expects; others, such as SettingError, unchanged."""
    errors = load_client_errors()
    if isinstance(error, ConsumerClosedError):
        return consumer_stopped()
    if isinstance(error, _UNREACHABLE):
        kind = errors.KafkaConnectionError
    elif isinstance(error, GroupMembershipError):
        kind = errors.KafkaError
    elif isinstance(error, KafkaException):
        code = error.args[0].code()
        kind = errors.for_code(code) if code > 0 else errors.KafkaError
        kind = getattr(errors, _NAMES.get(code, ""), kind)
    else:
        return error
    translated: Exception = kind(str(error))
    translated.__cause__ = error
    return translated


def to_record_error(message: Message) -> Exception | None:
    """Return the error of an event among the records; None if it is no error of the application."""
    error = message.error()
    if error is None or error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
        return None
    if error.retriable() or error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        log.warning("%s: %s; retrying", partition_of(message), error.str())
        return None
    if error.code() == KafkaError._AUTO_OFFSET_RESET and (message.offset() or -1) < 0:  # noqa: SLF001
        no_offset: Exception = load_client_errors().NoOffsetForPartitionError(partition_of(message))
        return no_offset
    return to_client_error(KafkaException(error))
