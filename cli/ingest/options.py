"""The options of `trimtab ingest`."""

from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.settings_options import CommandOptions, build_command


class IngestCommandOptions(CommandOptions, run="trimtab.cli.ingest.run:ingest"):
    """Write the records of Kafka topics into lake tables, each exactly once.

    On SIGTERM or SIGINT it flushes, leaves the group and exits with 0; before it has joined, at once.
    For example:

        trimtab ingest --config ingest.yaml

        trimtab ingest --config ingest.yaml --instance worker-3 --set "batch.max.age=5 s"

        trimtab ingest --config ingest.yaml --metrics-port 9464
    """

    config: Annotated[Path, typer.Option("--config", "-c", help="A flat YAML mapping of settings.")]
    instance: Annotated[str | None, typer.Option(help="Name of this worker; it survives restarts.")] = None
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port that serves /metrics (Prometheus); 0 takes a free one."),
    ] = None
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A setting as name=value; wins over the file.")
    ] = None


COMMAND = build_command(IngestCommandOptions)
