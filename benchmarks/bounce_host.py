"""An instance of bench_bounce with Trimtab's or librdkafka's consumer; the process survives restarts.

bounce_host.py LEAVE NUMBER FILE CONFIG - LEAVE is how it stops: `drain` hands its partitions
over first, `close` only closes, `plain` is confluent-kafka's consumer, which closes; CONFIG is the
consumer's configuration in JSON, with the topic under "topic". Lines on standard input start and stop it,
or `end` the process; it replies `reading NUMBER` at its first record after a start, and `stopped NUMBER`.
Logs a line per record: partition, offset, monotonic seconds, NUMBER.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import IO, Any

from confluent_kafka import Consumer as PlainConsumer

from trimtab.consumer_sdk import Consumer

DRAINING = 10.0
"""Seconds that an instance waits for the others to take over before it closes."""


def main(leave: str, number: str, file: str, config: str) -> None:
    commands: SimpleQueue[str] = SimpleQueue()
    Thread(target=listen, args=(commands,), daemon=True).start()
    settings = json.loads(config)
    topic = settings.pop("topic")
    opened: Any = PlainConsumer if leave == "plain" else Consumer
    with Path(file).open("w") as log:
        while commands.get() == "start":
            with opened(settings) as consumer:
                consumer.subscribe([topic])
                if read_until_command(consumer, log, number, commands) == "end":
                    log.flush()
                    os._exit(0)  # no instance is left to take over
                if leave == "drain":
                    drain(consumer, log, number)
            print("stopped", number, flush=True)


def listen(commands: "SimpleQueue[str]") -> None:
    for line in sys.stdin:
        commands.put(line.split()[0])
    commands.put("end")


def handle(consumer: Any, log: IO[str], number: str) -> Iterator[int]:
    """Read forever; yield the number of records of each read, which waits like Java's `poll`."""
    while True:
        first = consumer.poll(0.05)
        polled = [first, *consumer.consume(500, timeout=0)] if first else []
        messages = [m for m in polled if not m.error()]
        now = monotonic()
        log.writelines(f"{m.partition()} {m.offset()} {now} {number}\n" for m in messages)
        yield len(messages)


def read_until_command(consumer: Any, log: IO[str], number: str, commands: "SimpleQueue[str]") -> str:
    """Read until the next command and return it."""
    reading = False
    for count in handle(consumer, log, number):
        if count and not reading:
            reading = True
            print("reading", number, flush=True)
        with suppress(Empty):
            return commands.get_nowait()
    return "end"


def drain(consumer: Any, log: IO[str], number: str) -> None:
    """Read until other instances have taken over."""
    consumer.drain()
    end = monotonic() + DRAINING
    for _ in handle(consumer, log, number):
        if not consumer.assignment() or monotonic() > end:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
