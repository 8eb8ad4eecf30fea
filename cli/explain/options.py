"""The options of `trimtab explain`."""

from typing import Annotated

import typer

from trimtab.cli.output_formats import FormatOption, PrintFormat
from trimtab.cli.settings_options import GroupOptions, build_command


class ExplainOptions(GroupOptions, run="trimtab.cli.explain.run:explain"):
    """Explain a group's replica count and placement.

    The sidecar keeps its last decisions in a topic, so this works from any machine. For example:

        trimtab explain --bootstrap localhost:9092 --group lake

        trimtab explain --bootstrap localhost:9092 --group lake --at 14:32 -n 10

        trimtab explain --config sidecar.yaml --format json
    """

    at: Annotated[
        str | None, typer.Option(help='Time to explain, local: "14:32", "2026-03-01T14:32" (default now).')
    ] = None
    number: Annotated[int, typer.Option("-n", min=0, help="Decisions to list besides the explanation.")] = 0
    output: FormatOption = PrintFormat.TEXT


COMMAND = build_command(ExplainOptions)
