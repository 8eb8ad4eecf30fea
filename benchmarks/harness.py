"""What the benchmarks share: a broker, filled topics, and the closing line."""

import json
import uuid
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import quantiles
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from trimtab.cli.broker import EmbeddedBroker


def parser(what: str) -> ArgumentParser:
    """Command-line arguments that every benchmark takes."""
    made = ArgumentParser(description=what)
    made.add_argument("--bootstrap", help="a running broker; default: an embedded one")
    return made


@contextmanager
def broker(bootstrap: str | None) -> Iterator[str]:
    """Yield the address of a broker: the given one, or an embedded one for this run."""
    if bootstrap:
        yield bootstrap
        return
    with EmbeddedBroker() as embedded:
        yield embedded.bootstrap


def new_topic(bootstrap: str, partitions: int) -> str:
    """Make a topic with a name of its own."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result()
    return name


def fill(bootstrap: str, topic: str, partitions: int, count: int, size: int) -> None:
    """Write `count` records of `size` bytes, evenly."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "acks": 1})
    body = b"x" * size
    for number in range(count):
        while True:
            try:
                producer.produce(topic, body, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()


def percentile(values: list[float], percent: int) -> float:
    """Return a percentile."""
    return quantiles(values, n=100, method="inclusive")[percent - 1]


def result(figures: dict[str, Any]) -> None:
    """Print the closing line."""
    print("RESULT " + json.dumps(figures))
