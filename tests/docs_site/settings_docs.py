"""Writes the settings tables of the docs from the models: `python -m docs_site.settings_docs` in tests/.

A table is placed between `<!-- settings:begin MODULE:CLASS -->` and `<!-- settings:end -->`.
"""

import re
from importlib import import_module
from pathlib import Path

from trimtab.common.settings.settings_model import render_settings_table

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(
    r"(<!-- settings:begin (?P<module>[\w.]+):(?P<name>\w+) -->\n).*?(<!-- settings:end -->)", re.DOTALL
)


def fill_tables(page: str) -> str:
    """Return the page with every settings table rendered again."""
    return BLOCK.sub(lambda block: f"{block[1]}\n{_render(block)}\n\n{block[4]}", page)


def list_documented_models() -> list[tuple[str, str]]:
    """Return the page and MODULE:CLASS of each settings table, in the order of pages and tables."""
    return [
        (path.name, f"{block['module']}:{block['name']}")
        for path in sorted(DOCS.glob("*.md"))
        for block in BLOCK.finditer(path.read_text())
    ]


def _render(block: re.Match[str]) -> str:
    return render_settings_table(getattr(import_module(block["module"]), block["name"]))


if __name__ == "__main__":
    for path in sorted(DOCS.glob("*.md")):
        path.write_text(fill_tables(path.read_text()))
