"""`trimtab ingest` as a process, on a real broker: killed at each step, and stopped by a signal."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import ConsumerGroupTopicPartitions, Producer

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.lake.formats.delta.table import DeltaLake
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets
from trimtab.consumer_sdk.lake.writer import ingest

pytestmark = [pytest.mark.spark, pytest.mark.broker]

CRASHING = Path(__file__).parents[1] / "crashing.py"
COUNT = 1200
PARTITIONS = 2
BAD = 7  # every seventh record is not JSON
TRANSFORM = """
def fan_out(frame):
    return {"own": frame, "even": frame.where("id % 2 = 0")}
"""


@dataclass
class Rig:
    """The filled topic of one test, and an ingest for it."""

    bootstrap: str
    group: str
    lake: SparkLake
    namespace: str
    folder: Path
    settings: dict[str, Any]
    ends: dict[TopicPartition, int]
    started: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def start(self, crash_at: str = "", **changes: Any) -> "subprocess.Popen[bytes]":
        """Start `trimtab ingest`."""
        file = self.folder / "ingest.yaml"
        file.write_text(yaml.safe_dump(self.settings | changes))
        path = os.pathsep.join([str(self.folder), os.environ.get("PYTHONPATH", "")])
        environ = {**os.environ, "PYTHONPATH": path}
        program = [str(CRASHING), crash_at] if crash_at else ["-m", "trimtab.cli"]
        command = [sys.executable, *program, "ingest", "--config", str(file)]
        with (self.folder / "stderr").open("wb") as errors:
            made = subprocess.Popen(command, env=environ, stderr=errors)
        self.started.append(made)
        return made

    def read_log(self) -> str:
        return (self.folder / "stderr").read_text()

    def table(self, name: str) -> str:
        return f"{self.namespace}.{name}"

    def is_complete(self) -> bool:
        """Return whether the topic table has all records."""
        return self.count_landed() == sum(self.ends.values())

    def count_landed(self) -> int:
        """Return the number of records below the topic table's offsets."""
        return sum(self.read_offsets().values())

    def read_offsets(self) -> dict[TopicPartition, int]:
        """Return the topic table's offsets."""
        found = self.lake.open_table(self.table("own"))
        offsets = found.read_offsets().offsets if found is not None else CommittedOffsets()
        return dict(offsets.groups.get(self.group, {}))

    def keys(self, name: str) -> list[int]:
        """Return the keys of a table's rows, sorted, with duplicates."""
        rows = self.lake.spark.table(self.table(name)).select("key").collect()
        return sorted(int(row.key) for row in rows)


@pytest.fixture
def rig(request: pytest.FixtureRequest, tmp_path: Path, lake: SparkLake) -> Iterator[Rig]:
    bootstrap, group, namespace, warehouse = map(
        request.getfixturevalue, ["bootstrap", "group", "namespace", "warehouse"]
    )
    topic = request.getfixturevalue("topic")(partitions=PARTITIONS)
    (tmp_path / "fanning.py").write_text(TRANSFORM)
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "session.timeout.ms": 6000,
        "topics": [topic],
        "lake.format": "delta" if isinstance(lake, DeltaLake) else "iceberg",
        "lake.warehouse": str(warehouse),
        "lake.tables": {topic: f"{namespace}.own"},
        "lake.decoder": "json",
        "lake.schema": "id BIGINT",
        "batch.bytes": "60 kB",
        "batch.max.age": "1 s",
        "trimtab.throttle": "300 kB/s",
        "spark.master": "local[1]",
        "spark.driver.memory": "512m",
    }
    made = Rig(bootstrap, group, lake, namespace, tmp_path, settings, produce(bootstrap, topic))
    yield made
    for process in made.started:
        process.kill()
        process.wait(30)


def produce(bootstrap: str, topic: str) -> dict[TopicPartition, int]:
    """Write COUNT records, round robin; return the end offset of each partition."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for n in range(COUNT):
        value = b"bad" if n % BAD == 0 else json.dumps({"id": n, "pad": "x" * 50}).encode()
        producer.produce(topic, value, str(n).encode(), n % PARTITIONS)
    assert producer.flush(60) == 0
    return {TopicPartition(topic, p): COUNT // PARTITIONS for p in range(PARTITIONS)}


@pytest.mark.parametrize(
    ("lake", "step"),
    [
        ("iceberg", "staged"),
        pytest.param("iceberg", "side-tables-committed", marks=pytest.mark.slow),
        pytest.param("delta", "side-tables-committed", marks=pytest.mark.slow),
        pytest.param("iceberg", "begun", marks=pytest.mark.slow),
        pytest.param("iceberg", "committed", marks=pytest.mark.slow),
        pytest.param("delta", "staged", marks=pytest.mark.slow),
    ],
    indirect=["lake"],
)
def test_records_survive_sigkill_at_each_step_of_a_flush(
    step: str, rig: Rig, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., None]
) -> None:
    """Rows, fan-out rows and dead letters are there once, at whichever step the process is killed."""
    rig.settings["lake.transform"] = "fanning:fan_out"
    assert rig.start(crash_at=f"{step}:2").wait(120) == -signal.SIGKILL, rig.read_log()
    assert not rig.is_complete()
    monkeypatch.syspath_prepend(rig.folder)
    stop = threading.Event()
    arguments = (ingest.parse_ingest_settings(rig.settings), rig.lake, stop)
    again = threading.Thread(target=ingest.run_ingest, args=arguments)
    again.start()
    try:
        eventually(rig.is_complete, timeout=90)
    finally:
        stop.set()
        again.join(60)
    decodable = [n for n in range(COUNT) if n % BAD]
    assert rig.keys("own") == decodable
    assert rig.keys("even") == [n for n in decodable if n % 2 == 0]
    assert rig.keys("own_dead_letter") == list(range(0, COUNT, BAD))


def test_sigterm_drains_flushes_leaves_and_exits_with_0(
    rig: Rig, admin: Any, eventually: Callable[..., None]
) -> None:
    """Every record that was read is in the table and in Kafka's offsets, and the group is empty."""
    running = rig.start(**{"batch.bytes": "64 MB", "trimtab.throttle": "5 kB/s"})
    eventually(lambda: rig.count_landed() > 0, timeout=90)
    before = rig.count_landed()
    running.send_signal(signal.SIGTERM)
    assert running.wait(60) == 0, rig.read_log()
    assert rig.count_landed() > before  # records of a batch that was not yet due are written, too
    assert committed(admin, rig.group) == rig.read_offsets()
    assert admin.describe_consumer_groups([rig.group])[rig.group].result(30).members == []
    assert "Traceback" not in rig.read_log()


def test_a_killed_jvm_ends_the_process_without_loss(rig: Rig, eventually: Callable[..., None]) -> None:
    """The process exits with 1 and a clear message, and rows and offsets of the table agree."""
    running = rig.start(**{"batch.max.age": "0.5 s", "trimtab.throttle": "5 kB/s"})
    eventually(lambda: rig.count_landed() > 0, timeout=90)
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)
    assert running.wait(60) == 1, rig.read_log()
    assert "the Spark JVM is gone" in rig.read_log()
    assert "Traceback" not in rig.read_log()
    offsets = {p.partition: offset for p, offset in rig.read_offsets().items()}
    below = [n for n in range(COUNT) if n // PARTITIONS < offsets.get(n % PARTITIONS, 0)]
    assert rig.keys("own") == [n for n in below if n % BAD]


def committed(admin: Any, group: str) -> dict[TopicPartition, int]:
    request = [ConsumerGroupTopicPartitions(group)]
    answer = admin.list_consumer_group_offsets(request)[group].result(30)
    return {TopicPartition(p.topic, p.partition): p.offset for p in answer.topic_partitions}
