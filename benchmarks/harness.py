"""Common parts of the benchmarks: broker, filled topics, steady producers, Java, the RESULT line."""

import json
import uuid
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from statistics import quantiles
from threading import Event, Thread
from time import monotonic
from typing import Any, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from trimtab.cli.broker import broker_config
from trimtab.cli.broker.embedded_broker import EmbeddedBroker
from trimtab.consumer_sdk.java.jars import fetch_jars
from trimtab.consumer_sdk.java.java_runtime import require_java

BURST = 0.02
"""Seconds of records that a steady producer writes at once, for fewer requests."""
RECORD_BYTES = 100
"""Size of a steady producer's records."""
NO_PROPERTIES: Mapping[str, str] = {}


class Record(NamedTuple):
    """A record to produce."""

    partition: int
    value: bytes | None
    key: bytes | None = None


def parser(what: str) -> ArgumentParser:
    """Return a parser with the arguments of every benchmark."""
    arguments = ArgumentParser(description=what)
    arguments.add_argument("--bootstrap", help="a running broker; default: an embedded one")
    return arguments


@contextmanager
def broker(bootstrap: str | None, properties: Mapping[str, str] = NO_PROPERTIES) -> Iterator[str]:
    """Yield the address of a broker: that of --bootstrap, or an embedded one with these properties."""
    if bootstrap:
        yield bootstrap
        return
    with EmbeddedBroker(properties=properties) as embedded:
        yield embedded.bootstrap


def new_topic(bootstrap: str, partitions: int, ending: str = "") -> str:
    """Create a topic with a unique name."""
    name = f"bench-{uuid.uuid4().hex[:8]}{ending}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result()
    while admin.list_topics(name, timeout=10).topics[name].error is not None:
        Event().wait(0.05)  # the metadata shows a created topic with a delay
    return name


def delete_topic(bootstrap: str, name: str) -> None:
    """Delete a measured topic, which frees the disk."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([name])[name].result()


def fill(bootstrap: str, topic: str, partitions: int, count: int, bodies: int | Sequence[bytes]) -> None:
    """Write `count` records evenly: of a size in bytes, or the given values in turn."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "acks": 1})
    turn = [b"x" * bodies] if isinstance(bodies, int) else bodies
    for number in range(count):
        _write(producer, topic, Record(number % partitions, turn[number % len(turn)]))
        producer.poll(0)
    producer.flush()


def _write(producer: Producer, topic: str, record: Record) -> None:
    """Write a record, once the producer has room for it."""
    while True:
        try:
            producer.produce(topic, record.value, record.key, partition=record.partition)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def steady_records(partitions: int) -> Iterator[Record]:
    """Yield records of 100 bytes, of the partitions in turn."""
    return cycle([Record(partition, b"x" * RECORD_BYTES) for partition in range(partitions)])


@contextmanager
def produced(
    bootstrap: str, topic: str, partitions: int, rate: float, records: Iterator[Record] | None = None
) -> Iterator[None]:
    """Write `rate` records/s for each partition in a thread, within the context; default: of 100 bytes."""
    with run_thread(_produce, bootstrap, topic, partitions, rate, records or steady_records(partitions)):
        yield


@contextmanager
def run_thread(target: Callable[..., None], *arguments: object) -> Iterator[None]:
    """Run a function in a thread within the context; its last argument is the event that ends it."""
    stop = Event()
    thread = Thread(target=target, args=(*arguments, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _produce(
    bootstrap: str, topic: str, partitions: int, rate: float, records: Iterator[Record], stop: Event
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})
    turn, burst = monotonic(), max(1, round(rate * BURST))
    while not stop.is_set():
        for record in islice(records, burst * partitions):
            _write(producer, topic, record)
        producer.poll(0)
        turn += burst / rate
        stop.wait(max(0.0, turn - monotonic()))
    producer.flush()


def java(program: str, *options: str) -> Sequence[str]:
    """Return the command of a Java program in this folder, with Kafka's classes."""
    jars = fetch_jars("kafka", broker_config.KAFKA_COORDINATES, excludes=broker_config.EXCLUDED_COORDINATES)
    source = Path(__file__).parent / "java" / program
    return (str(require_java()), *options, "-cp", ":".join(map(str, jars)), str(source))


def percentile(values: list[float], percent: int) -> float:
    """Return a percentile."""
    return quantiles(values, n=100, method="inclusive")[percent - 1]


def result(figures: dict[str, Any]) -> None:
    """Print the RESULT line."""
    print("RESULT " + json.dumps(figures), flush=True)
