"""`trimtab ingest` as a process, on a topic with COUNT records."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Final

import yaml
from confluent_kafka import Consumer, Producer, TopicPartition

from object_store.readers import sort_rows
from support.lake.change_records import ChangeRecord, Row, draw_changes, replay, to_bytes

COUNT: Final = 4000
PARTITIONS: Final = 4
END_SECONDS: Final = 120  # of a busy machine
KEYS: Final = 60
CHANGES: Final = 400  # of each half
ALL_PLACES: Final = list(product(range(PARTITIONS), range(COUNT // PARTITIONS)))
"""Partition and offset of each record."""

CHANGE_SETTINGS: Final = {
    "lake.decoder": "json",
    "lake.schema": "id BIGINT, name STRING, n BIGINT",
    "lake.write": "upsert",
    "lake.key": "id",
}


def produce(bootstrap: str, topic: str) -> None:
    """Write COUNT records, round robin."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for n in range(COUNT):
        producer.produce(topic, b"x" * 100, str(n).encode(), n % PARTITIONS)
    assert producer.flush(60) == 0


def produce_changes(bootstrap: str, topic: str, changes: Iterable[ChangeRecord]) -> None:
    """Write changes to the partitions of their keys."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for record in changes:
        key, value = to_bytes(record.key), to_bytes(record.value)
        producer.produce(topic, value, key, partition=record.key["id"] % PARTITIONS)
    assert producer.flush(60) == 0


@dataclass(slots=True)
class Ingest:
    """Processes with one group, topic and log; `close` kills those that are left."""

    topic: str
    folder: Path
    common: dict[str, Any]
    started: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    @property
    def table(self) -> str:
        """A name for the topic's table."""
        return self.topic.replace("-", "_")

    def to_namespace(self, name: str) -> dict[str, Any]:
        """Return the setting that puts the table into a namespace."""
        return {"lake.tables": {self.topic: f"{name}.{self.table}"}}

    def start(self, settings: dict[str, Any], **environ: str) -> "subprocess.Popen[bytes]":
        """Start one process."""
        file = self.folder / f"{len(self.started)}.yaml"
        file.write_text(yaml.safe_dump(self.common | settings))
        command = [sys.executable, "-m", "trimtab.cli", "ingest", "--config", str(file)]
        with (self.folder / "stderr").open("ab") as errors:
            process = subprocess.Popen(command, stderr=errors, env={**os.environ, **environ})
        self.started.append(process)
        return process

    def read_log(self) -> str:
        """Return what all processes have logged."""
        return (self.folder / "stderr").read_text(errors="replace")

    def count_committed(self) -> int:
        """Return the sum of the group's committed offsets."""
        names = ("bootstrap.servers", "group.id")
        consumer = Consumer({name: self.common[name] for name in names})
        found = consumer.committed([TopicPartition(self.topic, n) for n in range(PARTITIONS)], timeout=60)
        consumer.close()
        return sum(max(0, partition.offset) for partition in found)

    def stop(self) -> list[int]:
        """Stop all processes by SIGTERM; return their exit codes."""
        for process in self.started:
            process.send_signal(signal.SIGTERM)
        return [process.wait(END_SECONDS) for process in self.started]

    def close(self) -> None:
        for process in self.started:
            process.kill()
            process.wait()


class ChangedTable:
    """A table of changes by key, and the changes that its topic holds."""

    def __init__(self, ingest: Ingest, read_rows: Callable[[], list[Row]], seed: int) -> None:
        self._ingest = ingest
        self._read_rows = read_rows
        self._chance = random.Random(seed)  # noqa: S311 - test data
        self._written: list[ChangeRecord] = []

    def equals_replay(self) -> bool:
        """Return whether the table has the rows that a replay of its topic in plain Python has."""
        return sort_rows(self._read_rows()) == sort_rows(replay(self._written).values())

    def write_half(self, process: "subprocess.Popen[bytes]", eventually: Callable[..., None]) -> None:
        """Produce changes, and wait until the table has them or the process has ended."""
        half = list(draw_changes(self._chance, CHANGES, KEYS))
        self._written += half
        produce_changes(self._ingest.common["bootstrap.servers"], self._ingest.topic, half)
        eventually(lambda: self.equals_replay() or process.poll() is not None, timeout=90)
        assert self.equals_replay(), self._ingest.read_log()


def make_settings(bootstrap: str, group: str, topic: str) -> dict[str, Any]:
    """Return the settings that all tests share."""
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "session.timeout.ms": 6000,
        "topics": [topic],
        "batch.bytes": "100 kB",
        "batch.max.age": "1 s",
        "lake.flush.timeout": "5 s",
        "spark.master": "local[1]",
        "spark.driver.memory": "512m",
    }
