"""Taking messages from a consumer as a queue wants them: soon, and only of what is still ours."""

import logging
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Final, Protocol

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Message as Raw
from confluent_kafka import TopicPartition as RawPartition

from trimtab.consumer_sdk.consumer.consumer import Consumer
from trimtab.consumer_sdk.errors import BrokerUnreachable

log = logging.getLogger("trimtab.queues")


class Closable(Protocol):
    """What can be closed."""

    def close(self) -> None:
        """Free everything."""
        ...


PASSING: Final = frozenset(
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


MOVED_ON: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError._ASSIGNMENT_LOST,  # noqa: SLF001 - its public name
    }
)
"""The group went on without us: its next owner reads what we could not commit."""


def committed(topic: str, commit: Callable[[], object]) -> bool:
    """Commit; False where the group went on without us. Raises KafkaException for the rest."""
    try:
        commit()
    except KafkaException as error:
        if error.args[0].code() not in MOVED_ON:
            raise
        log.info("%s: %s; others read on", topic, error.args[0].str())
        return False
    return True


@contextmanager
def named(bootstrap: str) -> Generator[None, None, None]:
    """Raise BrokerUnreachable for a KafkaException that passes by itself."""
    try:
        yield
    except KafkaException as error:
        told: KafkaError = error.args[0]
        if told.fatal() or not (told.retriable() or told.code() in PASSING):
            raise
        raise BrokerUnreachable(bootstrap, told.str()) from error


@contextmanager
def closed_on_error(opened: Closable) -> Generator[None, None, None]:
    """Close what is open already where the last step of opening it fails."""
    try:
        yield
    except BaseException:
        opened.close()
        raise


def gather(consumer: Consumer, most: int, wait: float) -> list[Raw]:
    """Return up to `most` messages as soon as there is one, none after `wait` seconds.

    Raises KafkaException for an error that the consumer hands out as an event.
    """
    if most <= 0:
        return consumer.consume(0, wait)
    before = _reading(consumer)
    raws = consumer.consume(1, wait)
    if raws and most > 1:
        raws += consumer.consume(most - 1, 0)
        now = _reading(consumer)
        if now != before:  # what was revoked in between others read
            raws = [raw for raw in raws if raw.partition() in now]
    errors = [error for raw in raws if (error := raw.error()) is not None]
    if errors:
        rewind(consumer, raws)
        raise KafkaException(errors[0])
    return raws


def rewind(consumer: Consumer, raws: Iterable[Raw]) -> None:
    """Read these messages again, as far as their partitions are still ours."""
    first: dict[int, RawPartition] = {}
    for raw in raws:
        if raw.error() is None:
            at = RawPartition(str(raw.topic()), int(raw.partition() or 0), int(raw.offset() or 0))
            first.setdefault(at.partition, at)
    reading = _reading(consumer)
    for partition, at in first.items():
        if partition in reading:
            consumer.seek(at)


def _reading(consumer: Consumer) -> set[int]:
    return {p.partition for p in consumer.assignment()}
