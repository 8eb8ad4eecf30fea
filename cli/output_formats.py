"""How commands print what they found: `--format`, the same everywhere."""

from enum import StrEnum
from typing import Annotated, TypeAlias

import typer


class Format(StrEnum):
    """For people, or for programs."""

    TEXT = "text"
    JSON = "json"


Output: TypeAlias = Annotated[Format, typer.Option("--format", help="How to print it.")]
