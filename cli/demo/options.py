"""The options of `trimtab demo`."""

from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from trimtab.cli.settings_options import CommandOptions, KafkaPairs, build_command

DEFAULT_DURATION_S: Final = 150.0
MIN_DURATION_S: Final = 20.0  # window, stabilization and cooldown of the demo's sidecar take 18 s


class DemoOptions(CommandOptions, run="trimtab.cli.demo.run:demo"):
    """Run the whole path: producers, a group scaled by load, lake tables and a proof.

    A sidecar starts and stops real consumers as the write rates of four topics rise and fall. One
    consumer is killed, then all are restarted. Exit code 0: Spark found every record exactly once.

    For example:

        trimtab demo

        trimtab demo --format delta

        DEMO_SECONDS=60 trimtab demo --out /tmp/demo

        trimtab demo --bootstrap localhost:9092

        trimtab demo --queue kmq

        trimtab demo --bootstrap kafka:9093 --kafka security.protocol=SASL_SSL
        --kafka sasl.mechanism=PLAIN --kafka sasl.username=demo
        --kafka 'sasl.password=${file:/run/secrets/kafka}'
    """

    seconds: Annotated[
        float, typer.Option(min=MIN_DURATION_S, envvar="DEMO_SECONDS", help="Seconds of producing.")
    ] = DEFAULT_DURATION_S
    out: Annotated[Path, typer.Option(help="Folder for tables, logs and the picture; emptied first.")] = Path(
        "demo-out"
    )
    bootstrap: Annotated[str | None, typer.Option(help="Use this broker instead of an embedded one.")] = None
    kafka: KafkaPairs = None
    seed: Annotated[int, typer.Option(help="Seed of the random walk.")] = 11
    form: Annotated[Literal["iceberg", "delta"], typer.Option("--format", help="Format of the tables.")] = (
        "iceberg"
    )
    queue: Annotated[
        Literal["kmq", "share"] | None,
        typer.Option(help="Show a queue of this kind instead; about a minute."),
    ] = None


COMMAND = build_command(DemoOptions)
