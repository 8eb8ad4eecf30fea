"""The options of `trimtab broker`."""

from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.settings_options import CommandOptions, build_command


class BrokerOptions(CommandOptions, run="trimtab.cli.broker.run:broker"):
    """Run a real single-node Kafka 4.4 (KRaft) until Ctrl-C.

    Jars are downloaded once into the cache ($TRIMTAB_CACHE, else the user's). The broker listens
    on loopback only and does not create topics automatically.

    For example:

        trimtab broker

        trimtab broker --port 0 --data ./kafka

        trimtab broker -- log.retention.ms=60000 message.max.bytes=2000000
    """

    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[-- KEY=VALUE...]", help="Broker properties, after `--`.")
    ] = None
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")] = 9092
    data: Annotated[Path | None, typer.Option(help="Data folder; kept and reused.")] = None
    assignor_plugin: Annotated[
        bool,
        typer.Option("--assignor-plugin", help="Let Trimtab steer groups of the new protocol (KIP-848)."),
    ] = False
    keep: Annotated[bool, typer.Option("--keep", help="Keep the temporary folder.")] = False


COMMAND = build_command(BrokerOptions)
