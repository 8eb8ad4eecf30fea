"""How commands print what they found: `--format`, the same everywhere."""

from enum import StrEnum
from typing import Annotated, TypeAlias

import typer


class PrintFormat(StrEnum):
    """For people, or for programs."""

    TEXT = "text"
    JSON = "json"


FormatOption: TypeAlias = Annotated[PrintFormat, typer.Option("--format", help="How to print it.")]
