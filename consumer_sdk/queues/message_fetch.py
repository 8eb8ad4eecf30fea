"""Taking messages from a consumer as a queue wants them: soon, and only of what is still ours."""

import logging
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Final, Protocol

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Message as Raw
from confluent_kafka import TopicPartition as RawPartition

from trimtab.consumer_sdk.consumer.consumer import Consumer
from trimtab.consumer_sdk.errors import BrokerUnreachableError

log = logging.getLogger("trimtab.queues")


class Closable(Protocol):
    """What can be closed."""

    def close(self) -> None:
        """Free everything."""
        ...


TRANSIENT_ERRORS: Final = frozenset(
    {
        KafkaError._TRANSPORT,  # noqa: SLF001 - the names they are documented by
        KafkaError._TIMED_OUT,  # noqa: SLF001 - as above
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - as above
        KafkaError._RESOLVE,  # noqa: SLF001 - as above
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.LEADER_NOT_AVAILABLE,
    }
)
"""A broker is away, or starts; librdkafka does not mark its events as retriable."""


LOST_MEMBERSHIP_ERRORS: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError._ASSIGNMENT_LOST,  # noqa: SLF001 - its public name
    }
)
"""The group went on without us: its next owner reads what we could not commit."""


def commit_if_member(topic: str, commit: Callable[[], object]) -> bool:
    """Commit; False where the group went on without us. Raises KafkaException for the rest."""
    try:
        commit()
    except KafkaException as error:
        if error.args[0].code() not in LOST_MEMBERSHIP_ERRORS:
            raise
        log.info("%s: %s; others read on", topic, error.args[0].str())
        return False
    return True


@contextmanager
def convert_transient_errors(bootstrap: str) -> Generator[None, None, None]:
    """Raise BrokerUnreachableError for a KafkaException that passes by itself."""
    try:
        yield
    except KafkaException as error:
        told: KafkaError = error.args[0]
        if told.fatal() or not (told.retriable() or told.code() in TRANSIENT_ERRORS):
            raise
        raise BrokerUnreachableError(bootstrap, told.str()) from error


@contextmanager
def close_on_error(resource: Closable) -> Generator[None, None, None]:
    """Close what is open already where the last step of opening it fails."""
    try:
        yield
    except BaseException:
        resource.close()
        raise


def fetch_messages(consumer: Consumer, max_messages: int, wait: float) -> list[Raw]:
    """Return up to `max_messages` messages as soon as there is one, none after `wait` seconds.

    Raises KafkaException for an error that the consumer hands out as an event.
    """
    if max_messages <= 0:
        return consumer.consume(0, wait)
    before = _assigned_partitions(consumer)
    raws = consumer.consume(1, wait)
    if raws and max_messages > 1:
        raws += consumer.consume(max_messages - 1, 0)
        now = _assigned_partitions(consumer)
        if now != before:  # what was revoked in between others read
            raws = [raw for raw in raws if raw.partition() in now]
    errors = [error for raw in raws if (error := raw.error()) is not None]
    if errors:
        rewind_messages(consumer, raws)
        raise KafkaException(errors[0])
    return raws


def rewind_messages(consumer: Consumer, raw_messages: Iterable[Raw]) -> None:
    """Read these messages again, as far as their partitions are still ours."""
    first: dict[int, RawPartition] = {}
    for raw in raw_messages:
        if raw.error() is None:
            at = RawPartition(str(raw.topic()), int(raw.partition() or 0), int(raw.offset() or 0))
            first.setdefault(at.partition, at)
    reading = _assigned_partitions(consumer)
    for partition, at in first.items():
        if partition in reading:
            consumer.seek(at)


def _assigned_partitions(consumer: Consumer) -> set[int]:
    return {p.partition for p in consumer.assignment()}
