"""Writing to Kafka and knowing that it is kept: every replica that must have it has it."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Raw

from trimtab.assignor.clock import Clock

log = logging.getLogger("trimtab.queues")

POLL: Final = 0.002
"""Seconds of one wait for receipts."""

FULL: Final = 0.1
"""Seconds of one wait for room in the client's own queue."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record to write."""

    topic: str
    partition: int
    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


Answered: TypeAlias = Callable[[Record, str], None]
"""Told what became of a record: an empty string if it is kept, else why it may not be."""


class Writer:
    """An idempotent producer; may be used by several threads."""

    def __init__(self, client: Mapping[str, Any], clock: Clock) -> None:
        self._clock = clock
        ours = {"enable.idempotence": True, "linger.ms": 1, "log_level": 3}
        self._producer = Producer({**client, **ours})

    def send(self, record: Record, answered: Answered) -> None:
        """Write a record in the background; `answered` is called by whoever polls or flushes."""
        try:
            self._produce(record, partial(_report, record, answered))
        except KafkaException as error:
            answered(record, error.args[0].str())

    def write(self, records: Sequence[Record], timeout: float) -> dict[int, str]:
        """Write records and wait; return those that may not be kept: place → why."""
        answers: list[tuple[int, str]] = []  # only ever added to, by whichever thread polls
        for place, record in enumerate(records):
            try:
                self._produce(record, partial(_answer, answers, place))
            except KafkaException as error:
                answers.append((place, error.args[0].str()))
        deadline = self._clock.monotonic() + timeout
        while len(answers) < len(records) and self._clock.monotonic() < deadline:
            self._producer.poll(POLL)
        said = {**dict.fromkeys(range(len(records)), "no answer in time"), **dict(answers)}
        return {place: why for place, why in said.items() if why}

    def poll(self) -> None:
        """Serve the receipts of `send`."""
        self._producer.poll(0)

    def flush(self, timeout: float) -> bool:
        """Wait until everything is kept, or has failed; False where it takes longer."""
        return not self._producer.flush(timeout)

    def _produce(self, record: Record, receipt: Callable[[KafkaError | None, Raw], None]) -> None:
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
                self._producer.poll(FULL)
            else:
                return


def _answer(answers: list[tuple[int, str]], place: int, error: KafkaError | None, _: Raw) -> None:
    answers.append((place, "" if error is None else error.str()))


def _report(record: Record, answered: Answered, error: KafkaError | None, _: Raw) -> None:
    answered(record, "" if error is None else error.str())


def tell_unkept(record: Record, why: str) -> None:
    """Say in the log that a marker is not kept; its messages come back."""
    if why:
        log.warning("%s-%d: a marker is not kept: %s", record.topic, record.partition, why)
