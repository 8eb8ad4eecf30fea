"""`trimtab doctor`: checks everything around a group, and suggests remedies."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from trimtab.cli.doctor.options import DoctorOptions
from trimtab.cli.group_settings import SelectedGroup, select_group
from trimtab.cli.output_formats import PrintFormat
from trimtab.cli.terminal import print_line
from trimtab.common.clock import SystemClock
from trimtab.common.control_topics.topics import PLAN_TOPIC, WRITE_RATE_TOPIC
from trimtab.common.errors import TrimtabError
from trimtab.common.settings.config_file import load_config_file
from trimtab.common.units import format_count
from trimtab.sidecar.diagnostics.doctor.all_checks import REMEDY, run_all_checks
from trimtab.sidecar.diagnostics.doctor.checks import Finding, failed, has_failed_checks, noted, passed
from trimtab.sidecar.diagnostics.doctor.shard_checks import run_shard_checks
from trimtab.sidecar.settings.settings import SidecarSettings

if TYPE_CHECKING:
    from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake

# capitals: the terminal's colours are lost in a pipe
LEVEL_LABELS: Final = {"warning": "WARNING", "failed": "FAILED"}
LEVEL_COLOURS: Final = {
    "failed": typer.colors.RED,
    "note": typer.colors.YELLOW,
    "warning": typer.colors.YELLOW,
}
CONSUMERS_CHECK: Final = "settings of the consumers"


def doctor(options: DoctorOptions) -> None:
    """Run the checks and print their findings. Raises SettingError; exits with 1 on a failure."""
    selected = select_group(options)
    settings = selected.settings
    clock = SystemClock()
    findings = [*run_all_checks(settings, clock), *_check_resource(selected)]
    if selected.shard_topic is not None:
        findings += run_shard_checks(settings, selected.shard_topic, clock)
    if options.ingest is not None:
        findings += [*_check_consumer_file(options.ingest, settings), *_check_tables(options.ingest)]
    has_failed = has_failed_checks(findings)
    if options.output is PrintFormat.JSON:
        body = {"group": settings.group, "failed": has_failed, "findings": findings}
        typer.echo(json.dumps(body, default=asdict, indent=2))
    else:
        for found in findings:
            for line in format_finding(found):
                print_line(line, colour=LEVEL_COLOURS.get(found.level.value))
        print_line(format_summary(findings))
    if has_failed:
        raise typer.Exit(1)


def _check_resource(selected: SelectedGroup) -> Iterable[Finding]:
    if selected.resource is None or selected.listed is None:
        return ()
    from trimtab.sidecar.diagnostics.doctor.resource_checks import run_resource_checks  # noqa: PLC0415 - an extra

    return run_resource_checks(selected.listed, selected.resource.resource)


def format_finding(finding: Finding) -> list[str]:
    """Return a finding as lines: check and message, and the remedy below."""
    level = finding.level.value
    line = f"{LEVEL_LABELS.get(level, level):7}  {finding.check}: {finding.message}"
    return [line, f"         -> {finding.remedy}"] if finding.remedy else [line]


def format_summary(findings: Sequence[Finding]) -> str:
    """Return the last line: the numbers of failed checks and of warnings."""
    count = sum(found.level.value == "failed" for found in findings)
    warnings = sum(found.level.value == "warning" for found in findings)
    more = format_count(warnings, "warning") if warnings else ""
    if count:
        return f"{count} of {format_count(len(findings), 'check')} failed" + (f", {more}" if more else "")
    return f"no check failed, but {more}" if more else "all checks passed"


def _check_consumer_file(ingest: Path, settings: SidecarSettings) -> Iterable[Finding]:
    expected = {
        "group.id": settings.group,
        "trimtab.plan.topic": settings.plan_topic,
        "trimtab.write.rate.topic": settings.write_rate_topic,
    }
    return check_consumer_settings(load_config_file(ingest), expected)


def check_consumer_settings(
    consumer_settings: Mapping[str, Any], sidecar_settings: Mapping[str, str]
) -> list[Finding]:
    """Compare the settings on which consumers and sidecar must agree."""
    defaults = {"trimtab.plan.topic": PLAN_TOPIC, "trimtab.write.rate.topic": WRITE_RATE_TOPIC}
    given = {**defaults, **consumer_settings}
    findings = [
        failed(
            CONSUMERS_CHECK,
            f"{name} is {given.get(name)!r} for the consumers, {value!r} for the sidecar",
            "give both the same value",
        )
        for name, value in sidecar_settings.items()
        if given.get(name) != value
    ]
    return findings or [passed(CONSUMERS_CHECK, "agree with the sidecar's")]


def _check_tables(ingest: Path) -> Iterable[Finding]:
    # pyspark is an extra, and a doctor without --ingest does without it
    from trimtab.cli.lake_session import load_lake_settings, open_lake_session  # noqa: PLC0415

    findings: list[Finding] = []
    try:
        with open_lake_session(load_lake_settings(ingest, None)) as lake:
            names = lake.list_tables()
            findings.append(passed("catalog", format_count(len(names), "table")))
            findings += [_check_table(lake, name) for name in names]
    except TrimtabError as error:
        findings.append(failed("tables", str(error), REMEDY))
    return findings


def _check_table(lake: "SparkLake", name: str) -> Finding:
    check = f"table {name}"
    try:
        table = lake.open_table(name)
        if table is None:
            return noted(check, "was dropped during the check")
        groups = sorted(table.read_offsets().offsets.groups)
    except TrimtabError as error:  # one broken table must not hide the others
        return failed(check, str(error), REMEDY)
    return passed(check, f"offsets of {', '.join(groups) or 'no group'}")
