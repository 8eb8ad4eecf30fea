"""A group's thread: what it runs, and what an exception in it does."""

from collections.abc import Callable, Iterator
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest

from trimtab.sidecar.groups.managed_group import GroupThread
from trimtab.sidecar.groups.round_readings import RoundReadings
from trimtab.sidecar.kafka.shared_control_topics import GroupControlTopics

Make = Callable[[Callable[[Any], None]], GroupThread]


def readings(number: int) -> RoundReadings:
    """Return something that stands for a round."""
    return cast("RoundReadings", number)


@pytest.fixture
def make() -> Iterator[Make]:
    threads: list[GroupThread] = []

    def make(run: Callable[[Any], None]) -> GroupThread:
        threads.append(GroupThread("lake", run))
        threads[-1].start()
        return threads[-1]

    yield make
    for thread in threads:
        thread.stop()
        assert thread.join(30)


def test_an_exception_is_told_and_the_next_round_runs(make: Make, eventually: Any) -> None:
    """The error stands until an iteration succeeds."""
    seen: list[int] = []

    def run(number: int) -> None:
        seen.append(number)
        if number == 1:
            raise RuntimeError("broken")

    thread = make(run)
    thread.offer(readings(1))
    eventually(lambda: thread.error == "RuntimeError: broken")
    thread.offer(readings(2))
    eventually(lambda: not thread.error)
    assert seen == [1, 2]


def test_a_slow_iteration_skips_to_the_newest_round(make: Make, eventually: Any) -> None:
    """Rounds do not queue behind a target that hangs."""
    seen: list[int] = []
    goes_on = Event()

    def run(number: int) -> None:
        seen.append(number)
        assert goes_on.wait(30)

    thread = make(run)
    thread.offer(readings(1))
    eventually(lambda: seen == [1])
    for number in (2, 3, 4):
        thread.offer(readings(number))
    goes_on.set()
    eventually(lambda: seen == [1, 4])


def test_an_iteration_that_outlasts_its_group_publishes_nothing(make: Make, eventually: Any) -> None:
    """A target hung while the group was closed, and another sidecar has taken over."""
    published: list[Any] = []
    shared: Any = SimpleNamespace(
        add_group=lambda _: None, remove_group=lambda _: None, publish=published.append
    )
    topics = GroupControlTopics(shared, "lake")
    begun, goes_on = Event(), Event()

    def run(_: int) -> None:
        begun.set()
        assert goes_on.wait(30)
        topics.publish([])

    thread = make(run)
    thread.offer(readings(1))
    assert begun.wait(30)
    thread.stop()
    assert not thread.join(0.05)
    topics.close()
    goes_on.set()
    eventually(lambda: thread.error.startswith("NotLeaderError"))
    assert published == []
