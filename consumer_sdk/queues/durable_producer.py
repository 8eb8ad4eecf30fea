"""Writing to Kafka and knowing that it is kept: every replica that must have it has it."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Raw

from trimtab.common.clock import Clock

log = logging.getLogger("trimtab.queues")

QUIET_LOG_LEVEL: Final = 2
"""librdkafka's log level that leaves out each attempt to reach a broker: we tell of it once."""

RECEIPT_POLL_S: Final = 0.002
"""Seconds of one wait for receipts."""

BUFFER_FULL_WAIT_S: Final = 0.1
"""Seconds of one wait for room in the client's own queue."""

MAX_MESSAGE_BYTES: Final = 1_000_000_000
"""librdkafka's highest `message.max.bytes`: how large a message may be is the broker's to say."""

TOO_LARGE_REASON: Final = "larger than the topic's max.message.bytes"
"""Why a record is not kept that the topic never takes; also said of all records of its batch."""

_TOO_LARGE_CODES: Final = frozenset(
    {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE}
)


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A record to write."""

    topic: str
    partition: int
    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


DeliveryCallback: TypeAlias = Callable[[ProducerRecord, str], None]
"""Told what became of a record: an empty string if it is kept, else why it may not be."""


class DurableProducer:
    """An idempotent producer; may be used by several threads."""

    def __init__(self, client: Mapping[str, Any], clock: Clock) -> None:
        self._clock = clock
        ours = {"enable.idempotence": True, "linger.ms": 1, "log_level": QUIET_LOG_LEVEL}
        self._producer = Producer({**client, **ours, "message.max.bytes": MAX_MESSAGE_BYTES})

    def send_async(self, record: ProducerRecord, on_delivery: DeliveryCallback) -> None:
        """Write a record in the background; `on_delivery` is called by whoever polls or flushes."""
        try:
            self._produce_record(record, partial(_report_delivery, record, on_delivery))
        except KafkaException as error:
            on_delivery(record, _describe_failure(error.args[0]))

    def write_and_wait(self, records: Sequence[ProducerRecord], timeout: float) -> dict[int, str]:
        """Write records and wait; return those that may not be kept: place → why."""
        answers: list[tuple[int, str]] = []  # only ever added to, by whichever thread polls
        for place, record in enumerate(records):
            try:
                self._produce_record(record, partial(_collect_failure, answers, place))
            except KafkaException as error:
                answers.append((place, _describe_failure(error.args[0])))
        deadline = self._clock.monotonic() + timeout
        while len(answers) < len(records) and self._clock.monotonic() < deadline:
            self._producer.poll(RECEIPT_POLL_S)
        said = {**dict.fromkeys(range(len(records)), "no answer in time"), **dict(answers)}
        return {place: why for place, why in said.items() if why}

    def poll(self) -> None:
        """Serve the receipts of `send_async`."""
        self._producer.poll(0)

    def flush(self, timeout: float) -> bool:
        """Wait until everything is kept, or has failed; False where it takes longer."""
        return not self._producer.flush(timeout)

    def _produce_record(
        self, record: ProducerRecord, receipt: Callable[[KafkaError | None, Raw], None]
    ) -> None:
        while True:
            try:
                self._producer.produce(
                    record.topic,
                    record.value,
                    record.key,
                    record.partition,
                    receipt,
                    headers=list(record.headers) or None,
                )
            except BufferError:
                self._producer.poll(BUFFER_FULL_WAIT_S)
            else:
                return


def _collect_failure(
    answers: list[tuple[int, str]], place: int, error: KafkaError | None, _: Raw
) -> None:
    answers.append((place, "" if error is None else _describe_failure(error)))


def _report_delivery(
    record: ProducerRecord, on_delivery: DeliveryCallback, error: KafkaError | None, _: Raw
) -> None:
    on_delivery(record, "" if error is None else _describe_failure(error))


def _describe_failure(error: KafkaError) -> str:
    return TOO_LARGE_REASON if error.code() in _TOO_LARGE_CODES else str(error.str())


def write_or_shorten(
    write: Callable[[Sequence[ProducerRecord]], dict[int, str]],
    records: Sequence[ProducerRecord],
    shorten: Callable[[int], ProducerRecord],
) -> tuple[list[ProducerRecord], dict[int, str]]:
    """Write records, those that are too large as `shorten` gives them by their place.

    Returns what was written in each place, and those that may not be kept: place → why.
    """
    written, failed = list(records), write(records)
    for place in [place for place, why in failed.items() if why == TOO_LARGE_REASON]:
        again = write([records[place]])  # alone: it may be its batch that was too large
        if again.get(0) == TOO_LARGE_REASON:
            written[place] = shorten(place)
            again = write([written[place]])
        if again:
            failed[place] = again[0]
            break  # the broker is away: waiting for each of the others would take too long
        del failed[place]
    return written, failed


def log_unwritten_marker(record: ProducerRecord, failure: str) -> None:
    """Say in the log that a marker is not kept; its messages come back."""
    if failure:
        log.warning("%s-%d: a marker is not kept: %s", record.topic, record.partition, failure)
