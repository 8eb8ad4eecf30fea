"""The options of `trimtab init`."""

from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.settings_options import GroupOptions, build_command


class InitOptions(
    GroupOptions,
    run="trimtab.cli.init.run:init",
    settings=("topics", "capacity", "source"),
    notes={"capacity": "Throughput of one consumer (default: the plan's, else the most that one reads now)."},
):
    """Look at a live group, and write settings that steer it, what they would save, and the way back.

    It changes nothing but files: sidecar.yaml, ingest.yaml, stream.json (the recorded write rates) and
    way-back.md; for a group that KEDA scales also scaledobject.yaml, and where the cluster defines
    ConsumerGroupScaler also consumergroupscaler.yaml. It finds the topics, the clients' protocol, the
    Deployment or StatefulSet of the members, and its ScaledObject. For example:

        trimtab init --bootstrap localhost:9092 --group orders

        trimtab init --bootstrap localhost:9092 --group orders --duration "10 min" --out trimtab

        trimtab init --bootstrap kafka:9092 --group orders --namespace shop --force
    """

    out: Annotated[Path, typer.Option(help="Folder of the files.")] = Path()
    duration: Annotated[str, typer.Option(help="Time to record write rates for, for the replay.")] = "1 min"
    window: Annotated[
        str, typer.Option(help="Length of a tick of the recording if no sidecar publishes write rates.")
    ] = "5 s"
    namespace: Annotated[
        str | None, typer.Option(help="Kubernetes namespace of the consumers (default: the context's).")
    ] = None
    kubeconfig: Annotated[Path | None, typer.Option(help="Kubeconfig file (default: the usual one).")] = None
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Overwrite files that exist; remove resources of an earlier run that are not written.",
        ),
    ] = False


COMMAND = build_command(InitOptions)
