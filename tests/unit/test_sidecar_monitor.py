"""A look at the brokers: when what it reads counts as read."""

from collections.abc import Iterable
from types import SimpleNamespace

import pytest
from ticking import Ticking

from trimtab.assignor.model import TopicPartition
from trimtab.sidecar.decision.scale_to_zero import idle
from trimtab.sidecar.kafka.broker_client import Commits, Layout, Offsets
from trimtab.sidecar.measurement.group_monitor import Monitor
from trimtab.sidecar.measurement.observation import GroupState, GroupView, Reader
from trimtab.sidecar.settings.settings import load

A = TopicPartition("t", 0)


class Slow(Ticking):
    """Brokers of one partition, written at 10 records/s, whose answers take their time.

    It is the clock too: an offset is read in the middle of its answer.
    """

    others = 0.0  # seconds of every answer but that of the end offsets
    read = frozenset[TopicPartition]()

    def layout(self) -> Layout:
        self.now += self.others
        return Layout({A: 1})

    def group(self) -> tuple[GroupView, tuple[str, ...]]:
        return GroupView(GroupState.STABLE, (Reader("1", "one", self.read),)), ()

    def commits(self, _: Iterable[TopicPartition]) -> Commits:
        self.now += self.others
        return Commits()

    def ends(self, _: Iterable[TopicPartition]) -> Offsets:
        self.now += 2.0
        return Offsets({A: int(10 * (self.now - 1.0))})

    def begins(self, _: Iterable[TopicPartition]) -> Offsets:
        self.now += self.others
        return Offsets({A: 0})

    def absent(self, topic: str) -> str:
        return topic

    def sample(self, *_: object) -> dict[TopicPartition, list[int]]:
        self.now += self.others
        return {A: [100]}


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
def monitor(monkeypatch: pytest.MonkeyPatch, slow: Slow) -> Monitor:
    settings = {"bootstrap": "localhost:1", "group": "g", "topics": "t", "capacity": "1 MB/s"}
    monitor = Monitor(load(None, {**settings, "target": "none"}), slow)
    monitor.close()
    monkeypatch.setattr(monitor, "_brokers", slow)
    monkeypatch.setattr(monitor, "_sampler", SimpleNamespace(sample=slow.sample, denied=()))
    return monitor


def test_what_is_read_but_not_shown_is_unknown(slow: Slow, monitor: Monitor) -> None:
    """A right that was taken away makes no partition vanish: nobody is taken away for it."""
    slow.read = frozenset({A, TopicPartition("hidden", 3)})
    found = monitor.measure()
    assert found.speeds[TopicPartition("hidden", 3)].bytes_per_s is None
    assert not idle(found.speeds)


def test_a_slow_answer_makes_no_speed(slow: Slow, monitor: Monitor) -> None:
    """End offsets count as read when they were, whatever else takes long in that turn."""
    monitor.measure()
    for slow.others in (8.0, 0.0, 6.0):
        found = monitor.measure()
        slow.now += 5.0
    assert found.speeds[A].bytes_per_s == pytest.approx(1000.0)
