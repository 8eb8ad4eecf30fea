"""The options of `trimtab record`."""

from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.settings_options import GroupOptions, build_command


class RecordOptions(GroupOptions, run="trimtab.cli.record.run:record", settings=("topics", "source")):
    """Record the write rates of a live group, and change nothing. Ctrl-C keeps the file.

    For example:

        trimtab record --bootstrap localhost:9092 --group lake --duration 1h --out stream.json

        trimtab simulate --stream stream.json --tick "30 s" --capacity "2.3 MB/s" --recommend
    """

    out: Annotated[Path, typer.Option(help="The stream file; must not exist yet.")]
    duration: Annotated[str, typer.Option(help="Length of the recording.")] = "10 m"
    window: Annotated[str, typer.Option(help="Length of a tick if no sidecar publishes write rates.")] = (
        "30 s"
    )


COMMAND = build_command(RecordOptions)
