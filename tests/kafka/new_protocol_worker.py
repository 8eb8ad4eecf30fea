"""Worker process of unmodified librdkafka in the new protocol; prints its partitions on SIGTERM."""

import signal
import sys
from threading import Event
from time import monotonic

from confluent_kafka import Consumer


def main(instance: str, bootstrap: str, group: str, topic: str, rate: float) -> None:
    """Read at most `rate` bytes/s until SIGTERM."""
    stop = Event()

    def handle_sigterm(*_: object) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, handle_sigterm)
    config: dict[str, str | int] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "client.id": instance,
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 500,
    }
    consumer = Consumer(config)
    consumer.subscribe([topic])
    while not stop.is_set():
        start = monotonic()
        size = sum(len(m.value() or b"") for m in consumer.consume(200, timeout=0.05))
        stop.wait(max(0.0, size / rate - (monotonic() - start)))
    print(f"SIGTERM while owning {len(consumer.assignment())}", flush=True)  # noqa: T201 - its log
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:5], rate=float(sys.argv[5]))
