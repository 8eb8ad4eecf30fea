"""Workers of `bench_queues.py`, each in a process of its own.

python queue_host.py KIND TOPIC CONFIG FILE...

Each handles messages until its standard input ends, and appends to its FILE, after each batch, a
row of three numbers for each message that it is done with: when it was handled (s since the epoch),
when it was first written, which delivery it was. With a batch of 0 it takes one message at a time
and never settles it.

All kinds call the same function for each message (`handle`). What a queue does besides is said of
each message by itself (`ack`, or `retry` where the function asks for it); the plain group commits
its offsets every five seconds, which is all that such a group does.
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
"""How the value of a message begins that fails once."""


class Handler:
    """What is done with a message: its JSON document is read, unless `idle`, and the time noted."""

    def __init__(self, *, idle: bool) -> None:
        self.rows = array("d")
        self._idle = idle

    def __call__(self, raw: Message, delivery: int) -> bool:
        """Handle a message; False if it failed."""
        value = raw.value() or b""
        if not self._idle:
            json.loads(value.lstrip(FAILING))
        if delivery == 1 and value.startswith(FAILING):
            return False
        written = raw.timestamp()[1] if delivery == 1 else _first_written(raw)
        self.rows.extend((time(), written / 1000, delivery))
        return True


def main(kind: str, topic: str, config: str, *files: str) -> None:
    children = [pid for file in files[1:] if (pid := _fork(kind, topic, config, file))]
    _work(kind, topic, json.loads(config), files[0])
    for pid in children:
        os.waitpid(pid, 0)


def _fork(kind: str, topic: str, config: str, file: str) -> int:
    """Start a worker that has imported everything; nothing of Kafka runs yet."""
    pid = os.fork()
    if not pid:
        _work(kind, topic, json.loads(config), file)
        os._exit(0)
    return pid


def _work(kind: str, topic: str, settings: dict[str, Any], file: str) -> None:
    batch, handle = settings.pop("batch"), Handler(idle=settings.pop("idle"))
    stop = Event()
    Thread(target=lambda: (os.read(0, 1), stop.set()), daemon=True).start()
    with Path(file).open("ab", buffering=0) as out:

        def note() -> None:
            if handle.rows:
                out.write(handle.rows.tobytes())
                del handle.rows[:]

        if kind == "plain":
            _plain(topic, settings, stop, batch, handle, note)
        else:
            _queue((kind, topic, settings), stop, batch, handle, note)


def _plain(
    topic: str,
    settings: dict[str, Any],
    stop: Event,
    batch: int,
    handle: Handler,
    note: Callable[[], None],
) -> None:
    with Consumer(settings) as consumer:
        consumer.subscribe([topic])
        while not stop.is_set():
            messages = consumer.consume(1, 0.2)  # as soon as there is one, for the latency
            for message in messages and [*messages, *consumer.consume(batch, 0)]:
                if message.error() is None:
                    handle(message, 1)
            note()


def _queue(
    which: tuple[str, str, dict[str, Any]],
    stop: Event,
    batch: int,
    handle: Handler,
    note: Callable[[], None],
) -> None:
    with open_queue(*which) as queue:
        while not stop.is_set():
            for message in queue.receive(batch or 1, 0.2):
                done = handle(message.raw, message.delivery)
                if batch:
                    message.ack() if done else message.retry()
            note()


def _first_written(raw: Message) -> int:
    """Return when a message that is delivered again was first written, in ms."""
    headers: Any = raw.headers() or ()
    return int(dict(headers).get("trimtab.written") or raw.timestamp()[1])


if __name__ == "__main__":
    main(*sys.argv[1:])
