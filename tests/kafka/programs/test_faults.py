"""Killed and frozen consumers: others take over; no record is lost or read twice."""

import json
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

pytestmark = pytest.mark.broker

PARTITIONS = 4
Eventually = Callable[..., None]


@dataclass
class Reader:
    """A consumer process and the records that it has returned."""

    process: "subprocess.Popen[bytes]"
    file: Path

    def records(self) -> list[tuple[int, int, float]]:
        lines = self.file.read_text().split("\n")[:-1] if self.file.exists() else []
        fields = (line.split() for line in lines)
        return [(int(partition), int(offset), float(time)) for partition, offset, time in fields]


@pytest.fixture
def name(topic: Callable[..., str]) -> str:
    return topic(partitions=PARTITIONS)


@pytest.fixture(params=["classic", "consumer"])
def read(
    request: pytest.FixtureRequest, config: dict[str, Any], use_protocol: Any, name: str, tmp_path: Path
) -> Iterator[Callable[[str], Reader]]:
    """Start reader processes of both group protocols; kill all at the end."""
    readers: list[Reader] = []
    chosen = use_protocol(config, request.param)
    more = json.dumps({n: value for n, value in chosen.items() if n == "group.protocol"})

    def read(reader_name: str) -> Reader:
        script = Path(__file__).parents[2] / "workers" / "reader.py"
        file = tmp_path / reader_name
        brokers = (config["bootstrap.servers"], config["group.id"])
        command = [sys.executable, str(script), *brokers, name, reader_name, str(file), more]
        readers.append(Reader(subprocess.Popen(command), file))
        return readers[-1]

    yield read
    for reader in readers:
        reader.process.kill()
        reader.process.wait(timeout=10)


@pytest.fixture
def traffic(feed: Any, name: str) -> Iterator[Any]:
    """Write records continuously in a thread."""
    stop = Event()

    def write() -> None:
        while not stop.wait(0.05):
            feed.write(name, PARTITIONS, 2 * PARTITIONS)

    thread = Thread(target=write)
    thread.start()
    yield feed
    stop.set()
    thread.join()


def offsets_by_partition(*readers: Reader) -> dict[int, set[int]]:
    offsets: defaultdict[int, set[int]] = defaultdict(set)
    for reader in readers:
        for partition, offset, _ in reader.records():
            offsets[partition].add(offset)
    return offsets


def caught_up(feed: Any, *readers: Reader) -> bool:
    offsets = offsets_by_partition(*readers)
    return all(len(offsets[p.partition]) >= n - 20 for p, n in list(feed.written.items()))


def test_a_killed_consumer_is_replaced_without_loss(
    read: Callable[[str], Reader], traffic: Any, eventually: Eventually
) -> None:
    """After SIGKILL the other consumer resumes its partitions at the committed offsets."""
    one = read("one")
    eventually(lambda: len({p for p, _, _ in one.records()}) == PARTITIONS)
    two = read("two")
    eventually(lambda: len({p for p, _, _ in two.records()}) == 2)
    one.process.kill()
    eventually(lambda: len({p for p, _, _ in two.records()}) == PARTITIONS, timeout=40)
    eventually(lambda: caught_up(traffic, one, two))
    for offsets in offsets_by_partition(one, two).values():
        assert offsets == set(range(max(offsets) + 1))


def test_a_frozen_consumer_returns_no_record_of_lost_partitions(
    read: Callable[[str], Reader], traffic: Any, eventually: Eventually
) -> None:
    """After SIGSTOP beyond the session timeout, then SIGCONT, no record is returned twice."""
    one = read("one")
    eventually(lambda: len({p for p, _, _ in one.records()}) == PARTITIONS)
    two = read("two")
    eventually(lambda: len({p for p, _, _ in two.records()}) == 2)
    one.process.send_signal(signal.SIGSTOP)
    eventually(lambda: len({p for p, _, _ in two.records()}) == PARTITIONS, timeout=40)
    frozen_at = max(time for _, _, time in one.records())
    count = len(two.records())
    eventually(lambda: len(two.records()) > count + 40)
    one.process.send_signal(signal.SIGCONT)
    eventually(lambda: max(time for _, _, time in one.records()) > frozen_at + 1, timeout=40)
    eventually(lambda: caught_up(traffic, one, two))
    later = [(p, o) for p, o, time in one.records() if time > frozen_at + 0.5]
    assert not {(p, o) for p, o, _ in two.records()} & set(later)
    for offsets in offsets_by_partition(one, two).values():
        assert offsets == set(range(max(offsets) + 1))
