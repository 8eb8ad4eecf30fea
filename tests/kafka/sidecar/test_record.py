"""`trimtab record` as a process, against a real broker: the recorded stream and its errors."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread
from time import monotonic, time
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Producer

from trimtab.assignor.analysis.streams.stream import WriteRateStream, parse_stream
from trimtab.common.control_topics.write_rates import PartitionLoad, TopicWriteRates

pytestmark = pytest.mark.broker
TRIMTAB = (sys.executable, "-m", "trimtab.cli")
SIZE = 200
RATE = 100  # records/s of partition 0; partition 1 gets twice the rate


@contextmanager
def call_repeatedly(action: Callable[[float], None], every: float) -> Iterator[None]:
    """Call `action` with the seconds since the start every `every` seconds, in a thread."""
    stop, start = Event(), monotonic()

    def run() -> None:
        while not stop.wait(every):
            action(monotonic() - start)

    thread = Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def make_load_writer(bootstrap: str, topic: str) -> Callable[[float], None]:
    """Return an action that writes to two partitions at their rates."""
    producer, sent = Producer({"bootstrap.servers": bootstrap, "linger.ms": 10}), [0, 0]

    def action(seconds: float) -> None:
        for partition in (0, 1):
            due = int(seconds * RATE * (partition + 1))
            for _ in range(due - sent[partition]):
                producer.produce(topic, b"x" * SIZE, partition=partition)
            sent[partition] = due
        producer.flush()

    return action


def make_rate_publisher(bootstrap: str, topic: str, group: str) -> Callable[[float], None]:
    """Return an action that publishes write rates as a sidecar does: one known, one unknown."""
    producer = Producer({"bootstrap.servers": bootstrap})

    def action(_: float) -> None:
        partitions = {0: PartitionLoad(1234.5), 1: PartitionLoad(None)}
        rates = TopicWriteRates(group, "orders", time(), 1.0, "offsets", partitions)
        producer.produce(topic, rates.encode(), rates.key)
        producer.flush()

    return action


def record_command(bootstrap: str, group: str, out: Path, *more: str) -> list[str]:
    return [*(*TRIMTAB, "record", "--bootstrap", bootstrap, "--group", group), *("--out", str(out), *more)]


def run_record(*arguments: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(record_command(*arguments), capture_output=True, text=True, check=False)


def test_unknown_group_is_an_error(bootstrap: str, group: str, tmp_path: Path) -> None:
    """A group without members and commits is reported at once, and no file is written."""
    completed = run_record(bootstrap, group, tmp_path / "stream.json", "--window", "1 s")
    assert completed.returncode == 2
    assert "reads nothing and never committed" in completed.stderr
    assert not (tmp_path / "stream.json").exists()


def read(out: Path) -> WriteRateStream:
    return parse_stream(out.read_bytes())


def test_rates_are_measured_without_a_sidecar(
    bootstrap: str, topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    """Without a sidecar `record` measures one tick per window, on average within 30 % of what was written.

    The producer catches up after a stall of the machine, in the next tick.
    """
    name, out = topic(partitions=2), tmp_path / "stream.json"
    with call_repeatedly(make_load_writer(bootstrap, name), 0.02):
        completed = run_record(bootstrap, group, out, "--topics", name, "--window", "2 s", "--duration", "8s")
    assert completed.returncode == 0, completed.stderr
    stream = read(out)
    ticks = len(stream.rates)
    assert ticks >= 2  # a slow machine may miss some of the four
    assert f"{ticks} ticks of 2 s (measured), 2 partitions" in completed.stdout
    assert [str(p) for p in stream.partitions] == [f"{name}-0", f"{name}-1"]
    for column, rate in enumerate((RATE * SIZE, 2 * RATE * SIZE)):
        measured = stream.rates[1:, column]
        assert [measured.mean(), np.median(measured)] == pytest.approx([rate, rate], rel=0.3)
    assert run_record(bootstrap, group, out).stderr.startswith("trimtab: --out: ")


def test_published_rates_are_recorded_until_sigint(
    bootstrap: str, topic: Callable[..., str], group: str, tmp_path: Path, eventually: Any
) -> None:
    """Published rates are saved, except partitions without a rate; SIGINT ends the recording with 0."""
    out, config, name = tmp_path / "stream.json", tmp_path / "sidecar.yaml", topic(partitions=1)
    config.write_text(f"write-rate-topic: {name}\n")
    command = record_command(bootstrap, group, out, "--config", str(config))
    with ExitStack() as stack:
        publish = make_rate_publisher(bootstrap, name, group)
        publish(0)
        stack.enter_context(call_repeatedly(publish, 0.3))
        process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(process.kill)
        eventually(lambda: out.exists() and out.read_bytes() and len(json.loads(out.read_text())))
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        output = process.stdout.read()
    assert process.returncode == 0
    assert "(published by a sidecar), 1 partition," in output
    stream = read(out)
    assert [str(p) for p in stream.partitions] == ["orders-0"]
    assert stream.rates.min() == stream.rates.max() == 1234.5


def test_too_short_duration_is_an_error(
    bootstrap: str, topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    """A duration below one tick is reported at once, and no file is written."""
    out = tmp_path / "stream.json"
    completed = run_record(bootstrap, group, out, "--topics", topic(), "--duration", "1s")
    assert completed.returncode == 2
    assert "--duration '1s' is less than one tick (30 s, measured)" in completed.stderr
    assert not out.exists()
