"""A pod of bench_autoscale: one consumer with a limited capacity, until SIGTERM.

autoscale_host.py CLIENT NAME FILE CAPACITY CONFIG - CLIENT is `trimtab` or `plain`
(confluent-kafka's consumer); NAME is the pod's name, used as client id; CONFIG is the consumer's
configuration in JSON, with the topic under "topic". Writes a line per record to FILE: partition,
offset, time of production (seconds since the epoch), seconds until handled, bytes. On SIGTERM it
commits the handled records and leaves the group.
"""

import json
import signal
import sys
from pathlib import Path
from threading import Event
from typing import Any

from benchmarks.throttled import read_throttled

TIMEOUT = 0.1
"""Seconds that a fetch waits for records; long, since many processes share the machine."""


def main(client: str, name: str, file: str, capacity: str, config: str) -> None:
    stop = Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    settings = json.loads(config)
    topic = settings.pop("topic")
    consumer = _make_consumer(client, name, settings)
    consumer.subscribe([topic])
    with Path(file).open("a") as log:
        try:
            for batch in read_throttled(consumer, float(capacity), stop, TIMEOUT):
                log.writelines(
                    f"{h.partition} {h.offset} {h.produced:.3f} {h.took:.3f} {h.size}\n" for h in batch
                )
        finally:
            consumer.close()


def _make_consumer(client: str, name: str, settings: dict[str, Any]) -> Any:
    if client == "plain":
        from confluent_kafka import Consumer as PlainConsumer  # noqa: PLC0415 - a pod starts sooner

        own = {"client.id": name, "partition.assignment.strategy": "cooperative-sticky"}
        return PlainConsumer({**settings, **own})
    from trimtab.consumer_sdk import Consumer  # noqa: PLC0415 - as above

    return Consumer({**settings, "trimtab.instance": name})


if __name__ == "__main__":
    main(*sys.argv[1:])
