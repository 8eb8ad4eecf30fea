"""Fetches messages for queues: without delay, and only from partitions still assigned."""

import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as RawPartition

from trimtab.consumer_sdk.consumer.consumer import Consumer
from trimtab.consumer_sdk.errors import BrokerUnreachableError
from trimtab.consumer_sdk.log_rate_limit import RateLimitFilter
from trimtab.consumer_sdk.readable_headers import keep_readable_headers

log = logging.getLogger("trimtab.queues")
record_log = logging.getLogger("trimtab.queues.records")  # one line per bad record, so limited
record_log.addFilter(RateLimitFilter())


class Closable(Protocol):
    """A client or queue."""

    def close(self) -> None:
        """Release all resources."""


# A broker is down or starting; librdkafka does not mark all of these as retriable.
TRANSIENT_ERRORS: Final = (
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
)

# The member is out of the group: the next owner reads the uncommitted messages.
LOST_MEMBERSHIP_ERRORS: Final = (
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError._ASSIGNMENT_LOST,  # noqa: SLF001 - its public name
)


def commit_if_member(topic: str, commit: Callable[[], object]) -> bool:
    """Commit; return False if this member is out of the group. Raises KafkaException."""
    try:
        commit()
    except KafkaException as error:
        if error.args[0].code() not in LOST_MEMBERSHIP_ERRORS:
            raise
        log.info("%s: commit refused: %s; the next owner continues", topic, error.args[0].str())
        return False
    return True


@contextmanager
def convert_transient_errors(bootstrap: str) -> Generator[None]:
    """Raise BrokerUnreachableError for a transient KafkaException."""
    try:
        yield
    except KafkaException as error:
        cause: KafkaError = error.args[0]
        if cause.fatal() or not (cause.retriable() or cause.code() in TRANSIENT_ERRORS):
            raise
        raise BrokerUnreachableError(bootstrap, cause.str()) from error


@contextmanager
def close_on_error(resource: Closable) -> Generator[None]:
    """Close a resource if the body, the last step of opening it, raises."""
    try:
        yield
    except BaseException:
        resource.close()
        raise


def fetch_messages(consumer: Consumer, max_messages: int, wait: float) -> list[Message]:
    """Return up to `max_messages` messages once one is available, none after `wait` seconds.

    Raises KafkaException for an error event of the consumer.
    """
    if max_messages <= 0:
        return consumer.consume(0, wait)
    before = _assigned_partitions(consumer)
    # `consume(n)` waits until it has n messages: wait for one, then take the buffered ones.
    raws = consumer.consume(1, wait)
    with rewind_on_error(consumer, raws):
        if raws and max_messages > 1:
            raws += consumer.consume(max_messages - 1, 0)
            now = _assigned_partitions(consumer)
            if now != before:  # a rebalance in between: the new owner reads the rest
                raws = [raw for raw in raws if raw.partition() in now]
        errors = [error for raw in raws if (error := raw.error()) is not None]
        if errors:
            raise KafkaException(errors[0])
        repair_headers(raws)
    return raws


def repair_headers(raw_messages: Sequence[Message]) -> None:
    """Remove the headers that confluent-kafka cannot decode, and log it."""
    for raw in keep_readable_headers(raw_messages):
        name = f"{raw.topic()}-{raw.partition()}, offset {raw.offset()}"
        record_log.warning("%s: left out the headers whose names are not UTF-8", name)


@contextmanager
def rewind_on_error(consumer: Consumer, raw_messages: Sequence[Message]) -> Generator[None]:
    """Rewind messages that are in no batch yet if the body raises, whatever it raises."""
    try:
        yield
    except BaseException:  # Ctrl-C, too: the application may catch it and go on
        rewind_messages(consumer, raw_messages)
        raise


def rewind_messages(consumer: Consumer, raw_messages: Iterable[Message]) -> None:
    """Seek back to the first of these messages in each partition that is still assigned."""
    first: dict[int, RawPartition] = {}
    for raw in raw_messages:  # in order within a partition
        if raw.error() is None:
            position = RawPartition(str(raw.topic()), int(raw.partition() or 0), int(raw.offset() or 0))
            first.setdefault(position.partition, position)
    for partition in sorted(first.keys() & _assigned_partitions(consumer)):
        consumer.seek(first[partition])


def _assigned_partitions(consumer: Consumer) -> set[int]:
    return {p.partition for p in consumer.assignment()}
