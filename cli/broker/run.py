"""`trimtab broker`: a Kafka broker on this machine for trying things out."""

from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.broker.embedded_broker import EmbeddedBroker
from trimtab.common.errors import SettingError

__all__ = ["EmbeddedBroker", "broker"]


def broker(
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[-- KEY=VALUE...]", help="Broker properties, after `--`.")
    ] = None,
    *,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")
    ] = 9092,
    data: Annotated[Path | None, typer.Option(help="Data folder; kept and reused.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the temporary folder.")] = False,
) -> None:
    """Run a real single-node Kafka 4.4 (KRaft) until Ctrl-C.

    Jars are downloaded once into the cache ($TRIMTAB_CACHE, else the user's). The broker listens
    on loopback only and does not create topics automatically.

    For example:

        trimtab broker

        trimtab broker --port 0 --data ./kafka

        trimtab broker -- log.retention.ms=60000 message.max.bytes=2000000
    """
    server = EmbeddedBroker(port, data=data, keep=keep, properties=_parse_properties(settings or []))
    with server:
        typer.echo(f"bootstrap.servers={server.bootstrap}")
        kept = "kept" if keep or data else "removed at the end"
        typer.echo(f"data and log in {server.folder} ({kept}); Ctrl-C stops the broker", err=True)
        server.wait()


def _parse_properties(settings: list[str]) -> dict[str, str]:
    split = [setting.removeprefix("set ").partition("=") for setting in settings if setting != "set"]
    for name, equals, value in split:
        if not (name and equals):
            given = name + equals + value
            raise SettingError(f"{given!r} is not a broker property; write KEY=VALUE")
    return {name.strip(): value.strip() for name, _, value in split}
