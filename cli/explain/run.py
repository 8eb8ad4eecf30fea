"""`trimtab explain`: why a group has its replica count and placement, from kept decisions."""

import json
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, time
from typing import Final

import typer

from trimtab.cli.errors import NoDecisionsError
from trimtab.cli.explain.options import ExplainOptions
from trimtab.cli.group_settings import load_group_settings
from trimtab.cli.output_formats import PrintFormat
from trimtab.cli.terminal import print_line, print_lines
from trimtab.common.clock import SystemClock
from trimtab.common.errors import BrokenHeuristicError, SettingError
from trimtab.sidecar.diagnostics.alternatives import compute_alternatives
from trimtab.sidecar.diagnostics.explanation import (
    AlternativeCount,
    Explanation,
    build_explanation,
    build_explanation_body,
    explain_alternatives,
    explain_count,
    explain_placement,
    format_decision_line,
)
from trimtab.sidecar.diagnostics.group_snapshot import LiveGroupReader
from trimtab.sidecar.diagnostics.group_status import LiveGroupSnapshot
from trimtab.sidecar.diagnostics.what_if import SOURCE_PUBLISHED, GroupBaseline
from trimtab.sidecar.errors import BrokerTimeoutError
from trimtab.sidecar.model.autoscaling_policy import AutoscalingPolicy
from trimtab.sidecar.settings.settings import SidecarSettings

DAY_S: Final = 86400.0


def explain(options: ExplainOptions) -> None:
    """Print the explanation. Raises SettingError, BrokerTimeoutError, NoDecisionsError."""
    at = None if options.at is None else parse_local_time(options.at, datetime.now(UTC).astimezone())
    settings, _ = load_group_settings(options)
    snapshot = _read_snapshot(settings)
    explanation = build_explanation(snapshot.decisions, at, options.number)
    if explanation is None:
        raise NoDecisionsError(_explain_no_decisions(snapshot, settings.group))
    # no rates of the past are kept
    alternatives = _compute_alternatives(snapshot, settings.autoscaling_policy) if at is None else ()
    if options.output is PrintFormat.JSON:
        typer.echo(json.dumps(build_explanation_body(explanation, alternatives), indent=2))
    else:
        now = snapshot.time if at is None else at
        print_lines(format_explanation(explanation, alternatives, now))


def parse_local_time(text: str, now: datetime) -> float:
    """Return seconds since the epoch of a local time, or date and time. Raises SettingError."""
    try:
        if "-" in text:
            whole = datetime.fromisoformat(text)
            return (whole if whole.tzinfo else whole.replace(tzinfo=now.tzinfo)).timestamp()
        clock = time.fromisoformat(text)
    except ValueError:
        raise SettingError(
            f'--at {text!r} is not a time; write "14:32", "14:32:05" or "2026-03-01T14:32"'
        ) from None
    today = datetime.combine(now.date(), clock, now.tzinfo)
    return today.timestamp() - (DAY_S if today > now else 0)  # decisions lie in the past


def format_explanation(
    explanation: Explanation, alternatives: Sequence[AlternativeCount], now: float
) -> list[str]:
    """Return the explanation as lines; `now` is seconds since the epoch."""
    lines = [f"group {explanation.decision.group}, {_format_local_time(now)}", ""]
    if conditions := explanation.decision.conditions:
        as_of = _format_local_time(explanation.decision.until)
        lines += [f"Conditions, as of {as_of}", "", *(f"  {one.format_line()}" for one in conditions), ""]
    lines += ["Why this count", ""]
    lines += [f"  {text}" for text in explain_count(explanation, now)]
    lines += ["", "Why this placement", ""]
    lines += [f"  {text}" for text in explain_placement(explanation, now)]
    if alternatives:
        running = explanation.decision.metrics.running_replicas or 0
        lines += ["", "Other counts, now", ""]
        lines += [f"  {text}" for text in explain_alternatives(alternatives, running)]
    if explanation.history:
        lines += ["", "The last decisions", ""]
        lines += [
            f"  {_format_local_time(one.time)} {format_decision_line(one)}" for one in explanation.history
        ]
    return lines


def _read_snapshot(settings: SidecarSettings) -> LiveGroupSnapshot:
    with closing(LiveGroupReader(settings, SystemClock(), capacity_known=False)) as reader:
        snapshot = reader.read_snapshot()
    if not snapshot.decisions and snapshot.errors:  # errors beside decisions: they suffice
        raise BrokerTimeoutError("; ".join(snapshot.errors))
    return snapshot


def _compute_alternatives(
    snapshot: LiveGroupSnapshot, policy: AutoscalingPolicy
) -> Sequence[AlternativeCount]:
    if snapshot.rate_source != SOURCE_PUBLISHED:
        return ()  # measuring would take a window
    rates = (snapshot.write_rates, snapshot.rate_source)
    try:
        baseline = GroupBaseline(snapshot.group, *rates, snapshot.plan, snapshot.replica_racks)
        return compute_alternatives(baseline, policy)
    except BrokenHeuristicError as error:  # the plan's heuristic may need a package that only the leader has
        print_line(f"other counts cannot be computed on this machine: {error}", err=True)
        return ()


def _explain_no_decisions(snapshot: LiveGroupSnapshot, group: str) -> str:
    if not snapshot.decisions:
        return (
            f"no decision of group {group!r} is kept: no sidecar scales it, or it is a dry run, or "
            "an older version; run `trimtab plan` to preview decisions"
        )
    oldest = _format_local_time(snapshot.decisions[0].time)
    return f"the oldest decision kept of group {group!r} is from {oldest}"


def _format_local_time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC).astimezone():%Y-%m-%d %H:%M:%S %Z}"
