"""Kills a queue's workers and trackers under load and accounts for every message.

    python -m faults.queues --kills 200 --seed 1

A producer writes numbered messages continuously. Three workers handle them: fast, slowly, with a
retry, or drop them unsettled. Two trackers redeliver unsettled messages. Random processes are
killed (SIGKILL) and restarted. At the end every message must have been handled, and every
redelivery written at most 2 s after it was due. Every 50th message has headers that no client
should write, and the markers topic gets bad markers: they end no process. Prints RESULT {json};
exits with 1 on a violation.
"""

import json
import os
import random
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from threading import Event, Thread
from time import monotonic
from typing import Any

from confluent_kafka import Consumer as Plain
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as RawPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaProducer

from faults import queue_processes
from support.hostile_records import BAD_HEADERS, BAD_MARKERS
from trimtab.cli.broker.embedded_broker import EmbeddedBroker
from trimtab.consumer_sdk.readable_headers import keep_readable_headers

TOPIC = "work"
GROUP = "workers"
PARTITIONS = 6
HOSTILE_SHARE = 50  # one of so many messages
WORKERS = ("worker-1", "worker-2", "worker-3")
TRACKERS = ("tracker-1", "tracker-2")
ALLOWED_MS = 2000
"""Maximum milliseconds from a deadline to the redelivery."""

QUIET = 60.0
"""Seconds without a handled message after which missing ones count as lost."""


@dataclass(frozen=True, slots=True)
class QueueRunOptions:
    """A run: number of kills, mean seconds between two, messages/s."""

    kills: int
    seed: int = 1
    pause: float = 0.7
    rate: float = 200.0


class QueueProcesses:
    """The worker and tracker processes by name."""

    def __init__(self, config: dict[str, Any], folder: Path) -> None:
        self._config = config
        self._folder = folder
        self._context = get_context("forkserver")
        self._context.set_forkserver_preload(["faults.queue_processes"])
        self._running: dict[str, BaseProcess] = {}

    def start(self, name: str) -> None:
        target = queue_processes.work if name in WORKERS else queue_processes.track
        process = self._context.Process(
            target=target, args=(TOPIC, self._config, str(self._folder / name)), name=name
        )
        process.start()
        self._running[name] = process

    def kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.kill()
        process.join()
        process.close()

    def died(self) -> list[str]:
        """Return the processes that ended without a kill."""
        return [name for name, process in self._running.items() if not process.is_alive()]

    def close(self) -> None:
        for name in list(self._running):
            self.kill(name)


class Traffic:
    """Producer thread of numbered messages at a steady rate; from `disturb` on some are hostile."""

    def __init__(self, bootstrap: str, rate: float) -> None:
        self.written = 0
        self.hostile = 0  # messages and markers
        self._disturbs = Event()
        self._producer = Producer({"bootstrap.servers": bootstrap})
        self._hostile_producer: Any = KafkaProducer(bootstrap_servers=bootstrap)
        self._rate = rate
        self._stop = Event()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def disturb(self) -> None:
        """Write hostile records from now on; the markers topic must exist."""
        self._disturbs.set()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._hostile_producer.close()
        assert not self._producer.flush(30), "the producer's messages are not kept"

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            for _ in range(round(self._rate * 0.05)):
                if self._disturbs.is_set() and self.written % HOSTILE_SHARE == 0:
                    self._write_hostile()
                else:
                    self._producer.produce(TOPIC, str(self.written), partition=self.written % PARTITIONS)
                self.written += 1
            self._producer.poll(0)

    def _write_hostile(self) -> None:
        value, partition = str(self.written).encode(), self.written // HOSTILE_SHARE % PARTITIONS
        self._hostile_producer.send(TOPIC, value, headers=BAD_HEADERS, partition=partition)
        marker = BAD_MARKERS[self.hostile // 2 % len(BAD_MARKERS)]
        self._producer.produce(f"{TOPIC}.{GROUP}.markers", marker, partition=partition)
        self.hostile += 2


def run(options: QueueRunOptions, say: Any = lambda _: None) -> dict[str, Any]:
    """Run the scenario; return the figures of the RESULT line."""
    dice = random.Random(options.seed)  # noqa: S311 - the same seed, the same kills
    with (
        EmbeddedBroker() as broker,
        TemporaryDirectory() as found,
        _running_processes(broker, found) as processes,
    ):
        folder, traffic = Path(found), Traffic(broker.bootstrap, options.rate)
        try:
            _wait(lambda: len(handled(folder)) > options.rate, 60)
            traffic.disturb()
            for number in range(options.kills):
                Event().wait(dice.uniform(0.5, 1.5) * options.pause)
                assert not processes.died(), processes.died()
                victim = dice.choice([*WORKERS, *TRACKERS])
                processes.kill(victim)
                processes.start(victim)
                if number % 20 == 19:
                    say(f"{number + 1} kills, {len(handled(folder))} of {traffic.written} handled")
        finally:
            traffic.stop()
        missing = _settle(folder, traffic.written)
        lateness = redeliveries(broker.bootstrap)
    return {**figures(options, traffic.written, missing, lateness), "hostile": traffic.hostile}


@contextmanager
def _running_processes(broker: EmbeddedBroker, folder: str) -> Iterator[QueueProcesses]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
    config = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": GROUP,
        "session.timeout.ms": 1000,  # a dead tracker keeps its partitions that long
        "heartbeat.interval.ms": 100,
        "trimtab.queue.timeout": "3 s",
        "trimtab.queue.max.deliveries": 1000,  # no dead letters
    }
    processes = QueueProcesses(config, Path(folder))
    try:
        for name in (*WORKERS, *TRACKERS):
            processes.start(name)
        yield processes
    finally:
        processes.close()


def handled(folder: Path) -> set[int]:
    """Return the handled messages."""
    lines = (p.read_bytes().split(b"\n") for p in folder.iterdir() if p.name in WORKERS)
    return {int(line) for found in lines for line in found[:-1]}


def _settle(folder: Path, written: int) -> set[int]:
    """Wait until all messages are handled, or none for `QUIET`; return the missing ones."""
    left, since = set(range(written)), monotonic()
    while left and monotonic() - since < QUIET:
        Event().wait(0.2)
        before, left = len(left), left - handled(folder)
        if len(left) < before:
            since = monotonic()
    return left


def redeliveries(bootstrap: str) -> list[int]:
    """Return the delay of each redelivery after its deadline, in ms."""
    found: list[int] = []
    consumer = Plain({"bootstrap.servers": bootstrap, "group.id": "looks-only"})
    for number in range(PARTITIONS):
        low, high = consumer.get_watermark_offsets(RawPartition(TOPIC, number), 10)
        consumer.assign([RawPartition(TOPIC, number, low)])
        while low < high:
            messages = consumer.consume(1000, 0.5)
            keep_readable_headers(messages)
            for message in messages:
                low = message.offset() + 1
                due = dict(message.headers() or []).get("trimtab.due")
                if due is not None:
                    found.append(max(0, message.timestamp()[1] - int(due)))
    consumer.close()
    return found


def figures(options: QueueRunOptions, written: int, missing: set[int], lateness: list[int]) -> dict[str, Any]:
    """Return the figures of the RESULT line; `late_ms` has percentiles of the delays."""
    shares = quantiles(lateness, n=100, method="inclusive") if len(lateness) > 1 else [0] * 99
    late = {"p50": round(shares[49]), "p99": round(shares[98]), "max": max(lateness, default=0)}
    return {
        "kills": options.kills,
        "seed": options.seed,
        "messages": written,
        "lost": len(missing),
        "redelivered": len(lateness),
        "late_ms": late,
        "beyond_2s": sum(ms > ALLOWED_MS for ms in lateness),
    }


def _wait(condition: Any, seconds: float) -> None:
    deadline = monotonic() + seconds
    while not condition():
        assert monotonic() < deadline, "the workers did not start in time"
        Event().wait(0.1)


def main() -> int:
    parser = ArgumentParser(description="kill a queue's workers and trackers")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="seed of the kills")
    parser.add_argument("--rate", type=float, default=200.0, help="messages/s")
    arguments = parser.parse_args()
    options = QueueRunOptions(arguments.kills, arguments.seed, rate=arguments.rate)
    result = run(options, lambda line: print(line, file=sys.stderr))  # noqa: T201 - how it goes
    print("RESULT " + json.dumps(result))  # noqa: T201 - the program's answer
    return 0 if not result["lost"] and not result["beyond_2s"] else 1


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
