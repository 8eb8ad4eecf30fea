"""The page while the group's only broker is away: it stays, says what is wrong, and goes on afterwards."""

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from playwright.sync_api import Page, ViewportSize

from support.page.page_browser import OUT, open_browser, wait_until
from support.sidecar_bench import CAPACITY, PARTITIONS, SidecarBench
from trimtab.cli.broker.embedded_broker import EmbeddedBroker

pytestmark = [pytest.mark.page, pytest.mark.broker]

WITH_HEALTH: ViewportSize = {"width": 1240, "height": 1500}
SEEN = "document.getElementById('%s').textContent.includes('%s')"


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


@dataclass
class OneBroker:
    """A broker of its own, which a test may kill and start again."""

    broker: EmbeddedBroker
    folder: Path

    def kill(self) -> None:
        os.kill(self.broker.pid, signal.SIGKILL)

    def restart(self) -> None:
        port = self.broker.port
        self.broker.stop()
        self.broker = EmbeddedBroker(port, data=self.folder)
        self.broker.start()


@pytest.fixture
def one_broker(tmp_path: Path) -> Iterator[OneBroker]:
    own = OneBroker(EmbeddedBroker(data=tmp_path / "broker"), tmp_path / "broker")
    own.broker.start()
    yield own
    own.broker.stop()


@pytest.fixture
def bench(one_broker: OneBroker, tmp_path: Path, eventually: Eventually) -> Iterator[SidecarBench]:
    bootstrap = one_broker.broker.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result(60)
    bench = SidecarBench(bootstrap, "lake", "orders", tmp_path)
    bench.flow.rate = 1.4 * CAPACITY
    # a third worker that starts while the broker is away would end, and its exit be told for minutes
    bench.start("--max", "2")
    eventually(lambda: (bench.state / "web").exists() and len(bench.pids()) >= 2, 180)
    eventually(bench.is_settled, 120)
    yield bench
    bench.close()


def take_health_picture(page: Page) -> None:
    """Take the docs' picture of the doctor's findings."""
    page.click("#doctor-run")  # those of the start are of a group that is not stable yet
    wait_until(page, "document.getElementById('doctor-status').textContent === 'checking'")
    wait_until(page, SEEN % ("doctor-status", "checks failed"))
    before = page.viewport_size
    page.set_viewport_size(WITH_HEALTH)  # else the page's header covers a part
    page.locator("#health").screenshot(path=OUT / "page-health.png")
    assert before is not None
    page.set_viewport_size(before)


def test_a_broker_that_is_away_is_told(bench: SidecarBench, one_broker: OneBroker) -> None:
    """Without its broker the page follows on, names the broker, and keeps what it knew; then it recovers."""
    with open_browser() as browser:
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.goto((bench.state / "web").read_text().strip())
        wait_until(page, "document.querySelectorAll('#hot tbody tr').length > 0")
        take_health_picture(page)
        bench.flow.rate = 0.0  # its producer would be full before the broker is back
        one_broker.kill()
        wait_until(page, SEEN % ("condition-list", "127.0.0.1"))  # which broker
        assert "GroupUnknown" in page.inner_text("#condition-list")
        number = page.evaluate("window.trimtab.history.last.n")
        wait_until(page, f"window.trimtab.history.last.n > {number}")  # it is alive
        assert "does not answer" not in page.inner_text("#status")
        page.screenshot(path=OUT / "page-broker-fault.png", full_page=True)
        one_broker.restart()
        wait_until(page, "!" + SEEN % ("condition-list", "127.0.0.1"))
        wait_until(page, SEEN % ("who", "is stable"))
        assert page.evaluate("window.trimtab.history.samples.some((s) => s.conditions.length)")
