"""`trimtab init` as a process, on a live group of consumers that nobody here wrote."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from time import monotonic

import pytest
from confluent_kafka import Consumer, Producer

from trimtab.assignor.analysis.streams.stream import parse_stream
from trimtab.sidecar.settings.settings import load_settings

pytestmark = pytest.mark.broker
RECORD = b"x" * 1000


@contextmanager
def living_group(bootstrap: str, topic: str, group: str) -> Iterator[None]:
    """Two librdkafka consumers read; 60 kB/s are written to partition 0, 20 kB/s to partition 1."""
    stop = Event()

    def read(name: str) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "client.id": name,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([topic])
        while not stop.is_set():
            consumer.consume(500, 0.2)
        consumer.close()

    def write() -> None:
        producer, begun, written = Producer({"bootstrap.servers": bootstrap}), monotonic(), 0
        while not stop.wait(0.1):
            while written < 80 * (monotonic() - begun):
                producer.produce(topic, RECORD, partition=int(written % 8 >= 6))
                written += 1
            producer.flush()

    threads = [Thread(target=read, args=("one",)), Thread(target=read, args=("two",)), Thread(target=write)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def run_init(bootstrap: str, group: str, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trimtab.cli", "init", "--bootstrap", bootstrap, "--group", group]
    options = [
        "--out",
        str(folder),
        "--duration",
        "8s",
        "--window",
        "2s",
        "--kubeconfig",
        str(folder / "none"),
        *more,
    ]
    return subprocess.run([*command, *options], check=False, capture_output=True, text=True, timeout=300)


def test_the_written_settings_fit_the_group(
    topic: Callable[..., str], bootstrap: str, group: str, tmp_path: Path
) -> None:
    """Topics, clients' protocol, capacity and limits are found out; nothing is overwritten unless forced."""
    name = topic(partitions=2)
    with living_group(bootstrap, name, group):
        done = run_init(bootstrap, group, tmp_path)
        assert done.returncode == 0, done.stderr
        again = run_init(bootstrap, group, tmp_path)
    settings = load_settings(tmp_path / "sidecar.yaml", {})
    assert (settings.group, settings.topics, settings.lead) == (group, (name,), True)
    assert 40_000 < settings.capacity < 90_000  # the busiest consumer's 60 kB/s
    assert "2 members, 2 partitions" in done.stdout
    assert "no comparison" in done.stdout
    assert "fewer" not in done.stdout
    assert "no Kubernetes API server" in done.stdout
    assert f"{group}-lake" in (tmp_path / "ingest.yaml").read_text()
    assert len(parse_stream((tmp_path / "stream.json").read_text()).rates) >= 2
    assert "SIGTERM" in (tmp_path / "way-back.md").read_text()
    assert again.returncode == 2
    assert "add --force to overwrite" in again.stderr
    assert (tmp_path / "stream.json").exists()


def test_a_group_that_does_not_exist_is_named(bootstrap: str, group: str, tmp_path: Path) -> None:
    """Without members, commits and topics there is nothing to find out; no file is left."""
    done = run_init(bootstrap, group, tmp_path)
    assert done.returncode == 2
    assert "is its name right?" in done.stderr
    assert list(tmp_path.iterdir()) == []
