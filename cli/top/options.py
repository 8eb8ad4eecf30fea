"""The options of `trimtab top`."""

from typing import Annotated

import typer

from trimtab.cli.output_formats import PrintFormat
from trimtab.cli.settings_options import GroupOptions, build_command


class TopOptions(
    GroupOptions,
    run="trimtab.cli.top.run:top",
    settings=("topics", "capacity"),
    notes={"capacity": 'Throughput of one consumer, like "2.3 MB/s" (default: the plan\'s).'},
):
    """Show a live group: each consumer's partitions, load and state. Ctrl-C ends it.

    It reads the control topics, measures write rates if no sidecar publishes them, and changes
    nothing. For example:

        trimtab top --bootstrap localhost:9092 --group lake

        trimtab top --bootstrap localhost:9092 --group lake --once --format json
    """

    interval: Annotated[str, typer.Option(help="Time between two readings.")] = "2 s"
    window: Annotated[str, typer.Option(help="Measurement window if no sidecar publishes write rates.")] = (
        "10 s"
    )
    once: Annotated[bool, typer.Option("--once", help="Print one table and end.")] = False
    output: Annotated[
        PrintFormat, typer.Option("--format", help="Output format; json: one line per reading.")
    ] = PrintFormat.TEXT


COMMAND = build_command(TopOptions)
