"""`trimtab record` as a process, against a real broker: what it saves is a stream."""

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

import pytest
from confluent_kafka import Producer

from trimtab.assignor.analysis.streams.stream import WriteRateStream, parse_stream
from trimtab.common.control_topics.write_rates import PartitionLoad, TopicWriteRates

pytestmark = pytest.mark.broker
TRIMTAB = (sys.executable, "-m", "trimtab.cli")
SIZE = 200
RATE = 100  # records/s of partition 0; partition 1 gets twice as many


@contextmanager
def repeated(act: Callable[[float], None], every: float) -> Iterator[None]:
    """Call `act` with the seconds since the start, again and again, on a thread of its own."""
    stop, begun = Event(), monotonic()

    def run() -> None:
        while not stop.wait(every):
            act(monotonic() - begun)

    thread = Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def written(bootstrap: str, topic: str) -> Callable[[float], None]:
    """Return what keeps two partitions at their rates."""
    producer, sent = Producer({"bootstrap.servers": bootstrap, "linger.ms": 10}), [0, 0]

    def act(seconds: float) -> None:
        for partition in (0, 1):
            due = int(seconds * RATE * (partition + 1))
            for _ in range(due - sent[partition]):
                producer.produce(topic, b"x" * SIZE, partition=partition)
            sent[partition] = due
        producer.flush()

    return act


def published(bootstrap: str, topic: str, group: str) -> Callable[[float], None]:
    """Return what publishes speeds as a sidecar does: one known, one unknown."""
    producer = Producer({"bootstrap.servers": bootstrap})

    def act(_: float) -> None:
        partitions = {0: PartitionLoad(1234.5), 1: PartitionLoad(None)}
        speeds = TopicWriteRates(group, "orders", time(), 1.0, "offsets", partitions)
        producer.produce(topic, speeds.encode(), speeds.key)
        producer.flush()

    return act


def words(bootstrap: str, group: str, out: Path, *more: str) -> list[str]:
    return [*(*TRIMTAB, "record", "--bootstrap", bootstrap, "--group", group), *("--out", str(out), *more)]


def call(*arguments: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words(*arguments), capture_output=True, text=True, check=False)


def test_a_group_that_is_not_there_is_told(bootstrap: str, group: str, tmp_path: Path) -> None:
    """A group that never read anything is a named error at once, and leaves no file."""
    ended = call(bootstrap, group, tmp_path / "stream.json", "--window", "1 s")
    assert ended.returncode == 2
    assert "reads nothing and never committed" in ended.stderr
    assert not (tmp_path / "stream.json").exists()


def read(out: Path) -> WriteRateStream:
    return parse_stream(out.read_bytes())


def test_what_nobody_publishes_is_measured(
    bootstrap: str, topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    """Without a sidecar the speeds are measured, a tick a window, near the producer's rates."""
    name, out = topic(partitions=2), tmp_path / "stream.json"
    with repeated(written(bootstrap, name), 0.02):
        ended = call(bootstrap, group, out, "--topics", name, "--window", "2 s", "--duration", "8s")
    assert ended.returncode == 0, ended.stderr
    stream = read(out)
    ticks = len(stream.rates)
    assert ticks >= 2  # how many of the four are in time is up to the machine
    assert f"{ticks} ticks of 2 s (measured), 2 partitions" in ended.stdout
    assert [str(p) for p in stream.partitions] == [f"{name}-0", f"{name}-1"]
    for column, rate in enumerate((RATE * SIZE, 2 * RATE * SIZE)):
        assert stream.rates[1:, column] == pytest.approx(rate, rel=0.3)
    assert call(bootstrap, group, out).stderr.startswith("trimtab: --out: ")


def test_a_sidecars_speeds_are_taken_and_ctrl_c_keeps_them(
    bootstrap: str, topic: Callable[..., str], group: str, tmp_path: Path, eventually: Any
) -> None:
    """What a sidecar publishes is saved; what was never known is not; SIGINT ends it with 0."""
    out, config, name = tmp_path / "stream.json", tmp_path / "sidecar.yaml", topic(partitions=1)
    config.write_text(f"write-rate-topic: {name}\n")
    command = words(bootstrap, group, out, "--config", str(config))
    with ExitStack() as stack:
        publish = published(bootstrap, name, group)
        publish(0)
        stack.enter_context(repeated(publish, 0.3))
        process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(process.kill)
        eventually(lambda: out.exists() and out.read_bytes() and len(json.loads(out.read_text())))
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        said = process.stdout.read()
    assert process.returncode == 0
    assert "(published by a sidecar), 1 partition," in said
    stream = read(out)
    assert [str(p) for p in stream.partitions] == ["orders-0"]
    assert stream.rates.min() == stream.rates.max() == 1234.5


def test_a_recording_that_is_too_short_leaves_no_file(
    bootstrap: str, topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    """Less than one window would be nothing: it is said at once, and there is no empty stream."""
    out = tmp_path / "stream.json"
    ended = call(bootstrap, group, out, "--topics", topic(), "--duration", "1s")
    assert ended.returncode == 2
    assert "--duration '1s' is less than one tick (30 s, measured)" in ended.stderr
    assert not out.exists()
