"""Killed or frozen consumers: others take over, and no record is lost or read twice."""

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
    """Consumer process, and the records that it has returned."""

    process: "subprocess.Popen[bytes]"
    file: Path

    def records(self) -> list[tuple[int, int, float]]:
        lines = self.file.read_text().split("\n")[:-1] if self.file.exists() else []
        found = (line.split() for line in lines)
        return [(int(partition), int(offset), float(when)) for partition, offset, when in found]


@pytest.fixture
def name(topic: Callable[..., str]) -> str:
    return topic(partitions=PARTITIONS)


@pytest.fixture
def read(bootstrap: str, group: str, name: str, tmp_path: Path) -> Iterator[Callable[[str], Reader]]:
    """Start reader processes; kill all at the end."""
    readers: list[Reader] = []

    def read(who: str) -> Reader:
        script = Path(__file__).with_name("reader.py")
        file = tmp_path / who
        command = [sys.executable, str(script), bootstrap, group, name, who, str(file)]
        readers.append(Reader(subprocess.Popen(command), file))
        return readers[-1]

    yield read
    for reader in readers:
        reader.process.kill()
        reader.process.wait(timeout=10)


@pytest.fixture
def traffic(feed: Any, name: str) -> Iterator[Any]:
    """Write records continuously from a thread."""
    stop = Event()

    def write() -> None:
        while not stop.wait(0.05):
            feed.write(name, PARTITIONS, 2 * PARTITIONS)

    thread = Thread(target=write)
    thread.start()
    yield feed
    stop.set()
    thread.join()


def seen(*readers: Reader) -> dict[int, set[int]]:
    offsets: defaultdict[int, set[int]] = defaultdict(set)
    for reader in readers:
        for partition, offset, _ in reader.records():
            offsets[partition].add(offset)
    return offsets


def caught_up(feed: Any, *readers: Reader) -> bool:
    offsets = seen(*readers)
    return all(len(offsets[p.partition]) >= n - 20 for p, n in list(feed.written.items()))


def test_a_killed_consumer_is_replaced_and_nothing_is_lost(
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
    for offsets in seen(one, two).values():
        assert offsets == set(range(max(offsets) + 1))


def test_a_frozen_consumer_returns_no_record_that_it_lost(
    read: Callable[[str], Reader], traffic: Any, eventually: Eventually
) -> None:
    """After SIGSTOP beyond the session timeout, then SIGCONT, no record is returned twice."""
    one = read("one")
    eventually(lambda: len({p for p, _, _ in one.records()}) == PARTITIONS)
    two = read("two")
    eventually(lambda: len({p for p, _, _ in two.records()}) == 2)
    one.process.send_signal(signal.SIGSTOP)
    eventually(lambda: len({p for p, _, _ in two.records()}) == PARTITIONS, timeout=40)
    taken_at = max(when for _, _, when in one.records())
    count = len(two.records())
    eventually(lambda: len(two.records()) > count + 40)
    one.process.send_signal(signal.SIGCONT)
    eventually(lambda: max(when for _, _, when in one.records()) > taken_at + 1, timeout=40)
    eventually(lambda: caught_up(traffic, one, two))
    later = [(p, o) for p, o, when in one.records() if when > taken_at + 0.5]
    assert not {(p, o) for p, o, _ in two.records()} & set(later)
    for offsets in seen(one, two).values():
        assert offsets == set(range(max(offsets) + 1))
