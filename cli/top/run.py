"""`trimtab top`: a live table of a group's consumers; it changes nothing."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, TypeAlias

import typer
from rich.console import Group as Together
from rich.console import RenderableType
from rich.live import Live
from rich.table import Table

from trimtab.cli.errors import GroupNotFoundError
from trimtab.cli.group_settings import load_group_settings
from trimtab.cli.output_formats import PrintFormat
from trimtab.cli.plain_console import PlainConsole, plain_text
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
from trimtab.sidecar.model.observation import GroupState

SnapshotReader: TypeAlias = Callable[[], LiveGroupSnapshot]
Wait: TypeAlias = Callable[[float], bool]  # for seconds; True after a signal

TOP_READINGS_PER_WINDOW: Final = 5
MIN_NAME_WIDTH: Final = 9
PIPE_WIDTH: Final = 10_000
SEVERITY_COLOURS: Final = {"warning": "yellow", "critical": "red"}
STATE_COLOURS: Final = {"running": "green", "draining": "yellow", "dead": "red"}
FIGURE_COLUMNS: Final = ("partitions", "writing", "required", "capacity", "fill", "backlog")


def top(options: TopOptions) -> None:
    """Print a group's status, once or until a signal. Raises SettingError, BrokerTimeoutError."""
    interval = parse_seconds(options.interval, "--interval")
    window = parse_seconds(options.window, "--window")
    if interval <= 0 or window <= 0:
        raise SettingError("--interval and --window must be above 0")
    measure = {"window": window, "interval": window / TOP_READINGS_PER_WINDOW}
    settings, is_known = load_group_settings(options, measure)
    wait = install_signal_waiter()
    # connecting and reading may block for a broker's timeout; a signal must end the command at once
    reader = run_interruptible(
        lambda: LiveGroupReader(settings, SystemClock(), capacity_known=is_known), wait
    )
    read_snapshot = partial(run_interruptible, reader.read_snapshot, wait)
    if options.once:
        _print_status(_read_settled(read_snapshot, window, wait), settings.group, options.output)
    elif options.output is PrintFormat.JSON:
        for status in _iterate_statuses(read_snapshot, interval, wait):
            typer.echo(json.dumps(build_status_body(status, settings.group)))
    else:
        with Live(console=PlainConsole(), auto_refresh=False, screen=False) as live:
            for status in _iterate_statuses(read_snapshot, interval, wait):
                live.update(build_status_table(status, settings.group, live.console.width), refresh=True)
    reader.close()


def _read_settled(read_snapshot: SnapshotReader, window: float, wait: Wait) -> GroupStatus:
    """Return a status with write rates, if any. Raises BrokerTimeoutError."""
    snapshot = _require_answer(read_snapshot())
    # a rate needs two readings; published rates need no wait
    if snapshot.rate_source == SOURCE_MEASURED and snapshot.write_rates:
        for _ in range(TOP_READINGS_PER_WINDOW):
            if wait(window / TOP_READINGS_PER_WINDOW):
                break
            snapshot = read_snapshot()
    return build_group_status(_require_answer(snapshot))


def _require_answer(snapshot: LiveGroupSnapshot) -> LiveGroupSnapshot:
    if snapshot.group.state is GroupState.UNKNOWN and snapshot.errors:
        raise BrokerTimeoutError("; ".join(snapshot.errors))
    return snapshot


def _iterate_statuses(read_snapshot: SnapshotReader, interval: float, wait: Wait) -> Iterator[GroupStatus]:
    last, stopped = None, False
    while not stopped:
        last = keep_last_status(last, build_group_status(read_snapshot()))
        yield last
        stopped = wait(interval)


def _print_status(status: GroupStatus, group: str, output: PrintFormat) -> None:
    if status.is_absent:
        raise GroupNotFoundError(group, status.errors)
    if output is PrintFormat.JSON:
        typer.echo(json.dumps(build_status_body(status, group), indent=2))
    else:
        console = PlainConsole()
        if not console.is_terminal:
            console = PlainConsole(width=PIPE_WIDTH)  # whole names on lines of their own
        console.print(build_status_table(status, group, console.width))


def build_status_body(status: GroupStatus, group: str) -> dict[str, Any]:
    """Return a status as JSON: rates in bytes/s, None where unknown."""
    return {"group": group, **asdict(status), "sidecar_status": status.sidecar_summary}


def build_status_table(status: GroupStatus, group: str, width: int | None = None) -> RenderableType:
    """Return a status as a table, with a heading above and notes below.

    `width`: columns of a terminal, in which long names are shortened; None keeps them whole.
    """
    # whole names fold: otherwise 80 columns hold either them or the figures
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("consumer", overflow="fold", min_width=MIN_NAME_WIDTH)
    for column in FIGURE_COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    names = [row.name for row in status.consumers]
    if width is not None:
        names = abbreviate_names(names, max(MIN_NAME_WIDTH, width - _measure_figures(status.consumers)))
    for name, row in zip(names, status.consumers, strict=True):
        state = plain_text(row.state.value, STATE_COLOURS[row.state.value])
        table.add_row(plain_text(name), *map(plain_text, format_figures(row)), state)
    errors = [plain_text(text, "red") for text in (*_explain_absence(status, group), *status.errors)]
    if status.is_unreachable or status.is_absent:
        return Together(*errors)
    notes = () if status.cross_rack_traffic is None else status.cross_rack_traffic.notes
    more = (part.format_line() for part in (status.plan_outcome, status.carrier) if part is not None)
    heading = (
        plain_text(format_heading(status, group)),
        plain_text(status.sidecar_summary),
        *map(plain_text, more),
        *(plain_text(one.format_line(), SEVERITY_COLOURS[one.severity]) for one in status.conditions),
    )
    return Together(*heading, table, *map(plain_text, notes), *errors)


def _measure_figures(consumers: Sequence[ConsumerStatus]) -> int:
    """Return the terminal columns that all cells but the name take, with a space after each column."""
    rows = [(*FIGURE_COLUMNS, "state"), *((*format_figures(row), row.state.value) for row in consumers)]
    return sum(max(map(len, column)) + 1 for column in zip(*rows, strict=True)) + 1


def abbreviate_names(names: Sequence[str], width: int) -> list[str]:
    """Return names of at most `width` characters, as `3f2a…9c1b`, or of as few more as keep them apart."""
    for size in range(width, max(map(len, names), default=0)):
        for tail in ((size - 1) // 2, size - 2, 1):  # of both ends alike, else of the one that differs
            short = [n if len(n) <= size else f"{n[: size - 1 - tail]}…{n[-tail:]}" for n in names]
            if len(set(short)) == len(set(names)):
                return short
    return list(names)


def _explain_absence(status: GroupStatus, group: str) -> tuple[str, ...]:
    if status.is_absent:
        return (str(GroupNotFoundError(group)),)
    if status.unreachable_since is None:
        return ()
    seen = "never reached" if status.is_unreachable else f"last seen at {_format_clock(status.time)}"
    return (f"broker unreachable since {_format_clock(status.unreachable_since)}, {seen}",)


def _format_clock(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC).astimezone():%H:%M:%S %Z}"


def format_figures(consumer: ConsumerStatus) -> tuple[str, ...]:
    """Return a consumer's cells; "?" for an unknown figure."""
    if consumer.state.value == "dead":
        return ("-",) * len(FIGURE_COLUMNS)
    unknown = f" ({consumer.load.unknown_partitions} ?)" if consumer.load.unknown_partitions else ""
    return (
        f"{consumer.load.partitions}{unknown}",
        format_rate(consumer.load.write_rate),
        format_rate(consumer.load.required_rate),
        format_rate(consumer.capacity),
        "?" if consumer.fill is None else f"{consumer.fill:.0%}",
        format_bytes(consumer.load.backlog),
    )


def format_heading(status: GroupStatus, group: str) -> str:
    """Return the first line: replicas, partitions, rates and backlog of the group."""
    load = status.total_load
    traffic = status.cross_rack_traffic
    counts = {"running": status.running, "planned": status.planned, "desired": status.desired}
    known = ", ".join(f"{count} {name}" for name, count in counts.items() if count is not None)
    unowned = f", {status.unowned_partitions} of them unowned" if status.unowned_partitions else ""
    unknown = f", {load.unknown_partitions} unknown" if load.unknown_partitions else ""
    racks = "" if traffic is None else f", {format_rate(traffic.load)} across racks"
    queue = f", {status.queue_summary}" if status.queue_summary else ""
    partitions = format_count(load.partitions, "partition")
    return (
        f"{_format_clock(status.time)} group {group} ({status.state}): {known}; "
        f"{partitions}{unowned}{unknown}; writing {format_rate(load.write_rate)}, "
        f"required {format_rate(load.required_rate)}{racks}, "
        f"backlog {format_bytes(load.backlog)}{queue} ({status.rate_source})"
    )
