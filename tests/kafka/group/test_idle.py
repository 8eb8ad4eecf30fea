"""An idle consumer sleeps: nothing in it polls where an event can wake it."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, Popen
from threading import Event, Thread
from time import monotonic
from typing import Any

import pytest

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(sys.platform != "linux", reason="counts switches in /proc"),
]

HOST = Path(__file__).parents[3] / "benchmarks" / "consumer" / "idle_host.py"
WINDOW_S = 1.5
WINDOWS = 8  # of which one is enough: joining and a busy machine add some
MAX_WAKEUPS = 60
"""Per second, by the threads' own will: about 35 to 45, and 50 more with one loop of 20 ms."""


def count_wakeups(pid: int) -> int:
    """Return how often the threads of a process have slept; another process's load adds nothing to it."""
    tasks = Path(f"/proc/{pid}/task").glob("*/status")
    lines = [line.split() for task in tasks for line in task.read_text().splitlines()]
    return sum(int(words[1]) for words in lines if words[0] == "voluntary_ctxt_switches:")


def read_lines(process: "Popen[str]", seen: Event) -> None:
    """Set `seen` once the consumer has partitions."""
    assert process.stdout is not None
    if process.stdout.readline().strip() == "reading":
        seen.set()


@pytest.fixture
def idle_consumer(bootstrap: str, topic: Any, group: str) -> Iterator["Popen[str]"]:
    """Start a consumer of an empty topic in a process of its own; yield once it has joined."""
    config = json.dumps({"bootstrap.servers": bootstrap, "group.id": group, "topic": topic()})
    command = [sys.executable, str(HOST), "trimtab", config]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True) as process:
        reading = Event()
        Thread(target=read_lines, args=(process, reading), daemon=True).start()
        assert reading.wait(60)
        yield process
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0


def test_an_idle_consumer_wakes_rarely(idle_consumer: "Popen[str]") -> None:
    """No loop of the consumer, its member or its clients polls; 236 wake-ups a second when three did."""
    rates: list[float] = []
    while len(rates) < WINDOWS and min(rates, default=MAX_WAKEUPS) >= MAX_WAKEUPS:
        begun, before = monotonic(), count_wakeups(idle_consumer.pid)
        Event().wait(WINDOW_S)
        rates.append((count_wakeups(idle_consumer.pid) - before) / (monotonic() - begun))
    assert min(rates) < MAX_WAKEUPS, rates
