"""Endless worker and tracker processes for `faults.queues` to kill."""

import os
import random
from pathlib import Path
from threading import Event
from typing import Any

from trimtab.consumer_sdk.queues import KmqQueue, RedeliveryTracker
from trimtab.consumer_sdk.queues.message import QueueMessage
from trimtab.consumer_sdk.queues.settings import parse_queue_settings

DROPPED, GIVEN_BACK, SLOW = 0.01, 0.02, 0.05
"""Cumulative shares of the messages; the others are handled at once."""


def work(topic: str, config: dict[str, Any], file: str) -> None:
    """Handle messages; write a line to the file before each acknowledgement."""
    dice = random.Random(os.getpid())  # noqa: S311 - chance, not secrecy
    lines = os.open(file, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    with KmqQueue(topic, config) as queue:
        while True:
            messages = list(queue.receive(50, 0.2))
            dice.shuffle(messages)
            for message in messages:
                _handle(message, lines, dice.random())


def _handle(message: QueueMessage, lines: int, chance: float) -> None:
    if chance < DROPPED:
        return
    if chance < GIVEN_BACK:
        message.retry(delay=0.5)
        return
    if chance < SLOW:
        Event().wait(0.05)
    os.write(lines, (message.value or b"") + b"\n")
    message.ack()


def track(topic: str, config: dict[str, Any], file: str) -> None:
    """Run a tracker as a static member, so that a restart keeps its partitions."""
    named = {**config, "group.instance.id": Path(file).name}
    RedeliveryTracker(parse_queue_settings(topic, named)).run(Event())
