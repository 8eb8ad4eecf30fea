"""What runs in the processes that `faults.queues` kills: one worker, or one tracker, for ever."""

import os
import random
from pathlib import Path
from threading import Event
from typing import Any

from trimtab.consumer_sdk.queues import KmqQueue, RedeliveryTracker
from trimtab.consumer_sdk.queues.message import QueueMessage
from trimtab.consumer_sdk.queues.settings import parse_queue_settings

DROPPED, GIVEN_BACK, SLOW = 0.01, 0.02, 0.05
"""Shares of the messages; the rest is handled at once."""


def work(topic: str, config: dict[str, Any], file: str) -> None:
    """Handle messages; each that is handled is a line of the file before it is acknowledged."""
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
    """Bring back what nobody settles; one that is started again has its old place in the group."""
    named = {**config, "group.instance.id": Path(file).name}
    RedeliveryTracker(parse_queue_settings(topic, named)).run(Event())
