"""Unmodified librdkafka consumer for the sidecar's tests: reads at a limited rate; SIGTERM ends it."""

import signal
import sys
from collections.abc import Mapping
from threading import Event
from time import monotonic

from confluent_kafka import Consumer

CLASSIC: dict[str, str | int] = {
    "partition.assignment.strategy": "cooperative-sticky",
    "session.timeout.ms": 6000,
    "heartbeat.interval.ms": 500,
}


def run(
    membership: Mapping[str, str | int], instance: str, bootstrap: str, group: str, topic: str, rate: str
) -> None:
    """Read at most `rate` bytes/s until SIGTERM, then print how many partitions it owned."""
    stop = Event()

    def handle_sigterm(*_: object) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, handle_sigterm)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": instance,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 500,
            **membership,
        }
    )
    consumer.subscribe([topic])
    while not stop.is_set():
        start = monotonic()
        size = sum(len(m.value() or b"") for m in consumer.consume(200, timeout=0.05))
        stop.wait(max(0.0, size / float(rate) - (monotonic() - start)))
    print(f"SIGTERM while owning {len(consumer.assignment())}", flush=True)  # noqa: T201 - its log
    consumer.close()


if __name__ == "__main__":
    run(CLASSIC, *sys.argv[1:])
