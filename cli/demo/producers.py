"""Producers of the demo: one per topic, each partition at its own write rate; they keep a tally.

1. A record counts once the broker has acknowledged it.
2. Its sequence number must equal its offset; any difference is reported as a fault of the demo.
"""

import random
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer

from trimtab.assignor.model import FloatArray, TopicPartition
from trimtab.cli.demo.scenario import RECORD_BYTES, WALK_TICK_S, DemoScenario
from trimtab.common.clock import Clock
from trimtab.common.librdkafka_settings import IDEMPOTENT_PRODUCER_SETTINGS

PRODUCE_INTERVAL_S: Final = 0.05
FLUSH_TIMEOUT_S: Final = 30.0
CHECK_DIGITS: Final = 8


@dataclass(frozen=True, slots=True)
class DemoRecord:
    """Key, value and the CRC-32 of the whole value."""

    key: bytes
    value: bytes
    checksum: int


def make_record(where: TopicPartition, sequence: int, size: int, rng: random.Random) -> DemoRecord:
    """Return a record that names its own position; key and value together have `size` bytes.

    The value is "topic partition sequence ", random bytes and 8 hex digits, the CRC-32 of the bytes
    before them. The sequence starts at 0 in each partition and equals the record's offset.
    """
    key = f"{where}-{sequence}".encode()
    head = f"{where.topic} {where.partition} {sequence} ".encode()
    body = head + rng.randbytes(max(0, size - len(key) - len(head) - CHECK_DIGITS))
    value = body + f"{zlib.crc32(body):08x}".encode()
    return DemoRecord(key, value, zlib.crc32(value))


@dataclass(slots=True)
class PartitionTally:
    """Records of a partition that the broker has acknowledged."""

    records: int = 0
    checksums: int = 0  # sum of the values' CRC-32


@dataclass(slots=True)
class DemoProducers:
    """Produces along the scenario from `start` to `stop`."""

    client: Mapping[str, Any]
    scenario: DemoScenario
    clock: Clock
    tally: dict[TopicPartition, PartitionTally] = field(default_factory=dict[TopicPartition, PartitionTally])
    faults: list[str] = field(default_factory=list[str])
    _stopping: Event = field(default_factory=Event)
    _thread: Thread | None = None

    def start(self) -> None:
        """Start to produce on a separate thread."""
        self.tally = {p: PartitionTally() for p in self.scenario.partitions}
        self._thread = Thread(target=self._run, name="demo-producers", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop and wait until every record is acknowledged or has failed."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(FLUSH_TIMEOUT_S + 5)
            if self._thread.is_alive():
                self.faults.append("the producers could not finish")

    @property
    def records(self) -> int:
        """Number of records acknowledged so far."""
        return sum(tally.records for tally in self.tally.values())

    def _run(self) -> None:
        try:
            self._produce()
        except Exception as error:  # noqa: BLE001 - reported with the proof
            self.faults.append(f"the producers failed: {error}")

    def _produce(self) -> None:
        # idempotent: a retry must neither duplicate nor reorder, or offset and sequence differ
        settings = {**self.client, **IDEMPOTENT_PRODUCER_SETTINGS, "linger.ms": 20}
        by_topic = {topic: Producer(settings) for topic in self.scenario.topics}
        pace = RecordPacer(self.scenario.write_rates(), self.clock.monotonic())
        rng = random.Random(self.scenario.seed)  # noqa: S311 - filler, no secret
        sequences = dict.fromkeys(self.scenario.partitions, 0)
        while not self._stopping.wait(PRODUCE_INTERVAL_S):
            due = pace.due_records(self.clock.monotonic())
            for where, count in zip(self.scenario.partitions, due, strict=True):
                for _ in range(count):
                    record = make_record(where, sequences[where], RECORD_BYTES, rng)
                    self._send(by_topic[where.topic], where, sequences[where], record)
                    sequences[where] += 1
            for producer in by_topic.values():
                producer.poll(0)  # runs the delivery callbacks, on this thread: the tally needs no lock
        for topic, producer in by_topic.items():
            if producer.flush(FLUSH_TIMEOUT_S):
                self.faults.append(f"{topic}: some records were never acknowledged")

    def _send(self, producer: Producer, where: TopicPartition, sequence: int, record: DemoRecord) -> None:
        def count(error: KafkaError | None, message: Message) -> None:
            result = error or message.offset()
            if result != sequence:
                self.faults.append(f"{where}: record {sequence} was answered with {result}")
                return
            self.tally[where].records += 1
            self.tally[where].checksums += record.checksum

        while True:
            try:
                producer.produce(where.topic, record.value, record.key, where.partition, on_delivery=count)
            except BufferError:  # the broker is slower than the scenario
                producer.poll(PRODUCE_INTERVAL_S)
            else:
                return


class RecordPacer:
    """Computes the records due per partition from write rates (ticks, partitions) in bytes/s."""

    def __init__(self, rates: FloatArray, now: float) -> None:
        self._rates = rates
        self._started_at = self._last_call_at = now
        self._bytes_due = [0.0] * rates.shape[1]

    def due_records(self, now: float) -> list[int]:
        """Return the number of records due since the last call, per partition."""
        # the load stays at its last value while the scenario's end is awaited
        tick = min(int((now - self._started_at) / WALK_TICK_S), len(self._rates) - 1)
        passed, self._last_call_at = now - self._last_call_at, now
        counts: list[int] = []
        for i, rate in enumerate(self._rates[tick].tolist()):
            # the remainder carries over: a rate of 0.3 records per call is kept in the mean
            whole, self._bytes_due[i] = divmod(self._bytes_due[i] + rate * passed, RECORD_BYTES)
            counts.append(int(whole))
        return counts
