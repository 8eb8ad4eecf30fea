"""A stream whose partitions write at Zipf rates, with the time of production of each record."""

import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from threading import Event, Thread
from time import monotonic, time
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import Message, Producer

BURST_S: Final = 0.05
"""Seconds of records that are written at once."""


def zipf_rates(partitions: int, total: float, exponent: float, seed: int) -> list[float]:
    """Return records/s by partition: rank ** -exponent, ranks shuffled by `seed`, `total` in all."""
    weights = [rank**-exponent for rank in range(1, partitions + 1)]
    random.Random(seed).shuffle(weights)  # noqa: S311 - not for secrets
    return [total * weight / sum(weights) for weight in weights]


class ZipfStream:
    """Writes to a topic in a thread, within a `with` block, at `rates(seconds since the start)`.

    `written` has the time of production of each acknowledged record, by partition and offset. Records
    are written once, also over a restart of the broker.
    """

    def __init__(
        self, bootstrap: str, topic: str, rates: Callable[[float], Sequence[float]], size: int = 200
    ) -> None:
        self.written: defaultdict[str, dict[int, float]] = defaultdict(dict)
        self.begin = time()
        self._topic, self._rates, self._body = topic, rates, b"x" * size
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True}
        )
        self._stop = Event()
        self._thread = Thread(target=self._run)

    def __enter__(self) -> Self:
        self.begin = time()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Write no more; wait until all is acknowledged."""
        self._stop.set()
        self._thread.join()

    def rates_at(self, at: float) -> Mapping[str, float]:
        """Return the rates by partition at a time, in seconds since the epoch."""
        return {f"{self._topic}-{n}": rate for n, rate in enumerate(self._rates(at - self.begin))}

    def _run(self) -> None:
        start, owed, turn = monotonic(), defaultdict[int, float](float), 0
        while not self._stop.wait(max(0.0, start + turn * BURST_S - monotonic())):
            for number, rate in enumerate(self._rates(turn * BURST_S)):
                owed[number] += rate * BURST_S
                self._write(number, int(owed[number]))
                owed[number] %= 1
            self._producer.poll(0)
            turn += 1
        self._producer.flush()

    def _write(self, partition: int, count: int) -> None:
        now = int(time() * 1000)
        for _ in range(count):
            self._producer.produce(
                self._topic, self._body, partition=partition, timestamp=now, on_delivery=self._delivered
            )

    def _delivered(self, error: Any, message: Message) -> None:
        offset = message.offset()
        assert error is None, error
        assert offset is not None
        self.written[f"{message.topic()}-{message.partition()}"][offset] = message.timestamp()[1] / 1000
