"""Worker processes of `bench_queues.py`.

python queue_host.py KIND TOPIC CONFIG FILE...

Each handles messages until its standard input ends, and after each batch appends to its FILE a row
of three numbers for each finished message: the times of handling and of the first write (s since
the epoch), and the delivery number. With a batch of 0 it takes one message at a time and never
settles it.

All kinds call the same function for each message (`handle`). A queue settles each message (`ack`,
or `retry` if the function fails); the plain group commits its offsets every five seconds.
"""

import json
import os
import sys
from array import array
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from time import time
from typing import Any

from confluent_kafka import Message

from trimtab.consumer_sdk import Consumer
from trimtab.consumer_sdk.queues import open_queue

FAILING = b"!"
"""Prefix of the value of a message that fails once."""


class Handler:
    """Parses a message's JSON document, unless `idle`, and records the time."""

    def __init__(self, *, idle: bool) -> None:
        self.rows = array("d")
        self._idle = idle

    def __call__(self, raw: Message, delivery: int) -> bool:
        """Handle a message; return False if it failed."""
        value = raw.value() or b""
        if not self._idle:
            json.loads(value.lstrip(FAILING))
        if delivery == 1 and value.startswith(FAILING):
            return False
        written = raw.timestamp()[1] if delivery == 1 else _read_first_write(raw)
        self.rows.extend((time(), written / 1000, delivery))
        return True


def main(kind: str, topic: str, config: str, *files: str) -> None:
    children = [pid for file in files[1:] if (pid := _fork_worker(kind, topic, config, file))]
    _run_worker(kind, topic, json.loads(config), files[0])
    for pid in children:
        os.waitpid(pid, 0)


def _fork_worker(kind: str, topic: str, config: str, file: str) -> int:
    """Fork a worker after all imports, before any Kafka client starts its threads."""
    pid = os.fork()
    if not pid:
        _run_worker(kind, topic, json.loads(config), file)
        os._exit(0)
    return pid


def _run_worker(kind: str, topic: str, settings: dict[str, Any], file: str) -> None:
    batch, handle = settings.pop("batch"), Handler(idle=settings.pop("idle"))
    stop = Event()
    Thread(target=lambda: (os.read(0, 1), stop.set()), daemon=True).start()
    with Path(file).open("ab", buffering=0) as out:

        def write_rows() -> None:
            if handle.rows:
                out.write(handle.rows.tobytes())
                del handle.rows[:]

        if kind == "plain":
            _run_plain(topic, settings, stop, batch, handle, write_rows)
        else:
            _run_queue((kind, topic, settings), stop, batch, handle, write_rows)


def _run_plain(
    topic: str,
    settings: dict[str, Any],
    stop: Event,
    batch: int,
    handle: Handler,
    write_rows: Callable[[], None],
) -> None:
    with Consumer(settings) as consumer:
        consumer.subscribe([topic])
        while not stop.is_set():
            messages = consumer.consume(1, 0.2)  # one at once, for the latency
            for message in messages and [*messages, *consumer.consume(batch, 0)]:
                if message.error() is None:
                    handle(message, 1)
            write_rows()


def _run_queue(
    which: tuple[str, str, dict[str, Any]],
    stop: Event,
    batch: int,
    handle: Handler,
    write_rows: Callable[[], None],
) -> None:
    with open_queue(*which) as queue:
        while not stop.is_set():
            for message in queue.receive(batch or 1, 0.2):
                done = handle(message.raw, message.delivery)
                if batch:
                    message.ack() if done else message.retry()
            write_rows()


def _read_first_write(raw: Message) -> int:
    """Return the time of a redelivered message's first write, in ms."""
    headers: Any = raw.headers() or ()
    return int(dict(headers).get("trimtab.written") or raw.timestamp()[1])


if __name__ == "__main__":
    main(*sys.argv[1:])
