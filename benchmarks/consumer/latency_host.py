"""The consumers of bench_latency: threads of one process with a limited capacity.

latency_host.py CLIENT COUNT CAPACITY FILE CONFIG - CLIENT is `trimtab` or `plain`
(confluent-kafka's consumer); CAPACITY is bytes/s per consumer; CONFIG is the consumers' configuration
in JSON, with the topic under "topic". Prints `reading` once every consumer has joined; ends when its
standard input ends. Writes a line per record: time of production (seconds since the epoch), seconds
until handled, bytes.
"""

import json
import sys
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from confluent_kafka import Consumer as PlainConsumer

from benchmarks.throttled import read_throttled
from trimtab.consumer_sdk import Consumer


def main(client: str, count: str, capacity: str, file: str, config: str) -> None:
    settings = json.loads(config)
    topic = settings.pop("topic")
    stop, lock = Event(), Lock()
    joined: list[Event] = [Event() for _ in range(int(count))]
    lines: list[str] = []

    def run(number: int) -> None:
        consumer = _create_consumer(client, number, settings)
        consumer.subscribe([topic], on_assign=lambda *_: joined[number].set())
        try:
            read_records(consumer, float(capacity), stop, lines, lock)
        finally:
            consumer.close()

    threads = [Thread(target=run, args=(number,)) for number in range(int(count))]
    for thread in threads:
        thread.start()
    for event in joined:
        event.wait(60)
    print("reading", flush=True)
    sys.stdin.read()
    stop.set()
    for thread in threads:
        thread.join()
    Path(file).write_text("".join(lines))


def _create_consumer(client: str, number: int, settings: dict[str, Any]) -> Any:
    if client == "plain":
        return PlainConsumer({**settings, "partition.assignment.strategy": "range"})
    return Consumer({**settings, "trimtab.instance": f"consumer-{number}"})


def read_records(consumer: Any, capacity: float, stop: Event, lines: list[str], lock: Lock) -> None:
    for batch in read_throttled(consumer, capacity, stop):
        with lock:
            lines += [f"{h.produced:.3f} {h.took:.3f} {h.size}\n" for h in batch]


if __name__ == "__main__":
    main(*sys.argv[1:])
