"""`trimtab top`: a live table of a group's consumers; it changes nothing."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, TypeAlias

import typer
from rich.console import Console, RenderableType
from rich.console import Group as Together
from rich.live import Live
from rich.table import Table
from rich.text import Text

from trimtab.cli.errors import GroupNotFoundError
from trimtab.cli.group_settings import load_group_settings
from trimtab.cli.output_formats import PrintFormat
from trimtab.cli.signals import install_signal_waiter, run_interruptible
from trimtab.cli.top.options import TopOptions
from trimtab.common.clock import SystemClock
from trimtab.common.errors import SettingError
from trimtab.common.units import format_bytes, format_count, format_rate, parse_seconds
from trimtab.sidecar.diagnostics.group_snapshot import LiveGroupReader
from trimtab.sidecar.diagnostics.group_status import (
    ConsumerStatus,
    GroupStatus,
    LiveGroupSnapshot,
    build_group_status,
    keep_last_status,
)
from trimtab.sidecar.diagnostics.what_if import SOURCE_MEASURED
from trimtab.sidecar.errors import BrokerTimeoutError
from trimtab.sidecar.measurement.observation import GroupState

SnapshotReader: TypeAlias = Callable[[], LiveGroupSnapshot]

TOP_READINGS_PER_WINDOW: Final = 5
"""Looks in one window, where speeds are to be measured."""

MIN_NAME_WIDTH: Final = 9
"""Least width of a consumer's name."""

STATE_COLOURS: Final = {"running": "green", "draining": "yellow", "dead": "red"}
FIGURE_COLUMNS: Final = ("partitions", "writing", "needed", "capacity", "fill", "backlog")


def top(options: TopOptions) -> None:
    """Print a group's status, once or until a signal. Raises SettingError, BrokerTimeoutError."""
    interval = parse_seconds(options.interval, "--interval")
    window = parse_seconds(options.window, "--window")
    if interval <= 0 or window <= 0:
        raise SettingError("--interval and --window must be above 0")
    measure = {"window": window, "interval": window / TOP_READINGS_PER_WINDOW}
    settings, is_known = load_group_settings(options, measure)
    wait = install_signal_waiter()
    reader = run_interruptible(
        lambda: LiveGroupReader(settings, SystemClock(), capacity_known=is_known), wait
    )
    read_snapshot = partial(run_interruptible, reader.read_snapshot, wait)
    if options.once:
        status = _read_settled_status(read_snapshot, window, wait)
        _print_status(status, settings.group, options.output)
    elif options.output is PrintFormat.JSON:
        _print_json_lines(read_snapshot, settings.group, interval, wait)
    else:
        _show_live_table(read_snapshot, settings.group, interval, wait)
    reader.close()


def _read_settled_status(
    read_snapshot: SnapshotReader, seconds: float, wait: Callable[[float], bool]
) -> GroupStatus:
    """Return a frame whose speeds are known, if that is a matter of a window.

    Raises BrokerTimeoutError where nobody answers.
    """
    seen = _require_answer(read_snapshot())
    if seen.rate_source == SOURCE_MEASURED and seen.write_rates:
        for _ in range(TOP_READINGS_PER_WINDOW):
            if wait(seconds / TOP_READINGS_PER_WINDOW):
                break
            seen = read_snapshot()
    return build_group_status(_require_answer(seen))


def _require_answer(snapshot: LiveGroupSnapshot) -> LiveGroupSnapshot:

    if snapshot.group.state is GroupState.UNKNOWN and snapshot.trouble:
        raise BrokerTimeoutError("; ".join(snapshot.trouble))
    return snapshot


def _iterate_statuses(
    read_snapshot: SnapshotReader, interval: float, wait: Callable[[float], bool]
) -> Iterator[GroupStatus]:
    """Yield what there is to see, look after look, until a signal comes."""
    last, stopped = None, False
    while not stopped:
        last = keep_last_status(last, build_group_status(read_snapshot()))
        yield last
        stopped = wait(interval)


def _print_json_lines(
    read_snapshot: SnapshotReader, group: str, interval: float, wait: Callable[[float], bool]
) -> None:
    for made in _iterate_statuses(read_snapshot, interval, wait):
        typer.echo(json.dumps(build_status_body(made, group)))


def _show_live_table(
    read_snapshot: SnapshotReader, group: str, interval: float, wait: Callable[[float], bool]
) -> None:

    with Live(console=_create_console(), auto_refresh=False, screen=False) as live:
        for made in _iterate_statuses(read_snapshot, interval, wait):
            live.update(build_status_table(made, group), refresh=True)


def _print_status(status: GroupStatus, group: str, output: PrintFormat) -> None:
    if status.is_absent:
        raise GroupNotFoundError(group, status.trouble)
    if output is PrintFormat.JSON:
        typer.echo(json.dumps(build_status_body(status, group), indent=2))
    else:
        _create_console().print(build_status_table(status, group))


def _create_console() -> Console:

    return Console(highlight=False)


def build_status_body(status: GroupStatus, group: str) -> dict[str, Any]:
    """Return a frame as JSON has it: rates in bytes/s, None where unknown."""
    return {"group": group, **asdict(status), "sidecar_status": status.sidecar_summary}


def build_status_table(status: GroupStatus, group: str) -> RenderableType:
    """Return a frame as the terminal has it."""
    # names fold rather than vanish: a terminal of 80 columns holds all figures beside them
    shown = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    shown.add_column("consumer", overflow="fold", min_width=MIN_NAME_WIDTH)
    for column in FIGURE_COLUMNS:
        shown.add_column(column, justify="right", no_wrap=True)
    shown.add_column("state", no_wrap=True)
    for row in status.consumers:
        state = Text(row.state.value, style=STATE_COLOURS[row.state.value])
        shown.add_row(Text(row.name), *map(Text, format_figures(row)), state)
    notes = () if status.cross_rack_traffic is None else status.cross_rack_traffic.notes
    trouble = [Text(text, style="red") for text in (*explain_absence(status, group), *status.trouble)]
    if status.is_unreachable or status.is_absent:
        return Together(*trouble)
    below = [*map(Text, notes), *trouble]
    return Together(Text(format_heading(status, group)), Text(status.sidecar_summary), shown, *below)


def explain_absence(status: GroupStatus, group: str) -> tuple[str, ...]:
    """Tell that nobody answers, and of when the figures are; or that there is no such group."""
    if status.is_absent:
        return (str(GroupNotFoundError(group)),)
    if status.unreachable_since is None:
        return ()
    seen = (
        "nothing was seen before"
        if status.is_unreachable
        else f"last seen at {_format_local_clock(status.time)}"
    )
    return (f"broker away since {_format_local_clock(status.unreachable_since)}, {seen}",)


def _format_local_clock(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC).astimezone():%H:%M:%S}"


def format_figures(consumer: ConsumerStatus) -> tuple[str, ...]:
    """Return a consumer's figures as they are shown; "?" for what is not known."""
    if consumer.state.value == "dead":
        return ("-",) * len(FIGURE_COLUMNS)
    unknown = f" ({consumer.load.unknown_partitions} ?)" if consumer.load.unknown_partitions else ""
    return (
        f"{consumer.load.partitions}{unknown}",
        format_rate(consumer.load.write_rate),
        format_rate(consumer.load.needed_rate),
        format_rate(consumer.capacity),
        "?" if consumer.fill is None else f"{consumer.fill:.0%}",
        format_bytes(consumer.load.backlog),
    )


def format_heading(status: GroupStatus, group: str) -> str:
    """Return the line that sums a group up."""
    load, traffic = status.total_load, status.cross_rack_traffic
    planned, desired = format_count(status.planned), format_count(status.desired)
    counts = f"{status.running} running, {planned} planned, {desired} desired"
    unowned = f", {status.unowned_partitions} of them unowned" if status.unowned_partitions else ""
    unknown = f", {load.unknown_partitions} unknown" if load.unknown_partitions else ""
    racks = "" if traffic is None else f", {format_rate(traffic.load)} across racks"
    queue = f", {status.queue_summary}" if status.queue_summary else ""
    return (
        f"{_format_local_clock(status.time)} group {group} ({status.state}): {counts}; "
        f"{load.partitions} partitions{unowned}{unknown}; writing {format_rate(load.write_rate)}, "
        f"needed {format_rate(load.needed_rate)}{racks}, "
        f"backlog {format_bytes(load.backlog)}{queue} ({status.rate_source})"
    )
