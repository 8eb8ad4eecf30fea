"""`trimtab plan`: what each heuristic would do with a live group now; it changes nothing."""

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from trimtab.cli.sidecar import pairs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab.sidecar.settings import Settings
    from trimtab.sidecar.survey import Row, Survey

SHOWN: Final = 3  # reasons of a heuristic


class Format(StrEnum):
    """How the result is printed."""

    TABLE = "table"
    JSON = "json"


def plan(  # noqa: PLR0913 - typer: one parameter an option
    *,
    bootstrap: Annotated[str | None, typer.Option(help="host:port of brokers.")] = None,
    group: Annotated[str | None, typer.Option(help="The consumer group.")] = None,
    topics: Annotated[
        str | None,
        typer.Option(help='Names with commas, or "^pattern"; by default what the group reads.'),
    ] = None,
    capacity: Annotated[
        str | None, typer.Option(help='Of one consumer: "2.3 MB/s"; by default the plan\'s.')
    ] = None,
    headroom: Annotated[float | None, typer.Option(help="Share of it to fill; 0.9.")] = None,
    heuristic: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Repeat it; by default all.")
    ] = None,
    seconds: Annotated[str, typer.Option(help="To measure, if no sidecar did.")] = "10 s",
    source: Annotated[str | None, typer.Option(help="offsets (default) or log-dirs.")] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="YAML file of a sidecar's settings.")
    ] = None,
    kafka: Annotated[
        list[str] | None,
        typer.Option(help="librdkafka's name=value; keep secrets in the file instead."),
    ] = None,
    output: Annotated[Format, typer.Option("--format", help="How to print it.")] = Format.TABLE,
) -> None:
    """Show what each heuristic would do with a live group now, and change nothing.

    For example:

        trimtab plan --bootstrap localhost:9092 --group lake --capacity "2.3 MB/s"

        trimtab plan --bootstrap localhost:9092 --group lake --heuristic mbf --format json
    """
    flags: dict[str, Any] = {
        "bootstrap": bootstrap,
        "group": group,
        "topics": topics,
        "headroom": headroom,
        "source": source,
        "kafka": pairs("--kafka", kafka) or None,
    }
    settings, known = _settings(config, flags, capacity, seconds)
    found = _survey(settings)
    settings = _with_plan(settings, found) if not known else settings
    from trimtab.assignor.registry import names  # noqa: PLC0415 - numpy is slow to load
    from trimtab.sidecar.survey import rows  # noqa: PLC0415 - as above

    wanted = [name for text in heuristic or () for name in text.split(",")]
    made = rows(found, wanted or names(), settings.policy.placement, SHOWN)
    if output is Format.JSON:
        typer.echo(json.dumps(_body(found, settings, made), indent=2))
    else:
        _print(found, settings, made)


def _settings(
    config: Path | None, flags: dict[str, Any], capacity: str | None, seconds: str
) -> tuple["Settings", bool]:
    """Return the settings, and whether they say what a consumer sustains."""
    from trimtab.assignor.units import parse_seconds  # noqa: PLC0415 - keeps --help fast
    from trimtab.sidecar.settings import load, read  # noqa: PLC0415 - as above

    window = parse_seconds(seconds, "seconds")
    known = capacity is not None or "capacity" in read(config)
    flags = {**flags, "window": window, "interval": window / 5, "capacity": capacity}
    return load(config, flags if known else {**flags, "capacity": "1 MB/s"}), known


def _with_plan(settings: "Settings", found: "Survey") -> "Settings":
    from trimtab.sidecar.errors import BadSetting  # noqa: PLC0415 - keeps --help fast

    if found.plan is None:
        raise BadSetting(
            "capacity is missing, and no sidecar's plan tells it; say what one consumer sustains: "
            '--capacity "2.3 MB/s"'
        )
    update = {"capacity": found.plan.capacity, "headroom": found.plan.headroom}
    return settings.model_copy(update=update)


def _survey(settings: "Settings") -> "Survey":
    from rich.console import Console  # noqa: PLC0415 - keeps --help fast
    from rich.progress import Progress  # noqa: PLC0415 - as above

    from trimtab.assignor.clock import SystemClock  # noqa: PLC0415 - as above
    from trimtab.sidecar.survey import survey  # noqa: PLC0415 - as above

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("measuring write speeds", total=1.0, visible=False)
        return survey(
            settings,
            SystemClock(),
            lambda share: bar.update(task, completed=share, visible=True),
        )


def _body(found: "Survey", settings: "Settings", made: "Sequence[Row]") -> dict[str, Any]:
    speeds = found.speeds.values()
    return {
        "group": settings.group,
        "state": found.group.state.value,
        "members": len(found.group.readers),
        "partitions": len(found.speeds),
        "unknown": sum(s.bytes_per_s is None for s in speeds),
        "bytes_per_s": sum(s.bytes_per_s or 0.0 for s in speeds),
        "backlog_bytes": sum(s.backlog_bytes or 0.0 for s in speeds),
        "capacity": settings.capacity,
        "headroom": settings.headroom,
        "speeds": found.source,
        "epoch": None if found.plan is None else found.plan.epoch,
        "heuristics": {row.heuristic: asdict(row) for row in made},
    }


def _print(found: "Survey", settings: "Settings", made: "Sequence[Row]") -> None:
    from rich.console import Console  # noqa: PLC0415 - keeps --help fast
    from rich.table import Table  # noqa: PLC0415 - as above

    from trimtab.assignor.units import format_bytes, format_rate  # noqa: PLC0415 - as above

    body = _body(found, settings, made)
    console = Console()
    console.print(
        f"group {body['group']} ({body['state']}): {body['members']} members, "
        f"{body['partitions']} partitions, {body['unknown']} of them unknown; "
        f"writing {format_rate(body['bytes_per_s'])}, backlog "
        f"{format_bytes(body['backlog_bytes'])} ({body['speeds']}); "
        f"{settings.headroom:.0%} of {format_rate(settings.capacity)} a consumer",
        highlight=False,
    )
    table = Table("heuristic")
    for column in ("consumers", "moves", "R-score", "fullest"):
        table.add_column(column, justify="right")
    table.add_column("first reason")
    for row in made:
        figures = (str(row.consumers), str(row.moves), f"{row.r_score:.2f}", f"{row.fill:.0%}")
        table.add_row(row.heuristic, *figures, "\n".join(row.reasons[:1]))
    console.print(table)
