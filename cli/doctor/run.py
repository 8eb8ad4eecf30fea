"""`trimtab doctor`: looks for what is wrong around a group, and says what to do."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from trimtab.cli.doctor.options import DoctorOptions
from trimtab.cli.group_settings import load_group_settings
from trimtab.cli.lake_session import load_lake_settings, open_lake_session
from trimtab.cli.output_formats import PrintFormat
from trimtab.common.clock import SystemClock
from trimtab.common.config_file import load_config_file
from trimtab.common.control_topics.topics import PLAN_TOPIC, WRITE_RATE_TOPIC
from trimtab.common.errors import TrimtabError
from trimtab.sidecar.diagnostics.doctor.broker_checks import run_broker_checks
from trimtab.sidecar.diagnostics.doctor.checks import Finding, FindingLevel, check_pause, has_failed_checks
from trimtab.sidecar.settings.settings import SidecarSettings

if TYPE_CHECKING:
    from trimtab.consumer_sdk.lake.lake import SparkLake

LEVEL_LABELS: Final = {
    "ok": "ok     ",
    "note": "note   ",
    "warning": "WARNING",
    "failed": "FAILED ",
    "skipped": "skipped",
}
LEVEL_COLOURS: Final = {
    "failed": typer.colors.RED,
    "note": typer.colors.YELLOW,
    "warning": typer.colors.YELLOW,
}


def doctor(options: DoctorOptions) -> None:
    """Run the checks and print their findings. Raises SettingError; exits with 1 on a failure."""
    settings, _ = load_group_settings(options)
    clock = SystemClock()
    findings = [
        *run_broker_checks(settings, clock),
        *_check_kubernetes(settings),
        *check_paused_scaling(settings, clock.wall()),
    ]
    if options.ingest is not None:
        findings += [*_check_consumer_file(options.ingest, settings), *_check_tables(options.ingest)]
    has_failed = has_failed_checks(findings)
    if options.output is PrintFormat.JSON:
        body = {"group": settings.group, "failed": has_failed, "findings": findings}
        typer.echo(json.dumps(body, default=asdict, indent=2))
    else:
        _print_findings(findings)
    if has_failed:
        raise typer.Exit(1)


def format_finding(finding: Finding) -> list[str]:
    """Return a finding as it is printed: what was found and, below it, what to do."""
    said = [f"{LEVEL_LABELS[finding.level.value]}  {finding.check}: {finding.message}"]
    return [*said, f"         -> {finding.remedy}"] if finding.remedy else said


def _print_findings(findings: Sequence[Finding]) -> None:
    for found in findings:
        colour = LEVEL_COLOURS.get(found.level.value)
        for line in format_finding(found):
            typer.secho(line, fg=colour)
    typer.echo(format_summary(findings))


def format_summary(findings: Sequence[Finding]) -> str:
    """Return the last line: how much is wrong, and what else is to be known."""
    count = sum(found.level.value == "failed" for found in findings)
    warnings = sum(found.level.value == "warning" for found in findings)
    more = f"{warnings} warning{'' if warnings == 1 else 's'}" if warnings else ""
    if count:
        said = f"{count} of {len(findings)} checks found something wrong"
        return f"{said}, {more}" if more else said
    return f"nothing is wrong, but {more}" if more else "all well"


def _check_kubernetes(settings: SidecarSettings) -> Iterable[Finding]:

    if settings.target not in ("kubernetes", "keda"):
        return ()
    if find_spec("kubernetes") is None:
        return (
            Finding(
                "Kubernetes",
                FindingLevel.FAILED,
                "its client is not installed here",
                "pip install 'trimtab[kubernetes]'",
            ),
        )

    # the API client is an extra
    from trimtab.sidecar.diagnostics.doctor.kubernetes_checks import (  # noqa: PLC0415
        run_kubernetes_checks,
    )

    try:
        return tuple(run_kubernetes_checks(settings))
    except TrimtabError as error:
        return (Finding("Kubernetes", FindingLevel.FAILED, str(error), "mend what it names"),)


def check_paused_scaling(settings: SidecarSettings, now: float) -> Iterable[Finding]:
    """Tell what the sidecar's own settings pause; `now` is seconds since the epoch."""
    always, today = (
        settings.autoscaling_policy.paused_directions,
        settings.autoscaling_policy.apply_schedule(now).paused_directions,
    )
    yield from check_pause("the settings", always, "take pause out of the sidecar's settings")
    yield from check_pause("the schedule", today - always, "wait for the end of its period")


def _check_consumer_file(ingest: Path, settings: SidecarSettings) -> Iterable[Finding]:
    """Compare the settings of consumers and sidecar where they must be the same."""
    theirs = load_config_file(ingest)
    return check_consumer_settings(
        theirs,
        {
            "group.id": settings.group,
            "trimtab.plan.topic": settings.plan_topic,
            "trimtab.write.rate.topic": settings.write_rate_topic,
        },
    )


def check_consumer_settings(
    consumer_settings: Mapping[str, Any], sidecar_settings: Mapping[str, str]
) -> list[Finding]:
    """Judge settings of consumers by those of the sidecar; what is not given is as by default."""
    defaults = {"trimtab.plan.topic": PLAN_TOPIC, "trimtab.write.rate.topic": WRITE_RATE_TOPIC}
    given = {**defaults, **consumer_settings}
    differ = [name for name, value in sidecar_settings.items() if given.get(name) != value]
    if not differ:
        return [Finding("settings of the consumers", FindingLevel.OK, "as the sidecar's")]
    return [
        Finding(
            "settings of the consumers",
            FindingLevel.FAILED,
            f"{name} is {given.get(name)!r} there, {sidecar_settings[name]!r} at the sidecar",
            "let the two be the same",
        )
        for name in differ
    ]


def _check_tables(ingest: Path) -> Iterable[Finding]:
    """Open the lake and read each table's marks."""
    found: list[Finding] = []
    try:
        with open_lake_session(load_lake_settings(ingest, None)) as lake:
            names = lake.list_tables()
            found.append(Finding("catalog", FindingLevel.OK, f"{len(names)} tables"))
            found += [_check_table(lake, name) for name in names]
    except TrimtabError as error:
        found.append(Finding("tables", FindingLevel.FAILED, str(error), "mend what it names"))
    return found


def _check_table(lake: "SparkLake", name: str) -> Finding:
    """Read a table's marks; what is wrong with it is no reason to look at no other."""
    part = f"table {name}"
    try:
        table = lake.open_table(name)
        if table is None:
            return Finding(part, FindingLevel.NOTE, "it went away meanwhile")
        groups = sorted(table.read_offsets().offsets.groups)
    except TrimtabError as error:
        return Finding(part, FindingLevel.FAILED, str(error), "mend what it names")
    return Finding(part, FindingLevel.OK, f"offsets of {', '.join(groups) or 'no group'}")
