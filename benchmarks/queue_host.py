"""One worker of `bench_queues.py`, in a process of its own.

python queue_host.py KIND TOPIC CONFIG FILE

It handles messages until its standard input ends, and appends to FILE, after each batch, a row of
three numbers a message: when it was handled (s since the epoch), when it was written, which
delivery it was. With a batch of 0 it takes one message at a time and never settles it.
"""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event, Thread
from time import time
from typing import Any

import numpy as np

from trimtab.consumer_sdk import Consumer
from trimtab.consumer_sdk.queues import open_queue
from trimtab.consumer_sdk.queues.port import Received
from trimtab.consumer_sdk.queues.reading import gather


def main(kind: str, topic: str, config: str, file: str) -> None:
    settings = json.loads(config)
    batch, fail = settings.pop("batch"), settings.pop("fail")
    stop = Event()
    Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    with Path(file).open("ab") as out:
        if kind == "plain":
            _plain(topic, settings, stop, batch, lambda rows: _note(out, rows))
        else:
            _queue((kind, topic, settings), stop, (batch, fail), lambda rows: _note(out, rows))


def _note(out: Any, rows: Sequence[tuple[float, float, int]]) -> None:
    if rows:
        out.write(np.array(rows, dtype=np.float64).tobytes())
        out.flush()


def _plain(
    topic: str, settings: dict[str, Any], stop: Event, batch: int, note: Callable[..., None]
) -> None:
    """Do what a plain group does: read, handle, commit every five seconds."""
    with Consumer(settings) as consumer:
        consumer.subscribe([topic])
        while not stop.is_set():
            messages = gather(consumer, batch, 0.2)
            rows = [(time(), m.timestamp()[1] / 1000, 1) for m in messages if m.value()]
            note(rows)


def _queue(
    which: tuple[str, str, dict[str, Any]],
    stop: Event,
    how: tuple[int, float],
    note: Callable[..., None],
) -> None:
    (batch, fail), number = how, 0
    with open_queue(*which) as queue:
        while not stop.is_set():
            rows = []
            for message in queue.receive(batch or 1, 0.2):
                number += 1
                rows.append((time(), _written(message), message.delivery))
                if not batch:
                    continue
                if message.delivery == 1 and fail and number % round(1 / fail) == 0:
                    message.retry()
                else:
                    message.ack()
            note(rows)


def _written(message: Received) -> float:
    """When the message was first written."""
    if message.delivery > 1:
        for name, value in message.raw.headers() or ():
            if name == "trimtab.written":
                return int(value or 0) / 1000
    return message.raw.timestamp()[1] / 1000


if __name__ == "__main__":
    main(*sys.argv[1:])
