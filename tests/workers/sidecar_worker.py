"""Worker process for the sidecar's tests: reads at a limited rate; prints its partitions on SIGTERM.

With FILE and a rate the workers share a sink, which all of them together fill at that rate at most.
"""

import signal
import sys
from threading import Event
from time import monotonic
from typing import Any

from shared_sink import reserve_sink

from trimtab.consumer_sdk import Consumer


def main(instance: str, bootstrap: str, group: str, topic: str, rate: float, *shared: str) -> None:
    """Read at most `rate` bytes/s until SIGTERM; `shared` is a sink's FILE and its rate."""
    stop = Event()

    def handle_sigterm(*_: object) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, handle_sigterm)
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "trimtab.instance": instance,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 6000,
        "auto.commit.interval.ms": 500,
    }
    with Consumer(config) as consumer:
        consumer.subscribe([topic])
        while not stop.is_set():
            start = monotonic()
            size = sum(len(m.value() or b"") for m in consumer.consume(60 if shared else 200, timeout=0.05))
            if shared:
                stop.wait(max(0.0, reserve_sink(shared[0], size / float(shared[1])) - monotonic()))
            stop.wait(max(0.0, size / rate - (monotonic() - start)))
        print(f"SIGTERM while owning {len(consumer.assignment())}", flush=True)  # noqa: T201 - its log


if __name__ == "__main__":
    main(*sys.argv[1:5], float(sys.argv[5]), *sys.argv[6:])
