"""Idempotent producer that reports for each record whether the in-sync replicas stored it."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from trimtab.common.clock import Clock
from trimtab.common.librdkafka_settings import IDEMPOTENT_PRODUCER_SETTINGS
from trimtab.consumer_sdk.log_rate_limit import QUIET_LOG_LEVEL

log = logging.getLogger("trimtab.queues")

RECEIPT_POLL_S: Final = 0.002  # short, since a start marker's report gates the delivery of its messages
BUFFER_FULL_WAIT_S: Final = 0.1  # polls make room in the client's queue
METADATA_REFRESH_INTERVAL_S: Final = 1.0  # of a topic that lacks a partition; librdkafka's is 5 minutes
METADATA_REFRESH_TIMEOUT_S: Final = 5.0
LARGEST_MESSAGE_LIMIT: Final = 1_000_000_000  # bytes, librdkafka's: only the broker limits the size
# The failure of every record in the batch, even if only one of them is too large.
TOO_LARGE_REASON: Final = "larger than the topic's max.message.bytes"
_TOO_LARGE_CODES: Final = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A record for one partition."""

    topic: str
    partition: int
    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


DeliveryCallback: TypeAlias = Callable[[ProducerRecord, str], None]  # gets the failure, "" if it is stored


class DurableProducer:
    """An idempotent producer. Thread-safe."""

    def __init__(self, client_config: Mapping[str, Any], clock: Clock) -> None:
        self._clock = clock
        fixed = {**IDEMPOTENT_PRODUCER_SETTINGS, "linger.ms": 1, "log_level": QUIET_LOG_LEVEL}
        self._refreshed_at: dict[str, float] = {}
        self._producer = Producer({**client_config, **fixed, "message.max.bytes": LARGEST_MESSAGE_LIMIT})

    def send_async(self, record: ProducerRecord, on_delivery: DeliveryCallback) -> None:
        """Write a record in the background; `poll` and `flush` call `on_delivery`."""
        self._produce(record, partial(on_delivery, record))

    def write_and_wait(self, records: Sequence[ProducerRecord], timeout: float) -> dict[int, str]:
        """Write records and wait `timeout` seconds; return the failures: index → reason.

        A record without a delivery report counts as failed, although it may be stored later.
        """
        # Any thread that polls may run the callbacks: setting an item is atomic.
        reports: dict[int, str] = {}
        for index, record in enumerate(records):
            self._produce(record, partial(reports.__setitem__, index))
        deadline = self._clock.monotonic() + timeout
        while len(reports) < len(records) and self._clock.monotonic() < deadline:
            self._producer.poll(RECEIPT_POLL_S)
        outcomes = {**dict.fromkeys(range(len(records)), "no answer in time"), **reports}
        return {index: reason for index, reason in outcomes.items() if reason}

    def poll(self) -> None:
        """Serve the delivery reports of `send_async`."""
        self._producer.poll(0)

    def flush(self, timeout: float) -> bool:
        """Wait until every record is stored or has failed; return False on timeout."""
        return not self._producer.flush(timeout)

    def _produce(self, record: ProducerRecord, on_result: Callable[[str], None]) -> None:
        """Write a record; `on_result` gets the reason of the failure, "" if it is stored."""
        to = record.topic, record.value, record.key, record.partition
        while True:
            try:
                self._producer.produce(*to, partial(_report, on_result), headers=list(record.headers) or None)
            except BufferError:
                self._producer.poll(BUFFER_FULL_WAIT_S)
            except KafkaException as error:
                is_unknown = error.args[0].code() == KafkaError._UNKNOWN_PARTITION  # noqa: SLF001 - public
                if not (is_unknown and self._refresh_metadata(record.topic)):
                    on_result(_describe(error.args[0]))
                    return
            else:
                return

    def _refresh_metadata(self, topic: str) -> bool:
        """Learn the partitions added to a topic; return False if that was done just before."""
        now = self._clock.monotonic()
        if now < self._refreshed_at.get(topic, -METADATA_REFRESH_INTERVAL_S) + METADATA_REFRESH_INTERVAL_S:
            return False
        self._refreshed_at[topic] = now
        with suppress(KafkaException):  # no broker answers: the record fails
            self._producer.list_topics(topic, METADATA_REFRESH_TIMEOUT_S)
        return True


def _report(on_result: Callable[[str], None], error: KafkaError | None, _: Message) -> None:
    on_result("" if error is None else _describe(error))


def _describe(error: KafkaError) -> str:
    return TOO_LARGE_REASON if error.code() in _TOO_LARGE_CODES else str(error.str())


def write_or_shorten(
    write: Callable[[Sequence[ProducerRecord]], dict[int, str]],
    records: Sequence[ProducerRecord],
    shorten: Callable[[int], ProducerRecord],
) -> tuple[list[ProducerRecord], dict[int, str]]:
    """Write records, `shorten(index)` if one is too large; return the written ones, and index → failure."""
    written = list(records)
    failed = write(records)
    for index in [index for index, reason in failed.items() if reason == TOO_LARGE_REASON]:
        # Alone first: the broker refuses a whole batch for its size.
        retried = write([records[index]])
        if retried.get(0) == TOO_LARGE_REASON:
            written[index] = shorten(index)
            retried = write([written[index]])
        if retried:
            failed[index] = retried[0]
            break  # no broker answers: a timeout for each of the others would take too long
        del failed[index]
    return written, failed


def log_unwritten_marker(record: ProducerRecord, failure: str) -> None:
    """Log a marker that is not stored; its messages are redelivered."""
    if failure:
        log.warning("%s-%d: marker not stored: %s", record.topic, record.partition, failure)
