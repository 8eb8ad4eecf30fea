"""Hooks of mkdocs: home page from the README, generated reference, links to files of the repository."""

import re
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs_site.pages import DOCS, LINK, ROOT, SOURCE_URL, map_prose
from docs_site.reference import render_reference_pages

WORKER_URL: Final = "https://unpkg.com/iframe-worker/shim"  # of the plugin `offline`
WORKER_FILE: Final = "iframe-worker.js"
COPIED_PAGES: Final = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that do not stand in docs/."""
    pages = {name: (ROOT / source).read_text() for name, source in COPIED_PAGES.items()}
    for name, text in (pages | render_reference_pages()).items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Rewrite links that leave docs/. Raises PluginError for a file that does not exist."""
    name = page.file.src_uri
    base = ROOT if name in COPIED_PAGES else DOCS

    def rewrite_links(text: str) -> str:
        return LINK.sub(lambda link: _rewrite(link["target"], base, name) + (link["title"] or ""), text)

    return map_prose(markdown, rewrite_links)


def on_post_page(output: str, **_: Any) -> str:
    """Load the search's worker from the site, not from the web."""
    return output.replace(WORKER_URL, WORKER_FILE)


def on_post_template(output_content: str, **_: Any) -> str:
    """Do so in the page for a missing page, too."""
    return output_content.replace(WORKER_URL, WORKER_FILE)


def _rewrite(target: str, base: Path, page: str) -> str:
    path, hash_, anchor = target.partition("#")
    if not path or re.match(r"[a-z]+:", path):
        return target
    resolved = (base / path).resolve()
    copied = {ROOT / source: name for name, source in COPIED_PAGES.items()}.get(resolved)
    if copied:
        return f"{copied}{hash_}{anchor}"
    if resolved.is_relative_to(DOCS):
        return f"{resolved.relative_to(DOCS)}{hash_}{anchor}"
    if not resolved.exists():
        raise PluginError(f"{page}: the link {target} leads to no file of the repository")
    return f"{SOURCE_URL}{resolved.relative_to(ROOT)}{hash_}{anchor}"
