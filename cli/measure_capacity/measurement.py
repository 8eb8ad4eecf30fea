"""Measures the throughput of one consumer with a backlog, from the first record to the last commit."""

import random
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from trimtab.cli.measure_capacity.capacity_settings import CapacityCase
from trimtab.common.clock import Clock
from trimtab.common.errors import SettingError
from trimtab.common.units import format_bytes, format_count, format_rate
from trimtab.consumer_sdk import Consumer
from trimtab.consumer_sdk.errors import BrokerUnreachableError, MissingAclError
from trimtab.consumer_sdk.lake.model.interfaces import Lake
from trimtab.consumer_sdk.lake.writer import ingest
from trimtab.consumer_sdk.lake.writer.writer import LakeWriter

PROGRESS_INTERVAL_S: Final = 5.0
VALUE_POOL_BYTES: Final = 16_000_000  # before values repeat: more than the window of a compressor
_BUFFER_FULL_WAIT_S: Final = 0.1
METADATA_TIMEOUT_S: Final = 30.0
_METADATA_POLL_S: Final = 0.05

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CaseThroughput:
    """Bytes of keys and values that a case ingested, and the seconds that it took."""

    case: CapacityCase
    size: int
    seconds: float

    @property
    def rate(self) -> float:
        """Bytes/s."""
        return self.size / self.seconds


@dataclass(frozen=True, slots=True)
class CapacityRig:
    """A broker and a started lake; `config` is one of `trimtab ingest` without topics and group."""

    config: Mapping[str, Any]
    client: Mapping[str, Any]  # settings of the connection
    lake: Lake
    name: str  # unique prefix of topics and groups
    clock: Clock
    report: Report

    def measure_case(self, case: CapacityCase, values: Sequence[bytes], label: str) -> CaseThroughput:
        """Fill the topics of a case, ingest them, and delete them."""
        with self._backlog(case, values, label) as (topics, size, records):
            self.report(f"{label}: ingesting into {format_count(case.tables, 'table')}")
            seconds = self._ingest(topics, size, records, label)
        return CaseThroughput(case, size, seconds)

    @contextmanager
    def _backlog(
        self, case: CapacityCase, values: Sequence[bytes], label: str
    ) -> Generator[tuple[list[str], int, int]]:
        """Yield the names of the filled topics, the bytes and the number of their records."""
        partitions = format_count(case.partitions, "partition")
        self.report(f"{label}: producing {format_bytes(case.size)} into {partitions}")
        topics = {f"{self.name}-{label}-{n}": count for n, count in enumerate(case.split_partitions())}
        admin = AdminClient({**self.client})
        for created in admin.create_topics([NewTopic(*topic) for topic in topics.items()]).values():
            created.result()
        try:
            await_topics(admin, topics, self.clock, str(self.client["bootstrap.servers"]))
            yield list(topics), *fill_topics(self.client, topics, case.size, values)
        finally:
            for deleted in admin.delete_topics(list(topics)).values():
                deleted.result()

    def _ingest(self, topics: list[str], size: int, records: int, label: str) -> float:
        given = {**self.config, "group.id": f"{topics[0]}-group", "topics": topics}
        settings = ingest.parse_ingest_settings(given)
        progress = _Progress(self, label, size / records)
        with (
            Consumer(settings.consumer_config, clock=self.clock) as consumer,
            LakeWriter(consumer, settings.lake, lake=self.lake, clock=self.clock) as writer,
        ):
            consumer.subscribe(topics, writer.on_assign, writer.on_revoke, writer.on_lost)
            read, started_at = 0, 0.0
            while read < records:
                messages = consumer.consume(ingest.INGEST_FETCH_RECORDS, timeout=0.2)
                if messages and not read:
                    started_at = self.clock.monotonic()
                writer.write(messages)
                writer.raise_if_halted()  # else it would be waited for
                read += len(messages)
                progress.show(read, records)
            writer.flush()
            return self.clock.monotonic() - started_at


class _Progress:
    """Reports the number of bytes read, every few seconds."""

    def __init__(self, rig: CapacityRig, label: str, record_size: float) -> None:
        self._rig, self._label, self._record_size = rig, label, record_size
        self._shown_at, self._shown = rig.clock.monotonic(), 0

    def show(self, read: int, records: int) -> None:
        now = self._rig.clock.monotonic()
        passed = now - self._shown_at
        if passed < PROGRESS_INTERVAL_S:
            return
        rate = format_rate((read - self._shown) * self._record_size / passed)
        done, whole = (format_bytes(count * self._record_size) for count in (read, records))
        self._rig.report(f"{self._label}: read {done} of {whole}, {rate}")
        self._shown_at, self._shown = now, read


def make_values(size: int) -> list[bytes]:
    """Return values of `size` bytes: JSON with random digits, which compress to about half."""
    rng = random.Random(size)  # noqa: S311 - filler
    return [_make_value(rng, size) for _ in range(max(1, VALUE_POOL_BYTES // max(100, size)))]


def _make_value(rng: random.Random, size: int) -> bytes:
    digits = rng.randbytes(size // 2 + 1).hex()[: max(0, size - len('{"text": ""}'))]
    return f'{{"text": "{digits}"}}'.encode()


def fill_topics(
    client: Mapping[str, Any], topics: Mapping[str, int], size: int, values: Sequence[bytes]
) -> tuple[int, int]:
    """Write values in turn to all partitions in turn until they have `size` bytes.

    Returns the bytes and the number of records. Raises SettingError if the broker refuses one.
    """
    refused = list[str]()

    def note_refusal(error: KafkaError | None, _: object) -> None:
        if error is not None:
            refused.append(error.str())

    producer = Producer({**client, "linger.ms": 50})
    targets = [(topic, number) for topic, count in topics.items() for number in range(count)]
    written = records = 0
    while written < size:
        value = values[records % len(values)]
        topic, number = targets[records % len(targets)]
        try:
            producer.produce(topic, value, partition=number, on_delivery=note_refusal)
        except BufferError:
            producer.poll(_BUFFER_FULL_WAIT_S)
            continue
        written += len(value)
        records += 1
        producer.poll(0)
    producer.flush()
    if refused:  # the consumer would wait for them
        raise SettingError(
            f"the broker refused {format_count(len(refused), 'record')} of the measurement: {refused[0]}. "
            "Grant Write on topics of the prefix trimtab-capacity-, or measure smaller records (--values)"
        )
    return written, records


def await_topics(admin: AdminClient, topics: Iterable[str], clock: Clock, bootstrap: str) -> None:
    """Wait until the metadata shows created topics. Raises MissingAclError, BrokerUnreachableError."""
    deadline = clock.monotonic() + METADATA_TIMEOUT_S
    for name in topics:
        while (error := admin.list_topics(name, timeout=METADATA_TIMEOUT_S).topics[name].error) is not None:
            if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise MissingAclError(
                    f"topic {name} was created, but may not be read: grant Describe and Read on topics of "
                    "the prefix trimtab-capacity-"
                )
            if clock.monotonic() > deadline:
                raise BrokerUnreachableError(
                    bootstrap, f"topic {name} was created {METADATA_TIMEOUT_S:.0f} s ago: {error.str()}"
                )
            clock.sleep(_METADATA_POLL_S)  # the metadata shows a created topic with a delay
