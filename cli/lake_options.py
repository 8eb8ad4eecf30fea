"""Options that name a lake, shared by the commands that read its tables."""

from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.settings_options import CommandOptions


class LakeOptions(CommandOptions):
    """Options that name a lake: the configuration of its writers, or a folder."""

    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Configuration of trimtab ingest.")
    ] = None
    warehouse: Annotated[
        Path | None, typer.Option(help="Folder of an embedded lake, instead of --config.")
    ] = None
