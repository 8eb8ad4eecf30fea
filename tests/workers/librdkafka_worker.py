"""Unmodified librdkafka consumers for the sidecar's tests, of a limited rate each; SIGTERM ends them.

With FILE and a rate they share a sink, which all of them together fill at that rate at most.
"""

import signal
import sys
from collections.abc import Mapping
from threading import Event, Thread
from time import monotonic

from confluent_kafka import Consumer
from shared_sink import reserve_sink

CLASSIC: dict[str, str | int] = {
    "partition.assignment.strategy": "cooperative-sticky",
    "session.timeout.ms": 6000,
    "heartbeat.interval.ms": 500,
}


def run(membership: Mapping[str, str | int], *arguments: str) -> None:
    """Read until SIGTERM: instance, bootstrap, group, topic, bytes/s of each consumer, how many (1), sink."""
    instance, bootstrap, group, topic, rate, *more = arguments
    count, shared = more[:1], more[1:]
    stop = Event()

    def handle_sigterm(*_: object) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, handle_sigterm)
    settings: dict[str, str | int] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "client.id": instance,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 500,
        **membership,
    }
    threads = [
        Thread(target=read, args=(settings, topic, float(rate), stop, *shared))
        for _ in range(int(*count or "1"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def read(settings: dict[str, str | int], topic: str, rate: float, stop: Event, *shared: str) -> None:
    """Read at most `rate` bytes/s until `stop`, then print how many partitions were owned."""
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    while not stop.is_set():
        start = monotonic()
        size = sum(len(m.value() or b"") for m in consumer.consume(60 if shared else 200, timeout=0.05))
        if shared:
            stop.wait(max(0.0, reserve_sink(shared[0], size / float(shared[1])) - monotonic()))
        stop.wait(max(0.0, size / rate - (monotonic() - start)))
    print(f"SIGTERM while owning {len(consumer.assignment())}", flush=True)  # noqa: T201 - its log
    consumer.close()


if __name__ == "__main__":
    run(CLASSIC, *sys.argv[1:])
