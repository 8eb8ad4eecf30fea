"""The options of `trimtab heuristics`."""

from typing import Annotated

import typer

from trimtab.cli.settings_options import CommandOptions, build_command


class HeuristicsOptions(CommandOptions, run="trimtab.cli.heuristics.run:heuristics"):
    """List the heuristics: summary, presets and properties.

    For example:

        trimtab heuristics

        trimtab heuristics --verbose
    """

    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Add each heuristic's source.")] = False


COMMAND = build_command(HeuristicsOptions)
