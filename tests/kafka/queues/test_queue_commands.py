"""Queue commands as processes: redeliver, workers that a message kills, and the demo."""

import json
import signal
import subprocess
import sys
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
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
def poisoned_topic(topic: Any, bootstrap: str) -> str:
    """A topic with a message that kills its worker, and a second one."""
    topic_name: str = topic(partitions=1)
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in ("poison", "good"):
        producer.produce(topic_name, value)
    producer.flush()
    return topic_name


def redeliver(poisoned_topic: str, config: dict[str, Any], **extra: Any) -> list[str]:
    options = [f"{key}={value}" for key, value in {**config, **extra}.items()]
    command = [sys.executable, "-m", "trimtab.cli", "redeliver", "--topic", poisoned_topic]
    return command + [part for option in options for part in ("--set", option)]


def test_message_that_kills_its_worker_is_dead_lettered(
    poisoned_topic: str, config: dict[str, Any], group: str
) -> None:
    """The tracker counts each killed worker as a delivery and dead-letters the message after the last."""
    settings = {**config, "trimtab.queue.timeout": "1 s", "trimtab.queue.max.deliveries": 2}
    worker = [sys.executable, "-c", POISONED, poisoned_topic, json.dumps(settings)]
    reader = ConfluentConsumer(
        {
            "bootstrap.servers": config["bootstrap.servers"],
            "group.id": f"{group}-letters",
            "auto.offset.reset": "earliest",
        }
    )
    with subprocess.Popen(redeliver(poisoned_topic, settings)) as tracker:
        try:
            for _ in range(2):
                assert subprocess.run(worker, timeout=90, check=False).returncode == -9
            reader.subscribe([f"{poisoned_topic}.{group}.dead"])
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
    assert headers["trimtab.origin"] == f"{poisoned_topic}/0/0".encode()
    reader.close()
    with KmqQueue(poisoned_topic, settings) as queue:
        rest = [m.value for _ in range(20) for m in queue.receive(10, 0.2)]
    assert b"poison" not in rest


@pytest.mark.parametrize("kind", ["kmq", "share"])
def test_queue_demo_loses_no_message(kind: str, bootstrap: str) -> None:
    """The demo kills a worker and still handles every message."""
    command = [sys.executable, "-m", "trimtab.cli", "demo", "--queue", kind]
    completed = subprocess.run(
        [*command, "--bootstrap", bootstrap], capture_output=True, text=True, timeout=250, check=False
    )
    assert "a worker is killed" in completed.stdout
    assert ", 0 lost" in completed.stdout.splitlines()[-1], completed.stdout + completed.stderr
    assert completed.returncode == 0
