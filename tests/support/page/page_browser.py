"""Headless Chromium for the tests of the sidecar's page."""

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

OUT = Path(__file__).parents[3] / "build" / "page"
WAIT_S = 180.0  # on a busy machine
POLL_MS = 50


@contextmanager
def open_browser() -> Generator[Browser]:
    """Start Chromium; the folder of pictures exists then, too."""
    program = shutil.which("chromium")
    assert program, "no Chromium: apt-get install chromium"
    OUT.mkdir(parents=True, exist_ok=True)
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        yield browser
        browser.close()


def wait_until(page: Page, condition: str) -> None:
    """Wait for a condition in the page."""
    # Playwright's own wait needs `eval`, which the page's policy forbids
    for _ in range(int(WAIT_S * 1000 / POLL_MS)):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(POLL_MS)
    raise AssertionError(f"{condition}: {page.inner_text('main')[:3000]}")
