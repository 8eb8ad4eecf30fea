"""Helpers of tests that work with queues, or scale their workers as processes or pods."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any, Final

import yaml
from confluent_kafka import Message, Producer

from trimtab.consumer_sdk.queues import MessageQueue, QueueMessage
from trimtab.consumer_sdk.queues.kmq.redelivery_tracker import RedeliveryTracker
from trimtab.consumer_sdk.queues.settings import parse_queue_settings

WORKER: Final = Path(__file__).parents[2] / "examples" / "queue_worker.py"


def write_messages(bootstrap: str, topic: str, count: int, partitions: int) -> set[str]:
    """Write `count` numbered messages of 100 bytes, spread over the partitions; return them."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    values = [f"order {number:<94}" for number in range(count)]
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions)
    producer.flush()
    return {value.strip() for value in values}


def handled_messages(text: str) -> set[str]:
    """Return the messages that workers have printed."""
    return {line.strip() for line in text.splitlines() if line.startswith("order ")}


def receive_messages(queue: MessageQueue, count: int, seconds: float = 40) -> list[QueueMessage]:
    """Receive `count` messages, or those that arrive within `seconds`."""
    messages, deadline = list[QueueMessage](), monotonic() + seconds
    while len(messages) < count and monotonic() < deadline:
        messages += queue.receive(count - len(messages), 0.2)
    return messages


def sorted_values(messages: list[QueueMessage]) -> list[str]:
    return sorted((m.value or b"").decode() for m in messages)


def decode_headers(message: Message) -> Mapping[str, str]:
    return {name: value.decode() for name, value in message.headers() or []}


@contextmanager
def running_tracker(topic: str, config: Mapping[str, Any]) -> Iterator[None]:
    """Run a redelivery tracker in a thread."""
    stop = Event()
    thread = Thread(target=RedeliveryTracker(parse_queue_settings(topic, config)).run, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)


class Sidecar:
    """A sidecar process that scales a queue's workers between 0 and 3."""

    def __init__(self, folder: Path, bootstrap: str, group: str, topic: str, kind: str) -> None:
        self._folder, self._process = folder, None
        self._names = (bootstrap, topic, group, kind)
        self._body = {
            "bootstrap": bootstrap, "group": group, "topics": topic, "queue": kind,
            "capacity": "800 B/s", "min": 0, "max": 3, "offset-reset": "earliest",
            "interval": "500 ms", "window": "3 s", "cooldown": "1 s",
            "scale-down-stabilization-window": "2 s", "idle-after": "3 s",
            "catch-up-time": "5 s", "backlog-grace": "1 s",
        }  # fmt: skip

    def worker(self, instance: str) -> list[str]:
        """Return the command line of a worker."""
        return [sys.executable, str(WORKER), instance, *self._names]

    def start(self, **settings: Any) -> None:
        config = self._folder / "sidecar.yaml"
        extra = {name.replace("_", "-"): value for name, value in settings.items()}
        config.write_text(yaml.safe_dump({**self._body, **extra}))
        command = [sys.executable, "-m", "trimtab.cli", "sidecar", "-c", str(config)]
        with (self._folder / "sidecar.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def read_log(self) -> str:
        return (self._folder / "sidecar.log").read_text()

    def close(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            assert self._process.wait(60) == 0
