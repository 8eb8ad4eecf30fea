"""The demo's producers: one a topic, each partition at the speed of its walk; they keep a tally.

Rules: a record counts when the broker has acknowledged it. Its sequence number must be the offset
that the broker gave it; anything else is a fault of the show and is told, never hidden.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer

from trimtab.assignor.model import FloatArray, TopicPartition
from trimtab.cli.demo import payload
from trimtab.cli.demo.scenario import RECORD, TICK, Script
from trimtab.common.clock import Clock

SLICE: Final = 0.05  # seconds between two looks at what is due
FLUSH_SECONDS: Final = 30.0


@dataclass(slots=True)
class Tally:
    """What the broker has acknowledged of a partition."""

    records: int = 0
    checksums: int = 0  # sum of the values' CRC-32


@dataclass(slots=True)
class Producers:
    """Write along the script from `start` to `stop`."""

    client: Mapping[str, Any]
    script: Script
    clock: Clock
    tally: dict[TopicPartition, Tally] = field(default_factory=dict[TopicPartition, Tally])
    faults: list[str] = field(default_factory=list[str])
    _ended: Event = field(default_factory=Event)
    _thread: Thread | None = None

    def start(self) -> None:
        """Begin to write, on a thread of its own."""
        self.tally = {p: Tally() for p in self.script.partitions}
        self._thread = Thread(target=self._run, name="demo-producers", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop writing and wait until everything is acknowledged, or told to have failed."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(FLUSH_SECONDS + 5)
            if self._thread.is_alive():
                self.faults.append("the producers could not finish")

    @property
    def records(self) -> int:
        """Records acknowledged so far."""
        return sum(tally.records for tally in self.tally.values())

    def _run(self) -> None:
        try:
            self._write()
        except Exception as error:  # noqa: BLE001 - told at the end, with the verdict
            self.faults.append(f"the producers failed: {error}")

    def _write(self) -> None:
        settings = {**self.client, "enable.idempotence": True, "linger.ms": 20}
        by_topic = {topic: Producer(settings) for topic in self.script.topics}
        pace = Pace(self.script.speeds(), self.clock.monotonic())
        rng = random.Random(self.script.seed)  # noqa: S311 - filler, no secret
        sequences = dict.fromkeys(self.script.partitions, 0)
        while not self._ended.wait(SLICE):
            due = pace.due(self.clock.monotonic())
            for where, count in zip(self.script.partitions, due, strict=True):
                for _ in range(count):
                    record = payload.make(where, sequences[where], RECORD, rng)
                    self._send(by_topic[where.topic], where, sequences[where], record)
                    sequences[where] += 1
            for producer in by_topic.values():
                producer.poll(0)
        for topic, producer in by_topic.items():
            if producer.flush(FLUSH_SECONDS):
                self.faults.append(f"{topic}: some records were never acknowledged")

    def _send(
        self, producer: Producer, where: TopicPartition, sequence: int, record: payload.Record
    ) -> None:
        def told(error: KafkaError | None, message: Message) -> None:
            self._count(where, sequence, record.checksum, error or message.offset())

        while True:
            try:
                producer.produce(
                    where.topic, record.value, record.key, where.partition, on_delivery=told
                )
            except BufferError:  # the broker is slower than the script: wait for room
                producer.poll(SLICE)
            else:
                return

    def _count(
        self, where: TopicPartition, sequence: int, checksum: int, result: KafkaError | int | None
    ) -> None:
        if result != sequence:
            self.faults.append(f"{where}: record {sequence} was answered with {result}")
            return
        tally = self.tally[where]
        tally.records += 1
        tally.checksums += checksum


class Pace:
    """How many records of each partition are due, from speeds (ticks, partitions) in bytes/s."""

    def __init__(self, speeds: FloatArray, now: float) -> None:
        self._speeds = speeds
        self._begun = self._last = now
        self._credit = [0.0] * speeds.shape[1]

    def due(self, now: float) -> list[int]:
        """Return the records that have become due since the last call."""
        tick = min(int((now - self._begun) / TICK), len(self._speeds) - 1)
        passed, self._last = now - self._last, now
        counts: list[int] = []
        for i, speed in enumerate(self._speeds[tick].tolist()):
            whole, self._credit[i] = divmod(self._credit[i] + speed * passed, RECORD)
            counts.append(int(whole))
        return counts
