"""`trimtab doctor`: looks for what is wrong around a group, and says what to do."""

import json
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from trimtab.cli.group_options import looking
from trimtab.cli.output_formats import Format, Output
from trimtab.cli.plan import options
from trimtab.common.errors import TrimtabError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from trimtab.consumer_sdk.lake.lake import SparkLake
    from trimtab.sidecar.diagnostics.doctor.checks import Finding
    from trimtab.sidecar.settings.settings import Settings

SIGNS: Final = {
    "ok": "ok     ",
    "note": "note   ",
    "warning": "WARNING",
    "wrong": "WRONG  ",
    "skipped": "skipped",
}
COLOURS: Final = {
    "wrong": typer.colors.RED,
    "note": typer.colors.YELLOW,
    "warning": typer.colors.YELLOW,
}


def doctor(  # noqa: PLR0913 - typer: one parameter an option
    *,
    bootstrap: options.Bootstrap = None,
    group: options.Group = None,
    topics: options.Topics = None,
    ingest: Annotated[
        Path | None, typer.Option(help="The configuration of trimtab ingest: looks at its tables.")
    ] = None,
    output: Output = Format.TEXT,
    config: options.Config = None,
    kafka: options.Kafka = None,
) -> None:
    """Look for what is wrong: brokers, rights, topics, clocks, sidecar, tables, Kubernetes.

    Give it the sidecar's settings and run it where the sidecar runs, so that it has its rights.
    Nothing is changed. It ends with 1 if something is wrong. For example:

        trimtab doctor --bootstrap localhost:9092 --group lake

        trimtab doctor --config sidecar.yaml --ingest ingest.yaml --format json
    """
    from trimtab.common.clock import SystemClock  # noqa: PLC0415 - keeps --help fast
    from trimtab.sidecar.diagnostics.doctor.broker_checks import examined  # noqa: PLC0415 - as above
    from trimtab.sidecar.diagnostics.doctor.checks import is_wrong  # noqa: PLC0415 - as above

    flags = {"bootstrap": bootstrap, "group": group, "topics": topics}
    settings, _ = looking(config, flags, kafka)
    clock = SystemClock()
    found = [*examined(settings, clock), *_kubernetes(settings), *paused(settings, clock.wall())]
    if ingest is not None:
        found += [*_consumers(ingest, settings), *_tables(ingest)]
    if output is Format.JSON:
        body = {"group": settings.group, "wrong": is_wrong(found), "findings": found}
        typer.echo(json.dumps(body, default=asdict, indent=2))
    else:
        _print(found)
    if is_wrong(found):
        raise typer.Exit(1)


def lines(found: "Finding") -> list[str]:
    """Return a finding as it is printed: what was found and, below it, what to do."""
    said = [f"{SIGNS[found.level.value]}  {found.part}: {found.says}"]
    return [*said, f"         -> {found.do}"] if found.do else said


def _print(findings: "Sequence[Finding]") -> None:
    for found in findings:
        colour = COLOURS.get(found.level.value)
        for line in lines(found):
            typer.secho(line, fg=colour)
    typer.echo(summed(findings))


def summed(findings: "Sequence[Finding]") -> str:
    """Return the last line: how much is wrong, and what else is to be known."""
    count = sum(found.level.value == "wrong" for found in findings)
    warnings = sum(found.level.value == "warning" for found in findings)
    more = f"{warnings} warning{'' if warnings == 1 else 's'}" if warnings else ""
    if count:
        said = f"{count} of {len(findings)} checks found something wrong"
        return f"{said}, {more}" if more else said
    return f"nothing is wrong, but {more}" if more else "all well"


def _kubernetes(settings: "Settings") -> "Iterable[Finding]":
    from trimtab.sidecar.diagnostics.doctor.checks import Finding, Level  # noqa: PLC0415 - numpy is slow to load

    if settings.target not in ("kubernetes", "keda"):
        return ()
    if find_spec("kubernetes") is None:
        return (
            Finding(
                "Kubernetes",
                Level.WRONG,
                "its client is not installed here",
                "pip install 'trimtab[kubernetes]'",
            ),
        )
    from trimtab.sidecar.diagnostics.doctor.kubernetes_checks import examined  # noqa: PLC0415 - it needs an extra

    try:
        return tuple(examined(settings))
    except TrimtabError as error:
        return (Finding("Kubernetes", Level.WRONG, str(error), "mend what it names"),)


def paused(settings: "Settings", now: float) -> "Iterable[Finding]":
    """Tell what the sidecar's own settings pause; `now` is seconds since the epoch."""
    from trimtab.sidecar.diagnostics.doctor.checks import of_pause  # noqa: PLC0415 - numpy is slow to load

    always, today = settings.policy.pause, settings.policy.at(now).pause
    yield from of_pause("the settings", always, "take pause out of the sidecar's settings")
    yield from of_pause("the schedule", today - always, "wait for the end of its period")


def _consumers(ingest: Path, settings: "Settings") -> "Iterable[Finding]":
    """Compare the settings of consumers and sidecar where they must be the same."""
    from trimtab.common.config_file import load  # noqa: PLC0415 - keeps --help fast

    theirs = load(ingest)
    return of_consumers(
        theirs,
        {
            "group.id": settings.group,
            "trimtab.plan.topic": settings.plan_topic,
            "trimtab.speed.topic": settings.speed_topic,
        },
    )


def of_consumers(theirs: "Mapping[str, Any]", ours: "Mapping[str, str]") -> "list[Finding]":
    """Judge settings of consumers by those of the sidecar; what is not given is as by default."""
    from trimtab.common.control_topics.values import PLAN_TOPIC, WRITE_SPEED_TOPIC  # noqa: PLC0415 - as above
    from trimtab.sidecar.diagnostics.doctor.checks import Finding, Level  # noqa: PLC0415 - as above

    defaults = {"trimtab.plan.topic": PLAN_TOPIC, "trimtab.speed.topic": WRITE_SPEED_TOPIC}
    given = {**defaults, **theirs}
    differ = [name for name, value in ours.items() if given.get(name) != value]
    if not differ:
        return [Finding("settings of the consumers", Level.OK, "as the sidecar's")]
    return [
        Finding(
            "settings of the consumers",
            Level.WRONG,
            f"{name} is {given.get(name)!r} there, {ours[name]!r} at the sidecar",
            "let the two be the same",
        )
        for name in differ
    ]


def _tables(ingest: Path) -> "Iterable[Finding]":
    """Open the lake and read each table's marks."""
    from trimtab.cli.lake_session import opened, settings  # noqa: PLC0415 - pyspark is slow to load
    from trimtab.sidecar.diagnostics.doctor.checks import Finding, Level  # noqa: PLC0415 - as above

    found: list[Finding] = []
    try:
        with opened(settings(ingest, None)) as lake:
            names = lake.names()
            found.append(Finding("catalog", Level.OK, f"{len(names)} tables"))
            found += [_table(lake, name) for name in names]
    except TrimtabError as error:
        found.append(Finding("tables", Level.WRONG, str(error), "mend what it names"))
    return found


def _table(lake: "SparkLake", name: str) -> "Finding":
    """Read a table's marks; what is wrong with it is no reason to look at no other."""
    from trimtab.sidecar.diagnostics.doctor.checks import Finding, Level  # noqa: PLC0415 - loaded by now

    part = f"table {name}"
    try:
        table = lake.open(name)
        if table is None:
            return Finding(part, Level.NOTE, "it went away meanwhile")
        groups = sorted(table.look().marks.groups)
    except TrimtabError as error:
        return Finding(part, Level.WRONG, str(error), "mend what it names")
    return Finding(part, Level.OK, f"offsets of {', '.join(groups) or 'no group'}")
