"""Queues as processes: the tracker's command, workers that are killed by a message, the demo."""

import json
import signal
import subprocess
import sys
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import Consumer as Plain
from confluent_kafka import Producer

from trimtab.consumer_sdk.queues import KmqQueue

pytestmark = pytest.mark.broker

POISONED = """
import json, os, signal, sys
from trimtab.consumer_sdk.queues import open_queue
with open_queue("kmq", sys.argv[1], json.loads(sys.argv[2])) as queue:
    while True:
        for message in queue.receive(1, 0.5):
            if message.value == b"poison":
                os.kill(os.getpid(), signal.SIGKILL)
            message.ack()
"""


@pytest.fixture
def name(topic: Any, bootstrap: str) -> str:
    """A topic with a message that kills, and one behind it."""
    made: str = topic(partitions=1)
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in ("poison", "good"):
        producer.produce(made, value)
    producer.flush()
    return made


def redeliver(name: str, config: dict[str, Any], **more: Any) -> list[str]:
    words = [f"{key}={value}" for key, value in {**config, **more}.items()]
    command = [sys.executable, "-m", "trimtab.cli", "redeliver", "--topic", name]
    return command + [word for given in words for word in ("--set", given)]


def test_a_message_that_kills_its_worker_ends_in_the_dead_letters(
    name: str, config: dict[str, Any], group: str
) -> None:
    """Each death is a delivery; after the last the tracker gives it up, and the others live."""
    settings = {**config, "trimtab.queue.timeout": "1 s", "trimtab.queue.max.deliveries": 2}
    worker = [sys.executable, "-c", POISONED, name, json.dumps(settings)]
    reader = Plain(
        {
            "bootstrap.servers": config["bootstrap.servers"],
            "group.id": f"{group}-letters",
            "auto.offset.reset": "earliest",
        }
    )
    with subprocess.Popen(redeliver(name, settings)) as tracker:
        try:
            for _ in range(2):
                assert subprocess.run(worker, timeout=90, check=False).returncode == -9
            reader.subscribe([f"{name}.{group}.dead"])
            deadline, letter = monotonic() + 60, None
            while (letter is None or letter.error()) and monotonic() < deadline:
                letter = reader.poll(0.5)
        finally:
            tracker.send_signal(signal.SIGTERM)
    assert tracker.returncode == 0
    assert letter is not None
    assert letter.value() == b"poison"
    headers = dict(letter.headers())
    assert headers["trimtab.delivery"] == b"2"
    assert headers["trimtab.reason"] == b"delivered 2 times, the last delivery ended by timeout"
    assert headers["trimtab.origin"] == f"{name}/0/0".encode()
    reader.close()
    with KmqQueue(name, settings) as queue:
        rest = [m.value for _ in range(20) for m in queue.receive(10, 0.2)]
    assert b"poison" not in rest


@pytest.mark.parametrize("kind", ["kmq", "share"])
def test_the_demo_proves_itself(kind: str, bootstrap: str) -> None:
    """A worker is killed on the way, and every message is handled."""
    command = [sys.executable, "-m", "trimtab.cli", "demo", "--queue", kind]
    done = subprocess.run(
        [*command, "--bootstrap", bootstrap], capture_output=True, text=True, timeout=250, check=False
    )
    assert "a worker is killed" in done.stdout
    assert ", 0 lost" in done.stdout.splitlines()[-1], done.stdout + done.stderr
    assert done.returncode == 0
