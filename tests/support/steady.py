"""Producers that write in a background thread until they are stopped."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic
from typing import Any

from confluent_kafka import Producer

SIZE = 200
"""Bytes of a record's value."""


class Background:
    """Calls `_run` in a thread, which produces until `_stop` is set."""

    def __init__(self, bootstrap: str, topic: str, config: Mapping[str, Any] | None = None) -> None:
        common = {"bootstrap.servers": bootstrap, "linger.ms": 10, "enable.idempotence": True}
        self._producer = Producer({**common, **(config or {})})
        self._topic = topic
        self._stop = Event()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.flush(10)

    def _run(self) -> None:
        raise NotImplementedError


class Steady(Background):
    """Produces to each partition at a steady rate: partition n gets (n + 1) x `unit` records/s.

    `born[partition][offset]` is the monotonic time at which the record was produced, if the topic was
    empty at the start.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, unit: float) -> None:
        self.born: list[list[float]] = [[] for _ in range(partitions)]
        self._unit = unit
        super().__init__(bootstrap, topic)

    def _run(self) -> None:
        start = monotonic()
        while not self._stop.wait(0.02):
            for number, born in enumerate(self.born):
                due = int((monotonic() - start) * self._unit * (number + 1))
                for _ in range(due - len(born)):
                    self._producer.produce(self._topic, b"x" * SIZE, partition=number)
                    born.append(monotonic())
            self._producer.poll(0)


@contextmanager
def steady(bootstrap: str, topic: str, partitions: int, unit: float) -> Iterator[Steady]:
    """Produce while the block runs."""
    producer = Steady(bootstrap, topic, partitions, unit)
    try:
        yield producer
    finally:
        producer.stop()
