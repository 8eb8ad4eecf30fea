"""Output of commands: `--format`, and tables."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated, TypeAlias

import typer
from rich.measure import Measurement
from rich.table import Table

from trimtab.cli.plain_console import PlainConsole


class PrintFormat(StrEnum):
    """Format for people, or for programs."""

    TEXT = "text"
    JSON = "json"


FormatOption: TypeAlias = Annotated[PrintFormat, typer.Option("--format", help="Output format.")]


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table at its natural width: names stay whole in a narrow terminal and in a pipe."""
    table = Table(*headings)
    for row in rows:
        table.add_row(*row)
    console = PlainConsole()
    # measured without a limit: rich would cut cells to the terminal's width, 80 in a pipe
    options = console.options.update(max_width=10_000)
    PlainConsole(width=Measurement.get(console, options, table).maximum).print(table)
