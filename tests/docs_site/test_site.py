"""The docs site: complete without a network, searchable in a folder, refused with a broken link."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from docs_site.pages import DOCS, ROOT

pytestmark = pytest.mark.docs

LOADED_FROM_THE_WEB = re.compile(
    r"<(?:script|img|iframe)[^>]+src=\"?https?:[^>]*>|<link[^>]+stylesheet[^>]+https?:[^>]*>"
)


def build_site(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("mkdocs")
    command = [program, "build", "--strict", "--config-file", str(config), "--site-dir", str(site)]
    paths = os.pathsep.join((str(ROOT / "tests"), str(ROOT)))
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONWARNINGS": "ignore", "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(
        command, cwd=config.parent, env=environment, check=False, capture_output=True, text=True, timeout=300
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    done = build_site(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_site_loads_nothing_from_the_web(site: Path) -> None:
    """Scripts, styles and pictures of every page are in the site."""
    pages = sorted(site.glob("*.html"))
    assert len(pages) > 25
    assert [(page.name, one) for page in pages for one in LOADED_FROM_THE_WEB.findall(page.read_text())] == []


def test_the_search_works_in_a_folder(site: Path) -> None:
    """Opened without a web server, the search finds the pages of a word, and asks nothing of the web."""
    program = shutil.which("chromium")
    assert program, "install chromium"
    requests: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.on("request", lambda request: requests.append(request.url))
        page.goto((site / "index.html").as_uri())
        page.keyboard.press("/")
        page.locator("input.md-search__input").press_sequentially("tombstone", delay=20)
        page.locator(".md-search-result__link").first.wait_for(timeout=60_000)
        found = page.locator(".md-search-result__link").evaluate_all("links => links.map(a => a.href)")
        browser.close()
    assert any("changes.html" in address for address in found)
    assert [address for address in requests if not address.startswith(("file:", "data:", "about:"))] == []


@pytest.mark.parametrize("link", ["no-such-page.md", "lake.md#no-such-section"])
def test_a_broken_link_fails_the_build(link: str, tmp_path: Path) -> None:
    """A link to a missing page, or to a missing section of a page, ends the build with its name."""
    config = (ROOT / "mkdocs.yml").read_text()
    shutil.copytree(DOCS, tmp_path / "docs")
    page = tmp_path / "docs" / "reading.md"
    page.write_text(f"{page.read_text()}\n[broken]({link})\n")
    config = config.replace("hooks: [tests", f"hooks: [{ROOT}/tests").replace(
        'paths: ["."]', f'paths: ["{ROOT}"]'
    )
    (tmp_path / "mkdocs.yml").write_text(config)
    done = build_site(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode != 0
    assert link.partition("#")[0] in done.stdout + done.stderr
