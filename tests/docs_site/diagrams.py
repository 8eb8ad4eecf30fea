"""Draws docs/*.d2 as SVG: `python -m docs_site.diagrams` in tests/. D2 needs no network."""

import hashlib
import subprocess
import sys
from pathlib import Path

from docs_site.pages import DOCS


def list_diagrams() -> list[Path]:
    """Return the sources of the diagrams."""
    return sorted(DOCS.glob("*.d2"))


def make_source_mark(source: Path) -> str:
    """Return the comment that ties an SVG to its source."""
    return f"<!-- {source.name} sha256 {hashlib.sha256(source.read_bytes()).hexdigest()} -->\n"


def is_current(source: Path) -> bool:
    """Return whether the committed SVG was drawn from this source."""
    drawn = source.with_suffix(".svg")
    return drawn.exists() and drawn.read_text().endswith(make_source_mark(source))


def draw(source: Path) -> None:
    """Draw a diagram beside its source. Raises CalledProcessError for an error in it."""
    drawn = source.with_suffix(".svg")
    program = Path(sys.executable).with_name("d2")
    command = [program, "--theme", "0", "--dark-theme", "200", "--pad", "10", str(source), str(drawn)]
    subprocess.run(command, check=True, capture_output=True)
    drawn.write_text(drawn.read_text().rstrip() + "\n" + make_source_mark(source))


if __name__ == "__main__":
    for path in list_diagrams():
        if not is_current(path):
            draw(path)
