"""Instances of bench_bounce with Trimtab's or librdkafka's consumer, each on a thread of this process.

bounce_host.py LEAVE TOPIC FOLDER CONFIG NUMBER... - LEAVE is how an instance stops: `drain` hands its
partitions over first, `close` only closes, `plain` is confluent-kafka's consumer, which closes; CONFIG is
the consumers' configuration in JSON, where an instance's number replaces the value "NUMBER". Lines on
standard input start and stop an instance, `start NUMBER`, or `end` the process; an instance replies
`reading NUMBER` at its first record after a start, and `stopped NUMBER`. Each logs a line per record into
FOLDER: partition, offset, monotonic seconds, NUMBER.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Barrier, Thread
from time import monotonic
from typing import IO, Any

from confluent_kafka import Consumer as PlainConsumer

from trimtab.consumer_sdk import Consumer

NUMBER = "NUMBER"
"""Value of a setting that stands for the instance's number."""
DRAINING = 10.0
"""Seconds that an instance waits for the others to take over before it closes."""


def main(leave: str, topic: str, folder: str, config: str, *numbers: str) -> None:
    opened: Any = PlainConsumer if leave == "plain" else Consumer
    logged = Barrier(len(numbers) + 1)
    commands: dict[str, SimpleQueue[str]] = {number: SimpleQueue() for number in numbers}
    for number in numbers:
        settings = {key: number if value == NUMBER else value for key, value in json.loads(config).items()}
        run = Instance(opened, settings, topic, leave == "drain", number, commands[number])
        Thread(target=run.restart_until_end, args=(Path(folder), logged), daemon=True).start()
    forward_commands(commands)
    logged.wait()
    os._exit(0)  # no instance is left to take over


def forward_commands(commands: Mapping[str, "SimpleQueue[str]"]) -> None:
    """Pass the lines of standard input to their instances; return when all of them have been told to end."""
    for line in sys.stdin:
        what, number = line.split()
        if what == "end":
            break
        commands[number].put(what)
    for queue in commands.values():
        queue.put("end")


@dataclass(frozen=True, slots=True)
class Instance:
    """A consumer that is opened and closed as told."""

    opened: Any
    settings: dict[str, Any]
    topic: str
    drains: bool
    number: str
    commands: "SimpleQueue[str]"

    def restart_until_end(self, folder: Path, logged: Barrier) -> None:
        with (folder / f"instance-{self.number}").open("w") as log:
            while self.commands.get() == "start":
                self._run_once(log, logged)
            log.flush()
            logged.wait()

    def _run_once(self, log: IO[str], logged: Barrier) -> None:
        with self.opened(self.settings) as consumer:
            consumer.subscribe([self.topic])
            if read_until_command(consumer, log, self.number, self.commands) == "end":
                log.flush()
                logged.wait()
                self.commands.get()  # the process ends meanwhile, without a close
            if self.drains:
                drain_consumer(consumer, log, self.number)
        print(f"stopped {self.number}\n", end="", flush=True)


def handle_records(consumer: Any, log: IO[str], number: str) -> Iterator[int]:
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
    for count in handle_records(consumer, log, number):
        if count and not reading:
            reading = True
            print(f"reading {number}\n", end="", flush=True)
        with suppress(Empty):
            return commands.get_nowait()
    return "end"


def drain_consumer(consumer: Any, log: IO[str], number: str) -> None:
    """Read until other instances have taken over."""
    consumer.drain()
    end = monotonic() + DRAINING
    for _ in handle_records(consumer, log, number):
        if not consumer.assignment() or monotonic() > end:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
