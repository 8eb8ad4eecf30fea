"""The page on a live group with faults: a killed consumer, a killed sidecar, and hostile names."""

import os
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Protocol

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Browser, Page

from support.page.page_browser import OUT, open_browser, wait_until
from support.sidecar_bench import CAPACITY, PARTITIONS, SidecarBench
from trimtab.consumer_sdk import Consumer

pytestmark = [pytest.mark.page, pytest.mark.broker]

HOSTILE = "<img src=x onerror=window.stolen=1>"
SAMPLES = "window.trimtab.history.samples"
REPLACED = "s.action === 'replace'"
JUST_ENOUGH = "s.metrics.running_replicas === 3 && s.metrics.desired_replicas === 3 && s.action === 'hold'"
# with a fourth consumer the group may do without the one that dies
FLAGS = ("--max", "3")


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


class TopicFactory(Protocol):
    def __call__(self, partitions: int = 4, **config: str) -> str: ...


@dataclass
class LiveGroup:
    """A group that a sidecar scales."""

    bench: SidecarBench
    bootstrap: str
    name: str
    topic: str


@pytest.fixture
def live(bootstrap: str, group: str, topic: TopicFactory, tmp_path: Path) -> Iterator[LiveGroup]:
    name = topic(partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(name, b"x", key=HOSTILE.encode(), headers={HOSTILE: HOSTILE.encode()})
    producer.flush(30)
    bench = SidecarBench(bootstrap, group, name, tmp_path)
    yield LiveGroup(bench, bootstrap, group, name)
    bench.close()


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def read_as_hostile_member(live: LiveGroup, stop: Event) -> None:
    """Read as a member whose client id is HTML, until told to stop."""
    config = {"bootstrap.servers": live.bootstrap, "group.id": live.name, "trimtab.instance": HOSTILE}
    with Consumer({**config, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([live.topic])
        while not stop.is_set():
            consumer.consume(200, timeout=0.2)


def test_faults_are_seen(live: LiveGroup, eventually: Eventually) -> None:
    """Consumers that start and die, and a sidecar that restarts, are seen; what-if and doctor answer."""
    bench = live.bench
    bench.flow.rate = 2.4 * CAPACITY
    port = find_free_port()
    bench.start("--port", str(port), *FLAGS)
    eventually(lambda: (bench.state / "web").exists() and len(bench.pids()) >= 3, 180)
    eventually(bench.is_settled, 120)
    with open_browser() as browser:
        follow_faults(browser, live, port)


def follow_faults(browser: Browser, live: LiveGroup, port: int) -> None:
    bench = live.bench
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.goto(f"http://127.0.0.1:{port}/")
    wait_until(page, "window.trimtab?.index >= 0 && document.querySelectorAll('#hot tbody tr').length > 0")
    assert "consumers run" in page.inner_text("#now")
    assert "handover" in page.inner_text("#handovers")
    assert "This sidecar" in page.inner_text("#who")
    assert f"(pid {bench.process.pid if bench.process else 0}" in page.inner_text("#who")
    page.evaluate("window.trimtab.choose(window.trimtab.index)")
    assert_tools_answer(page)
    wait_until(page, f"((s) => {JUST_ENOUGH})({SAMPLES}.at(-1))")
    seen = page.evaluate(f"{SAMPLES}.length")
    _, pid = next(iter(bench.pids().items()))
    os.kill(pid, signal.SIGKILL)
    replaced = f"((s, i) => i >= {seen} && {REPLACED})"
    wait_until(page, f"{SAMPLES}.some{replaced}")
    page.evaluate(f"window.trimtab.choose({SAMPLES}.findIndex{replaced})")
    assert "2 of 3 running; started worker-" in page.inner_text("#now")
    assert "replace at" in page.inner_text("#decision-body")
    page.screenshot(path=OUT / "page-fault.png", full_page=True)
    page.click("#live")
    assert_hostile_member_is_text(page, live)
    assert_restart_is_seen(page, bench, port)


def assert_tools_answer(page: Page) -> None:
    """What-if answers from the live group's stream, and the doctor about its brokers."""
    wait_until(page, "document.querySelectorAll('#doctor tbody tr').length > 5")
    assert "checks failed" in page.inner_text("#doctor-status")
    page.fill("#lambda", "1.25")
    page.click("#what-if-form button.main")
    wait_until(page, "document.getElementById('what-if-settings') !== null")
    assert page.inner_text("#what-if-settings") == "heuristic: steady:1.25"
    assert "λ = 1.25 (now" in page.inner_text("#what-if-status")


def assert_hostile_member_is_text(page: Page, live: LiveGroup) -> None:
    stop = Event()
    member = Thread(target=read_as_hostile_member, args=(live, stop))
    member.start()
    try:
        wait_until(page, f"window.trimtab.history.consumers.includes({HOSTILE!r})")
        assert page.locator("main img").count() == 0
        assert page.evaluate("window.stolen") is None
    finally:
        stop.set()
        member.join(60)


def assert_restart_is_seen(page: Page, bench: SidecarBench, port: int) -> None:
    """The page tells that the sidecar is away, and goes on with the decisions of before its restart."""
    decisions = page.evaluate("window.trimtab.history.samples.length")
    bench.stop(signal.SIGKILL)
    wait_until(page, "document.getElementById('status').textContent.includes('does not answer')")
    bench.start("--port", str(port), *FLAGS)
    restored = f"{SAMPLES}.some((s) => s.n === 0 && {REPLACED}) && window.trimtab.history.last.n > 0"
    wait_until(page, f"{restored} && !document.getElementById('status').classList.contains('bad')")
    assert decisions > 0
    assert page.evaluate("window.trimtab.history.samples.filter((s) => s.author).length") > 0
    # loads and owners of before come back, too
    page.click("input[value=time]")
    page.evaluate(f"window.trimtab.choose({SAMPLES}.findIndex((s) => s.n === 0 && s.loads.length))")
    assert "From before the sidecar's start" in page.inner_text("#map-help")
    assert page.locator("#hot tbody tr").count() > 0
