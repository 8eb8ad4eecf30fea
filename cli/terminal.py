"""Lines that commands print. Every text passes `escape_control_characters`, a line at a time.

JSON goes out by `typer.echo`: its own escapes do the same.
"""

from collections.abc import Iterable

import typer

from trimtab.common.foreign_text import escape_control_characters


def print_line(line: str, *, err: bool = False, colour: str | None = None) -> None:
    """Print one line, to standard error if `err`."""
    typer.secho(escape_control_characters(line), err=err, fg=colour)


def print_lines(lines: Iterable[str]) -> None:
    """Print each line."""
    for line in lines:
        print_line(line)
