"""Rich output of commands for people: names that others chose are text."""

from typing import Any

from rich.console import Console
from rich.style import StyleType
from rich.text import Text

from trimtab.cli.terminal import escape_control_characters


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
