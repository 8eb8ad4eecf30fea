"""Lines that commands print. Every text passes `escape_control_characters`, a line at a time.

JSON goes out by `typer.echo`: its own escapes do the same. In text that others chose (client ids, names of
groups and hosts, errors with such names) a control character could move the cursor, change colours, hide text
or begin a line that looks like one of Trimtab's. Each becomes a visible escape, as in a Python string.
"""

import re
from collections.abc import Iterable
from typing import Final

import typer

# C0, DEL and C1; line and paragraph separators; marks that reverse the direction of text; lone surrogates.
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def escape_control_characters(text: str) -> str:
    """Return a text as one printable line."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def print_line(line: str, *, err: bool = False, colour: str | None = None) -> None:
    """Print one line, to standard error if `err`."""
    typer.secho(escape_control_characters(line), err=err, fg=colour)


def print_lines(lines: Iterable[str]) -> None:
    """Print each line."""
    for line in lines:
        print_line(line)
