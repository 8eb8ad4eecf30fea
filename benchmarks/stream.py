"""A load whose write rates change from tick to tick, for benchmarks with live groups."""

from threading import Event
from time import monotonic, time
from typing import TypeAlias

import numpy as np
from confluent_kafka import Producer

TICK = 2.0
"""Seconds between two changes of the rates."""
TURN = 0.05
"""Seconds of records that the producer writes at once."""

WriteRates: TypeAlias = np.ndarray[tuple[int, int], np.dtype[np.float64]]
"""Bytes/s, ticks x partitions."""


def produce_stream(bootstrap: str, topic: str, write_rates: WriteRates, size: int) -> list[float]:
    """Write the load; return the production time of each record, in seconds since the epoch."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    body, written = b"x" * size, list[float]()
    owed = np.zeros(write_rates.shape[1])
    pause, begin = Event(), monotonic()
    for turn in range(int(len(write_rates) * TICK / TURN)):
        owed += write_rates[int(turn * TURN / TICK)] * TURN / size
        now = time()
        for partition in np.flatnonzero(owed >= 1).tolist():
            for _ in range(int(owed[partition])):
                producer.produce(topic, body, partition=partition, timestamp=int(now * 1000))
                written.append(int(now * 1000) / 1000)
            owed[partition] %= 1
        producer.poll(0)
        pause.wait(max(0.0, begin + (turn + 1) * TURN - monotonic()))
    producer.flush()
    return written
