"""The options of `trimtab plan`."""

from typing import Annotated

import typer

from trimtab.cli.output_formats import FormatOption, PrintFormat
from trimtab.cli.settings_options import GroupOptions, build_command


class PlanOptions(
    GroupOptions,
    run="trimtab.cli.plan.run:plan",
    settings=("topics", "capacity", "headroom", "source", "move-cost"),
    notes={"capacity": 'Throughput of one consumer, like "2.3 MB/s" (default: the plan\'s).'},
):
    """Show what each heuristic would do with a live group now, and change nothing.

    For example:

        trimtab plan --bootstrap localhost:9092 --group lake --capacity "2.3 MB/s"

        trimtab plan --bootstrap localhost:9092 --group lake --heuristic mbf mwf --format json
    """

    more: Annotated[
        list[str] | None, typer.Argument(help="More heuristics, after --heuristic.", metavar="NAME")
    ] = None
    heuristic: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help='Heuristic; repeat it, or list names (default "all").'),
    ] = None
    seconds: Annotated[str, typer.Option(help="Time to measure for if no sidecar publishes write rates.")] = (
        "10 s"
    )
    output: FormatOption = PrintFormat.TEXT


COMMAND = build_command(PlanOptions)
