"""`trimtab top`: a live table of a group's consumers; it changes nothing."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from trimtab.cli.errors import NoGroup
from trimtab.cli.group_options import looking
from trimtab.cli.output_formats import Format
from trimtab.cli.plan import options
from trimtab.common.errors import SettingError
from trimtab.common.units import format_bytes, format_count, format_rate, parse_seconds

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from trimtab.sidecar.diagnostics.group_status import Frame, Row, Seen

    Look = Callable[[], Seen]

LOOKS: Final = 5
"""Looks in one window, where speeds are to be measured."""

NAME: Final = 9
"""Least width of a consumer's name."""

COLOURS: Final = {"running": "green", "draining": "yellow", "dead": "red"}
COLUMNS: Final = ("partitions", "writing", "needed", "capacity", "fill", "backlog")


def top(  # noqa: PLR0913 - typer: one parameter an option
    *,
    bootstrap: options.Bootstrap = None,
    group: options.Group = None,
    topics: options.Topics = None,
    capacity: options.Capacity = None,
    interval: Annotated[str, typer.Option(help="Between two looks.")] = "2 s",
    window: Annotated[str, typer.Option(help="To measure, if no sidecar does.")] = "10 s",
    once: Annotated[bool, typer.Option("--once", help="Print one table and end.")] = False,
    output: Annotated[
        Format, typer.Option("--format", help="How to print it; json: one line a look.")
    ] = Format.TEXT,
    config: options.Config = None,
    kafka: options.Kafka = None,
) -> None:
    """Show a live group: what each consumer reads, how full it is, and who steers. Ctrl-C ends it.

    It reads the control topics, and measures itself where no sidecar does; it changes nothing. For
    example:

        trimtab top --bootstrap localhost:9092 --group lake

        trimtab top --bootstrap localhost:9092 --group lake --once --format json
    """
    from trimtab.cli.signals import beside, waiter  # noqa: PLC0415 - as above
    from trimtab.common.clock import SystemClock  # noqa: PLC0415 - keeps --help fast
    from trimtab.sidecar.diagnostics.group_snapshot import Looker  # noqa: PLC0415 - Kafka's clients load slowly

    pause, seconds = parse_seconds(interval, "--interval"), parse_seconds(window, "--window")
    if pause <= 0 or seconds <= 0:
        raise SettingError("--interval and --window must be above 0")
    flags = {"bootstrap": bootstrap, "group": group, "topics": topics, "capacity": capacity}
    measure = {"window": seconds, "interval": seconds / LOOKS}
    settings, known = looking(config, {**flags, **measure}, kafka)
    wait = waiter()
    looker = beside(lambda: Looker(settings, SystemClock(), capacity_known=known), wait)

    def look() -> "Seen":
        return beside(looker.look, wait)

    if once:
        _print(_settled(look, seconds, wait), settings.group, output)
    elif output is Format.JSON:
        _lines(look, settings.group, pause, wait)
    else:
        _live(look, settings.group, pause, wait)
    looker.close()


def _settled(look: "Look", seconds: float, wait: Callable[[float], bool]) -> "Frame":
    """Return a frame whose speeds are known, if that is a matter of a window.

    Raises KafkaAway where nobody answers.
    """
    from trimtab.sidecar.diagnostics.group_snapshot import MEASURED  # noqa: PLC0415 - loaded by now
    from trimtab.sidecar.diagnostics.group_status import frame  # noqa: PLC0415 - numpy is slow to load

    seen = _answered(look())
    if seen.source == MEASURED and seen.speeds:
        for _ in range(LOOKS):
            if wait(seconds / LOOKS):
                break
            seen = look()
    return frame(_answered(seen))


def _answered(seen: "Seen") -> "Seen":
    from trimtab.sidecar.errors import KafkaAway  # noqa: PLC0415 - loaded by now
    from trimtab.sidecar.measurement.observation import GroupState  # noqa: PLC0415 - as above

    if seen.group.state is GroupState.UNKNOWN and seen.trouble:
        raise KafkaAway("; ".join(seen.trouble))
    return seen


def _frames(look: "Look", pause: float, wait: Callable[[float], bool]) -> "Iterator[Frame]":
    """Yield what there is to see, look after look, until a signal comes."""
    from trimtab.sidecar.diagnostics.group_status import frame, kept  # noqa: PLC0415 - numpy is slow to load

    last, stopped = None, False
    while not stopped:
        last = kept(last, frame(look()))
        yield last
        stopped = wait(pause)


def _lines(look: "Look", group: str, pause: float, wait: Callable[[float], bool]) -> None:
    for made in _frames(look, pause, wait):
        typer.echo(json.dumps(body(made, group)))


def _live(look: "Look", group: str, pause: float, wait: Callable[[float], bool]) -> None:
    from rich.live import Live  # noqa: PLC0415 - keeps --help fast

    with Live(console=_console(), auto_refresh=False, screen=False) as live:
        for made in _frames(look, pause, wait):
            live.update(table(made, group), refresh=True)


def _print(made: "Frame", group: str, output: Format) -> None:
    if made.nobody:
        raise NoGroup(group, made.trouble)
    if output is Format.JSON:
        typer.echo(json.dumps(body(made, group), indent=2))
    else:
        _console().print(table(made, group))


def _console() -> "Console":
    from rich.console import Console  # noqa: PLC0415 - keeps --help fast

    return Console(highlight=False)


def body(made: "Frame", group: str) -> dict[str, Any]:
    """Return a frame as JSON has it: rates in bytes/s, None where unknown."""
    return {"group": group, **asdict(made), "steering": made.steering}


def table(made: "Frame", group: str) -> "RenderableType":
    """Return a frame as the terminal has it."""
    from rich.console import Group as Together  # noqa: PLC0415 - keeps --help fast
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    # names fold rather than vanish: a terminal of 80 columns holds all figures beside them
    shown = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    shown.add_column("consumer", overflow="fold", min_width=NAME)
    for column in COLUMNS:
        shown.add_column(column, justify="right", no_wrap=True)
    shown.add_column("state", no_wrap=True)
    for row in made.rows:
        state = Text(row.state.value, style=COLOURS[row.state.value])
        shown.add_row(Text(row.name), *map(Text, cells(row)), state)
    notes = () if made.crossing is None else made.crossing.notes
    trouble = [Text(text, style="red") for text in (*absence(made, group), *made.trouble)]
    if made.silent or made.nobody:
        return Together(*trouble)
    below = [*map(Text, notes), *trouble]
    return Together(Text(heading(made, group)), Text(made.steering), shown, *below)


def absence(made: "Frame", group: str) -> tuple[str, ...]:
    """Tell that nobody answers, and of when the figures are; or that there is no such group."""
    if made.nobody:
        return (str(NoGroup(group)),)
    if made.away is None:
        return ()
    seen = "nothing was seen before" if made.silent else f"last seen at {_at(made.time)}"
    return (f"broker away since {_at(made.away)}, {seen}",)


def _at(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC).astimezone():%H:%M:%S}"


def cells(row: "Row") -> tuple[str, ...]:
    """Return a consumer's figures as they are shown; "?" for what is not known."""
    if row.state.value == "dead":
        return ("-",) * len(COLUMNS)
    unknown = f" ({row.load.unknown} ?)" if row.load.unknown else ""
    return (
        f"{row.load.partitions}{unknown}",
        format_rate(row.load.written),
        format_rate(row.load.needed),
        format_rate(row.capacity),
        "?" if row.fill is None else f"{row.fill:.0%}",
        format_bytes(row.load.backlog),
    )


def heading(made: "Frame", group: str) -> str:
    """Return the line that sums a group up."""
    planned, wanted = format_count(made.planned), format_count(made.wanted)
    counts = f"{made.running} running, {planned} planned, {wanted} wanted"
    unread = f", {made.unread} of them unread" if made.unread else ""
    unknown = f", {made.load.unknown} unknown" if made.load.unknown else ""
    racks = "" if made.crossing is None else f", {format_rate(made.crossing.load)} across racks"
    queued = f", {made.queued}" if made.queued else ""
    return (
        f"{_at(made.time)} group {group} ({made.state}): {counts}; "
        f"{made.load.partitions} partitions{unread}{unknown}; "
        f"writing {format_rate(made.load.written)}, needed {format_rate(made.load.needed)}{racks}, "
        f"backlog {format_bytes(made.load.backlog)}{queued} ({made.source})"
    )
