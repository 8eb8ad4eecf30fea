"""The options of `trimtab redeliver`."""

from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.settings_options import CommandOptions, build_command


class RedeliverOptions(CommandOptions, run="trimtab.cli.redeliver.run:redeliver"):
    """Redeliver messages of a kmq queue that were not settled before their deadline.

    Use the workers' settings. Several trackers share the partitions and take over from each other.
    SIGTERM or SIGINT: commit, leave the group, exit with 0. For example:

        trimtab redeliver --bootstrap localhost:9092 --topic orders --group billing

        trimtab redeliver --config worker.yaml --topic orders --set trimtab.queue.max.deliveries=3
    """

    topic: Annotated[str, typer.Option(help="The queue's topic.")]
    bootstrap: Annotated[str | None, typer.Option("--bootstrap", "-b", help="Brokers.")] = None
    group: Annotated[str | None, typer.Option(help="The group of the queue's workers.")] = None
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="A flat YAML mapping of settings.")
    ] = None
    settings: Annotated[list[str] | None, typer.Option("--set", help="name=value; wins over the file.")] = (
        None
    )


COMMAND = build_command(RedeliverOptions)
