"""The options of `trimtab sidecar`."""

from enum import StrEnum
from typing import Annotated

import typer

from trimtab.cli.settings_options import GroupOptions, build_command

_LOAD_SETTINGS = (
    *("topics", "queue", "capacity", "headroom", "heuristic", "move-cost"),
    *("source", "window", "interval"),
)
_SCALING_SETTINGS = (
    *("min", "max", "cooldown", "scale-up-stabilization-window", "scale-down-stabilization-window"),
    *("target", "worker-config", "state-dir"),
)
_PROCESS_SETTINGS = ("host", "port", "dry-run", "take-over", "protocol", "lead", "take-lead", "stop-workers")


class SidecarAction(StrEnum):
    """Action of `trimtab sidecar`."""

    RUN = "run"
    RESTART = "restart"


class SidecarCommandOptions(
    GroupOptions,
    run="trimtab.cli.sidecar.run:sidecar",
    settings=(*_LOAD_SETTINGS, *_SCALING_SETTINGS, *_PROCESS_SETTINGS),
):
    """Scale a consumer group by load, and publish scaling plans.

    SIGTERM ends it; workers keep running, and the next sidecar adopts them. With --target none it
    starts and stops no consumer, but publishes plans that consumers follow; --dry-run changes
    nothing. While another sidecar steers the group, this one stands by. For example:

        trimtab sidecar --bootstrap localhost:9092 --group lake --capacity "2.3 MB/s" --dry-run

        trimtab sidecar -c sidecar.yaml --target process --worker-config ingest.yaml --state-dir run

        trimtab sidecar -c queue.yaml --queue kmq --min 0 --target process --state-dir run
    """

    action: Annotated[
        SidecarAction, typer.Argument(help="run, or restart --state-dir …: replace the workers one by one.")
    ] = SidecarAction.RUN
    more: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Any other setting as name=value, like scale-up-policies=2; docs/sidecar.md."
        ),
    ] = None


COMMAND = build_command(SidecarCommandOptions)
