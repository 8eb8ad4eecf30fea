"""`trimtab ingest` as a process, on a real broker: killed at each step of a flush, and told to stop."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk import ingest
from trimtab.consumer_sdk.lake.iceberg import IcebergLake

pytestmark = [pytest.mark.spark, pytest.mark.broker]

COUNT = 3000
BAD = 7  # every seventh record is not JSON
TRANSFORM = """
def fan_out(frame):
    return {"own": frame, "even": frame.where("id % 2 = 0")}
"""


@pytest.fixture
def config(
    bootstrap: str, group: str, namespace: str, warehouse: Path, tmp_path: Path
) -> Callable[..., dict[str, Any]]:
    """Make the configuration of an ingest process, with a transform and the JSON decoder."""
    (tmp_path / "fanning.py").write_text(TRANSFORM)

    def make(topic: str, **changes: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "session.timeout.ms": 6000,
            "topics": [topic],
            "lake.warehouse": str(warehouse),
            "lake.tables": {topic: f"{namespace}.own"},
            "lake.decoder": "json",
            "lake.schema": "id BIGINT",
            "batch.bytes": "40 kB",
            "batch.wait": "1 s",
            "spark.master": "local[1]",
            "spark.driver.memory": "512m",
            **changes,
        }

    return make


@pytest.fixture
def process(
    tmp_path: Path, eventually: Callable[..., None]
) -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """Start `trimtab ingest` with a configuration; whatever still runs at the end is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def start(config: dict[str, Any], crash_at: str = "") -> "subprocess.Popen[bytes]":
        file = tmp_path / "ingest.yaml"
        file.write_text(yaml.safe_dump(config))
        path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        environ = {**os.environ, "TRIMTAB_CRASH_AT": crash_at, "PYTHONPATH": path}
        command = [sys.executable, "-m", "trimtab.cli", "ingest", "--config", str(file)]
        with (tmp_path / "stderr").open("wb") as errors:
            made = subprocess.Popen(command, env=environ, stderr=errors)
        started.append(made)
        return made

    yield start
    for made in started:
        made.kill()
        made.wait(30)


def produce(bootstrap: str, topic: str, partitions: int = 2) -> dict[TopicPartition, int]:
    """Write COUNT records, round robin; return the end offset of each partition."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in range(COUNT):
        value = b"bad" if n % BAD == 0 else json.dumps({"id": n, "pad": "x" * 50}).encode()
        producer.produce(topic, value, str(n).encode(), n % partitions)
    assert producer.flush(60) == 0
    return {TopicPartition(topic, p): COUNT // partitions for p in range(partitions)}


def holds(lake: IcebergLake, table: str, group: str, ends: dict[TopicPartition, int]) -> bool:
    found = lake.open(table)
    marks = found.look().marks if found is not None else None
    return marks is not None and all(marks.of(group, p) == end for p, end in ends.items())


def keys(spark: Any, table: str) -> list[int]:
    """Return the keys of a table's rows, sorted, doubles included."""
    return sorted(int(row.key) for row in spark.table(table).select("key").collect())


@pytest.mark.parametrize("step", ["begun", "staged", "sides-committed", "committed"])
def test_records_survive_sigkill_at_each_step_of_a_flush(  # noqa: PLR0913 - the parts of the path
    step: str,
    bootstrap: str,
    topic: Callable[..., str],
    group: str,
    lake: IcebergLake,
    namespace: str,
    config: Callable[..., dict[str, Any]],
    process: Callable[..., "subprocess.Popen[bytes]"],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Callable[..., None],
) -> None:
    """Rows, fanned-out rows and dead letters are each there once, whichever step the process died at."""
    name = topic(partitions=2)
    ends = produce(bootstrap, name)
    settings = config(name, **{"lake.transform": "fanning:fan_out"})
    killed = process(settings, crash_at=f"{step}:2")
    assert killed.wait(120) == -signal.SIGKILL, (tmp_path / "stderr").read_text()
    assert not holds(lake, f"{namespace}.own", group, ends)
    monkeypatch.syspath_prepend(tmp_path)
    stop = threading.Event()
    again = threading.Thread(target=ingest.run, args=(ingest.settings(settings), lake, stop))
    again.start()
    eventually(lambda: holds(lake, f"{namespace}.own", group, ends), timeout=90)
    stop.set()
    again.join(60)
    good = [n for n in range(COUNT) if n % BAD]
    assert keys(lake.spark, f"{namespace}.own") == good
    assert keys(lake.spark, f"{namespace}.even") == [n for n in good if n % 2 == 0]
    letters = keys(lake.spark, f"{namespace}.own_dead_letter")
    assert Counter(letters) == Counter(range(0, COUNT, BAD))


def test_sigterm_drains_flushes_leaves_and_exits_with_0(  # noqa: PLR0913 - the parts of the path
    bootstrap: str,
    topic: Callable[..., str],
    group: str,
    lake: IcebergLake,
    namespace: str,
    admin: Any,
    config: Callable[..., dict[str, Any]],
    process: Callable[..., "subprocess.Popen[bytes]"],
    tmp_path: Path,
    eventually: Callable[..., None],
) -> None:
    """What was read is in the table and in Kafka's offsets, and the group is empty."""
    name = topic(partitions=2)
    produce(bootstrap, name)
    running = process(config(name, **{"batch.wait": "0.2 s", "batch.bytes": "64 MB"}))
    eventually(lambda: lake.open(f"{namespace}.own") is not None, timeout=90)
    running.send_signal(signal.SIGTERM)
    assert running.wait(60) == 0, (tmp_path / "stderr").read_text()
    found = lake.open(f"{namespace}.own")
    assert found is not None
    marks = found.look().marks.groups[group]
    described = admin.describe_consumer_groups([group])[group].result(30)
    assert described.members == []
    committed = _committed(admin, group)
    assert committed == marks
    assert "Traceback" not in (tmp_path / "stderr").read_text()


def _committed(admin: Any, group: str) -> dict[TopicPartition, int]:
    from confluent_kafka import ConsumerGroupTopicPartitions  # noqa: PLC0415 - only here

    asked = [ConsumerGroupTopicPartitions(group)]
    answer = admin.list_consumer_group_offsets(asked)[group].result(30)
    return {TopicPartition(p.topic, p.partition): p.offset for p in answer.topic_partitions}
