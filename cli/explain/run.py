"""`trimtab explain`: why a group has this count and this placement, from the verdicts kept."""

import json
from contextlib import closing
from datetime import UTC, datetime, time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from trimtab.cli.errors import NoVerdicts
from trimtab.cli.group_options import looking
from trimtab.cli.output_formats import Format, Output
from trimtab.cli.plan import options
from trimtab.common.errors import BrokenHeuristic, SettingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab.sidecar.diagnostics.explanation import Explanation, Other
    from trimtab.sidecar.diagnostics.group_status import Seen
    from trimtab.sidecar.settings.settings import Settings


DAY: Final = 86400.0  # seconds


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
    output: Output = Format.TEXT,
    config: options.Config = None,
    kafka: options.Kafka = None,
) -> None:
    """Tell why a group has this many consumers, and why they read what they read.

    The sidecar keeps its last verdicts in a topic, so any machine can ask. For example:

        trimtab explain --bootstrap localhost:9092 --group lake

        trimtab explain --bootstrap localhost:9092 --group lake --at 14:32 -n 10

        trimtab explain --config sidecar.yaml --format json
    """
    from trimtab.sidecar.diagnostics.explanation import body, explained  # noqa: PLC0415 - loads numpy

    when = None if at is None else moment(at, datetime.now(UTC).astimezone())
    settings, _ = looking(config, {"bootstrap": bootstrap, "group": group}, kafka)
    seen = _seen(settings)
    found = explained(seen.records, when, number)
    if found is None:
        raise NoVerdicts(_nothing(seen, settings.group))
    beside = () if when is not None else _others(seen)
    if output is Format.JSON:
        typer.echo(json.dumps(body(found, beside), indent=2))
    else:
        typer.echo("\n".join(told(found, beside, seen.time if when is None else when)))


def moment(text: str, now: datetime) -> float:
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
    return today.timestamp() - (DAY if today > now else 0)


def told(found: "Explanation", beside: "Sequence[Other]", now: float) -> list[str]:
    """Return the lines that a person reads; `now` is seconds since the epoch."""
    from trimtab.sidecar.diagnostics.explanation import (  # noqa: PLC0415 - numpy is slow to load
        line,
        why_count,
        why_not,
        why_placement,
    )

    lines = [f"group {found.verdict.group}, {_at(now)}", "", "Why this count", ""]
    lines += [f"  {text}" for text in why_count(found, now)]
    lines += ["", "Why this placement", ""]
    lines += [f"  {text}" for text in why_placement(found, now)]
    if beside:
        running = found.verdict.numbers.running or 0
        lines += ["", "Other counts, now", ""]
        lines += [f"  {text}" for text in why_not(beside, running)]
    if found.history:
        lines += ["", "The last verdicts", ""]
        lines += [f"  {_at(record.time)} {line(record)}" for record in found.history]
    return lines


def _seen(settings: "Settings") -> "Seen":
    """Look once. Raises KafkaAway."""
    from trimtab.common.clock import SystemClock  # noqa: PLC0415 - keeps --help fast
    from trimtab.sidecar.diagnostics.group_snapshot import Looker  # noqa: PLC0415 - Kafka's clients load slowly
    from trimtab.sidecar.errors import KafkaAway  # noqa: PLC0415 - as above

    with closing(Looker(settings, SystemClock(), capacity_known=False)) as looker:
        seen = looker.look()
    if not seen.records and seen.trouble:
        raise KafkaAway("; ".join(seen.trouble))
    return seen


def _others(seen: "Seen") -> "Sequence[Other]":
    """Return what other counts would cost, where speeds are published and need no measuring."""
    from trimtab.sidecar.diagnostics.alternatives import others  # noqa: PLC0415 - numpy is slow to load
    from trimtab.sidecar.diagnostics.group_snapshot import PUBLISHED  # noqa: PLC0415 - loaded by now
    from trimtab.sidecar.diagnostics.what_if import Survey  # noqa: PLC0415 - as above

    if seen.source != PUBLISHED:
        return ()
    try:
        return others(Survey(seen.group, seen.speeds, seen.source, seen.plan, seen.racks))
    except BrokenHeuristic as error:  # what the leader has may be missing on this machine
        typer.echo(f"other counts cannot be told here: {error}", err=True)
        return ()


def _nothing(seen: "Seen", group: str) -> str:
    if not seen.records:
        return (
            f"no verdict of group {group!r} is kept: no sidecar steers it, or it is a dry run, or "
            "an older version; `trimtab plan` tells what one would do"
        )
    return f"the oldest verdict that is kept of group {group!r} is of {_at(seen.records[0].time)}"


def _at(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC).astimezone():%Y-%m-%d %H:%M:%S}"
