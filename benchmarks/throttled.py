"""Reads as a consumer of limited capacity, with any client.

Records are handled one after the other, each for its size divided by the capacity. Prefetching is
limited by the SDK's throttle to a tenth of a second of work.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Event
from time import time
from typing import Any

from trimtab.common.clock import SystemClock
from trimtab.consumer_sdk.consumer.fetch_throttle import FetchThrottle

FETCH = 200


@dataclass(frozen=True, slots=True)
class Handled:
    """A handled record: production time (epoch), seconds until handled, bytes."""

    partition: int
    offset: int
    produced: float
    took: float
    size: int


def read_throttled(
    consumer: Any, capacity: float, stop: Event, timeout: float = 0.02
) -> Iterator[Sequence[Handled]]:
    """Read at most `capacity` bytes/s until `stop` is set; yield the records of each fetch."""
    throttle = FetchThrottle(SystemClock(), capacity, capacity)
    free_at = 0.0
    while not stop.is_set():
        messages = consumer.consume(throttle.limit_records(FETCH), timeout=timeout)
        free_at = max(free_at, time())
        batch: list[Handled] = []
        for message in messages:
            size = len(message.value())
            free_at += size / capacity
            at = message.timestamp()[1] / 1000
            batch.append(Handled(message.partition(), message.offset(), at, free_at - at, size))
        yield batch
        throttle.record_fetch(sum(h.size for h in batch), len(batch))
        while (wait := throttle.remaining_wait_s()) > 0 and not stop.is_set():
            stop.wait(min(wait, 0.05))
