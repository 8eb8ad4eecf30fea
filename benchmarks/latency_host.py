"""The consumers of bench_latency, threads of one process, each with a throttled capacity.

latency_host.py CLIENT COUNT CAPACITY FILE CONFIG - CLIENT is `trimtab` or `plain`, which is
confluent-kafka's own consumer; CAPACITY is bytes/s of one consumer; CONFIG is the consumers', in
JSON, with the topic under "topic". Prints `reading` when every consumer has joined; ends on the end
of standard input. Writes a line a record: when it was produced (seconds since the epoch), seconds
until it was handled, bytes.

A consumer handles one record after the other and is busy with each for its bytes over the capacity.
What it has fetched ahead is bounded by the SDK's throttle to a tenth of a second of work.
"""

import json
import sys
from pathlib import Path
from threading import Event, Lock, Thread
from time import time
from typing import Any

from confluent_kafka import Consumer as PlainConsumer

from trimtab.assignor.clock import SystemClock
from trimtab.consumer_sdk import Consumer
from trimtab.consumer_sdk.throttle import Throttle

FETCH = 200


def main(client: str, count: str, capacity: str, file: str, config: str) -> None:
    settings = json.loads(config)
    topic = settings.pop("topic")
    stop, lock = Event(), Lock()
    joined: list[Event] = [Event() for _ in range(int(count))]
    lines: list[str] = []

    def run(number: int) -> None:
        consumer = _made(client, number, settings)
        consumer.subscribe([topic], on_assign=lambda *_: joined[number].set())
        try:
            read(consumer, float(capacity), stop, lines, lock)
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


def _made(client: str, number: int, settings: dict[str, Any]) -> Any:
    if client == "plain":
        return PlainConsumer({**settings, "partition.assignment.strategy": "range"})
    return Consumer({**settings, "trimtab.instance": f"consumer-{number}"})


def read(consumer: Any, capacity: float, stop: Event, lines: list[str], lock: Lock) -> None:
    throttle = Throttle(SystemClock(), capacity, capacity)
    free_at = 0.0
    while not stop.is_set():
        messages = consumer.consume(throttle.batch(FETCH), timeout=0.02)
        free_at = max(free_at, time())
        handled: list[str] = []
        for message in messages:
            size = len(message.value())
            free_at += size / capacity
            produced = message.timestamp()[1] / 1000
            handled.append(f"{produced:.3f} {free_at - produced:.3f} {size}\n")
        with lock:
            lines += handled
        throttle.take(sum(len(m.value()) for m in messages), len(messages))
        while (wait := throttle.wait()) > 0 and not stop.is_set():
            stop.wait(min(wait, 0.05))


if __name__ == "__main__":
    main(*sys.argv[1:])
