"""`trimtab demo`: the whole path on real components, with a final proof."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.demo.scenario import DEFAULT_DURATION_S, MIN_DURATION_S
from trimtab.cli.settings_options import KafkaPairs

__all__ = ["demo"]


class DemoTableFormat(StrEnum):
    """Table formats."""

    ICEBERG = "iceberg"
    DELTA = "delta"


class DemoQueueKind(StrEnum):
    """Queue kinds of the demo."""

    KMQ = "kmq"
    SHARE = "share"


def demo(  # noqa: PLR0913 - one option each
    *,
    seconds: Annotated[
        float, typer.Option(min=MIN_DURATION_S, envvar="DEMO_SECONDS", help="Seconds of producing.")
    ] = DEFAULT_DURATION_S,
    out: Annotated[Path, typer.Option(help="Folder for tables, logs and the picture; emptied first.")] = Path(
        "demo-out"
    ),
    bootstrap: Annotated[str | None, typer.Option(help="Use this broker instead of an embedded one.")] = None,
    kafka: KafkaPairs = None,
    seed: Annotated[int, typer.Option(help="Of the random walk.")] = 11,
    form: Annotated[
        DemoTableFormat, typer.Option("--format", help="Of the tables.")
    ] = DemoTableFormat.ICEBERG,
    queue: Annotated[
        DemoQueueKind | None, typer.Option(help="Show a queue of this kind instead; about a minute.")
    ] = None,
) -> None:
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
    from trimtab.cli.demo.runner import run_demo  # noqa: PLC0415 - as above
    from trimtab.cli.setting_pairs import parse_pairs  # noqa: PLC0415 - as above
    from trimtab.common.errors import SettingError  # noqa: PLC0415 - keeps --help fast

    if kafka and bootstrap is None:
        raise SettingError("--kafka says how a broker is reached; name it with --bootstrap")
    client = parse_pairs("--kafka", kafka)
    client |= {} if bootstrap is None else {"bootstrap.servers": bootstrap}
    if queue is not None:
        from trimtab.cli.demo.queue_demo import run_queue_demo  # noqa: PLC0415 - as above

        if not run_queue_demo(queue.value, client):
            raise typer.Exit(1)
        return
    if not run_demo(seconds, out.absolute(), client, seed, form.value):
        raise typer.Exit(1)
