"""Output of commands for people. Every text passes `escape_control_characters`, a line at a time.

JSON goes out by `typer.echo`: its own escapes do the same.
"""

from collections.abc import Iterable
from typing import Any

import typer
from rich.console import Console
from rich.style import StyleType
from rich.text import Text

from trimtab.common.foreign_text import escape_control_characters


class PlainConsole(Console):
    """A console for which text is text: no markup, no emoji codes, no control characters."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return the text of a cell or line."""
        return super().render_str(escape_control_characters(text), **options)


def plain_text(text: str, style: StyleType = "") -> Text:
    """Return one line of text in a style."""
    return Text(escape_control_characters(text), style)


def print_line(line: str, *, err: bool = False, colour: str | None = None) -> None:
    """Print one line, to standard error if `err`."""
    typer.secho(escape_control_characters(line), err=err, fg=colour)


def print_lines(lines: Iterable[str]) -> None:
    """Print each line."""
    for line in lines:
        print_line(line)
