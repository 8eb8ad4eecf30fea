"""`trimtab explain`: why a group has this count and this placement, from the verdicts kept."""

import json
from contextlib import closing
from datetime import UTC, datetime, time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from trimtab.cli.errors import NoDecisionsError
from trimtab.cli.group_options import load_group_settings
from trimtab.cli.output_formats import FormatOption, PrintFormat
from trimtab.cli.plan import options
from trimtab.common.errors import BrokenHeuristicError, SettingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab.sidecar.diagnostics.explanation import AlternativeCount, Explanation
    from trimtab.sidecar.diagnostics.group_status import LiveGroupSnapshot
    from trimtab.sidecar.settings.settings import SidecarSettings


DAY_S: Final = 86400.0  # seconds


def explain(  # noqa: PLR0913 - typer: one parameter an option
    *,
    bootstrap: options.Bootstrap = None,
    group: options.Group = None,
    at: Annotated[
        str | None,
        typer.Option(help='As of then: "14:32", "2026-03-01T14:32", local time; else now.'),
    ] = None,
    number: Annotated[
        int, typer.Option("-n", min=0, help="Verdicts to list, besides what explains the group.")
    ] = 0,
    output: FormatOption = PrintFormat.TEXT,
    config: options.Config = None,
    kafka: options.Kafka = None,
) -> None:
    """Tell why a group has this many consumers, and why they read what they read.

    The sidecar keeps its last verdicts in a topic, so any machine can ask. For example:

        trimtab explain --bootstrap localhost:9092 --group lake

        trimtab explain --bootstrap localhost:9092 --group lake --at 14:32 -n 10

        trimtab explain --config sidecar.yaml --format json
    """
    from trimtab.sidecar.diagnostics.explanation import build_explanation, build_explanation_body  # noqa: PLC0415 - loads numpy

    when = None if at is None else parse_local_time(at, datetime.now(UTC).astimezone())
    settings, _ = load_group_settings(config, {"bootstrap": bootstrap, "group": group}, kafka)
    seen = _read_snapshot(settings)
    found = build_explanation(seen.decisions, when, number)
    if found is None:
        raise NoDecisionsError(_explain_no_decisions(seen, settings.group))
    beside = () if when is not None else _compute_alternatives(seen)
    if output is PrintFormat.JSON:
        typer.echo(json.dumps(build_explanation_body(found, beside), indent=2))
    else:
        typer.echo(
            "\n".join(format_explanation(found, beside, seen.time if when is None else when))
        )


def parse_local_time(text: str, now: datetime) -> float:
    """Return seconds since the epoch of a local time, or date and time.

    A time without a date is the last one that has been. Raises SettingError.
    """
    try:
        if "-" in text:
            whole = datetime.fromisoformat(text)
            return (whole if whole.tzinfo else whole.replace(tzinfo=now.tzinfo)).timestamp()
        clock = time.fromisoformat(text)
    except ValueError:
        raise SettingError(
            f'--at {text!r} is no time; write "14:32", "14:32:05" or "2026-03-01T14:32"'
        ) from None
    today = datetime.combine(now.date(), clock, now.tzinfo)
    return today.timestamp() - (DAY_S if today > now else 0)


def format_explanation(
    explanation: "Explanation", alternatives: "Sequence[AlternativeCount]", now: float
) -> list[str]:
    """Return the lines that a person reads; `now` is seconds since the epoch."""
    from trimtab.sidecar.diagnostics.explanation import (  # noqa: PLC0415 - numpy is slow to load
        explain_alternatives,
        explain_count,
        explain_placement,
        format_decision_line,
    )

    lines = [
        f"group {explanation.verdict.group}, {_format_local_time(now)}",
        "",
        "Why this count",
        "",
    ]
    lines += [f"  {text}" for text in explain_count(explanation, now)]
    lines += ["", "Why this placement", ""]
    lines += [f"  {text}" for text in explain_placement(explanation, now)]
    if alternatives:
        running = explanation.verdict.numbers.running or 0
        lines += ["", "Other counts, now", ""]
        lines += [f"  {text}" for text in explain_alternatives(alternatives, running)]
    if explanation.history:
        lines += ["", "The last verdicts", ""]
        lines += [
            f"  {_format_local_time(record.time)} {format_decision_line(record)}"
            for record in explanation.history
        ]
    return lines


def _read_snapshot(settings: "SidecarSettings") -> "LiveGroupSnapshot":
    """Look once. Raises BrokerTimeoutError."""
    from trimtab.common.clock import SystemClock  # noqa: PLC0415 - keeps --help fast
    from trimtab.sidecar.diagnostics.group_snapshot import LiveGroupReader  # noqa: PLC0415 - Kafka's clients load slowly
    from trimtab.sidecar.errors import BrokerTimeoutError  # noqa: PLC0415 - as above

    with closing(LiveGroupReader(settings, SystemClock(), capacity_known=False)) as looker:
        seen = looker.read_snapshot()
    if not seen.decisions and seen.trouble:
        raise BrokerTimeoutError("; ".join(seen.trouble))
    return seen


def _compute_alternatives(snapshot: "LiveGroupSnapshot") -> "Sequence[AlternativeCount]":
    """Return what other counts would cost, where speeds are published and need no measuring."""
    from trimtab.sidecar.diagnostics.alternatives import compute_alternatives  # noqa: PLC0415 - numpy is slow to load
    from trimtab.sidecar.diagnostics.group_snapshot import SOURCE_PUBLISHED  # noqa: PLC0415 - loaded by now
    from trimtab.sidecar.diagnostics.what_if import GroupBaseline  # noqa: PLC0415 - as above

    if snapshot.rate_source != SOURCE_PUBLISHED:
        return ()
    try:
        return compute_alternatives(
            GroupBaseline(
                snapshot.group,
                snapshot.write_rates,
                snapshot.rate_source,
                snapshot.plan,
                snapshot.replica_racks,
            )
        )
    except BrokenHeuristicError as error:  # what the leader has may be missing on this machine
        typer.echo(f"other counts cannot be told here: {error}", err=True)
        return ()


def _explain_no_decisions(snapshot: "LiveGroupSnapshot", group: str) -> str:
    if not snapshot.decisions:
        return (
            f"no verdict of group {group!r} is kept: no sidecar steers it, or it is a dry run, or "
            "an older version; `trimtab plan` tells what one would do"
        )
    return f"the oldest verdict that is kept of group {group!r} is of {_format_local_time(snapshot.decisions[0].time)}"


def _format_local_time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC).astimezone():%Y-%m-%d %H:%M:%S}"
