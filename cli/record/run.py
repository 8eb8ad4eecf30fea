"""`trimtab record`: the write speeds of a live group into a stream file, for `trimtab simulate`.

Speeds are those that a sidecar publishes; where none does, they are measured. A tick is one window
of theirs. The file is a whole stream after every tick, so however the recording ends, what there is
can be used (`trimtab.cli.record.stream_file`, which also tells what becomes of unknown speeds).
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, Protocol

import typer

from trimtab.cli.record.stream_file import Speeds, StreamFile
from trimtab.cli.sidecar.run import pairs, require_group
from trimtab.common.errors import SettingError

if TYPE_CHECKING:
    from trimtab.common.clock import Clock
    from trimtab.common.control_topics.values import PartitionSpeed, WriteSpeeds
    from trimtab.sidecar.kafka.control_topic_store import ControlTopics
    from trimtab.sidecar.measurement.group_monitor import Monitor
    from trimtab.sidecar.settings.settings import Settings

LOOKS: Final = 5
"""Looks at the group, or at what is published, in one window."""

EARLY: Final = 0.9
"""Share of a window after which newer speeds are a new tick: turns are not to the millisecond."""


def record(  # noqa: PLR0913 - typer: one parameter an option
    *,
    bootstrap: Annotated[str | None, typer.Option(help="host:port of brokers.")] = None,
    group: Annotated[str | None, typer.Option(help="The consumer group.")] = None,
    out: Annotated[Path, typer.Option(help="The stream file; must not exist yet.")],
    duration: Annotated[str, typer.Option(help="For how long.")] = "10 m",
    topics: Annotated[
        str | None,
        typer.Option(help='Names with commas, or "^pattern"; by default what the group reads.'),
    ] = None,
    window: Annotated[str, typer.Option(help="Of a tick, if no sidecar publishes.")] = "30 s",
    source: Annotated[str | None, typer.Option(help="offsets (default) or log-dirs.")] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="YAML file of a sidecar's settings.")
    ] = None,
    kafka: Annotated[
        list[str] | None,
        typer.Option(help="librdkafka's name=value; a secret as ${file:…} or ${env:…}."),
    ] = None,
) -> None:
    """Record the write speeds of a live group, and change nothing. Ctrl-C keeps what there is.

    For example:

        trimtab record --bootstrap localhost:9092 --group lake --duration 1h --out stream.json

        trimtab simulate --stream stream.json --tick "30 s" --capacity "2.3 MB/s" --recommend
    """
    require_group(config, bootstrap, group)
    flags = {"bootstrap": bootstrap, "group": group, "topics": topics, "source": source}
    settings, seconds = _settings(config, flags, pairs("--kafka", kafka), (window, duration))
    from trimtab.cli.signals import waiter  # noqa: PLC0415 - as above
    from trimtab.common.clock import SystemClock  # noqa: PLC0415 - keeps --help fast
    from trimtab.sidecar.kafka.control_topic_store import ControlTopics  # noqa: PLC0415 - as above
    from trimtab.sidecar.measurement.group_monitor import Monitor  # noqa: PLC0415 - Kafka's clients load slowly

    clock = SystemClock()
    with closing(Monitor(settings, clock)) as monitor:
        board = ControlTopics(settings, monitor.brokers.admin)
        origin = _origin(settings, monitor, board, clock)
        if seconds < origin.window:
            raise SettingError(
                f"--duration {duration!r} is less than one tick ({origin.window:g} s, "
                f"{origin.says}); record for longer, or with a smaller --window"
            )
        file = StreamFile(out, origin.window)
        try:
            follow(origin, file, seconds, clock, waiter())
        finally:
            file.close()
    _report(file, origin)


class Tick(NamedTuple):
    """Speeds as of `at` seconds."""

    at: float
    speeds: Speeds


class Origin(Protocol):
    """Where ticks come from; `window` seconds is what one lasts."""

    window: float
    says: str

    def look(self) -> Tick | None:
        """Look again: return a tick if one is complete. Raises PeerError."""
        ...


@dataclass(slots=True)
class _Published:
    """Ticks that a sidecar publishes; those whose topic was left out lately do not count."""

    board: "ControlTopics"
    topics: Callable[[Iterable[str]], frozenset[str]]
    window: float
    latest: float  # seconds since the epoch, of the last tick
    says: str = "published by a sidecar"

    def look(self) -> Tick | None:
        """Return what was published since the last tick, once a window has passed."""
        found = self.board.speeds()
        newest = max((s.time for s in found.values()), default=self.latest)
        if newest < self.latest + EARLY * self.window:
            return None
        self.latest = newest
        meant = self.topics(found)
        speeds = {
            (topic, number): speed
            for topic, speeds in found.items()
            if topic in meant and speeds.time > newest - EARLY * self.window
            for number, speed in speeds.partitions.items()
        }
        return Tick(newest, _written(speeds))


@dataclass(slots=True)
class _Measured:
    """Ticks that this process measures."""

    monitor: "Monitor"
    window: float
    clock: "Clock"
    says: str = "measured"
    latest: float | None = None  # monotonic seconds, of the last tick, or of the first look

    def look(self) -> Tick | None:
        """Measure, and return what was found once a window has passed.

        Raises KafkaAway if nobody answers, BadSetting if at first there is nothing to measure.
        """
        from trimtab.sidecar.errors import BadSetting, KafkaAway  # noqa: PLC0415 - loaded by now

        seen, now = self.monitor.measure(), self.clock.monotonic()
        if not seen.speeds and seen.trouble:
            raise KafkaAway("; ".join(seen.trouble))
        if not seen.speeds and self.latest is None:
            raise BadSetting(
                "the group reads nothing and never committed; is its name right? "
                "Name its topics (--topics) if it is new"
            )
        if self.latest is not None and now < self.latest + EARLY * self.window:
            return None
        first, self.latest = self.latest is None, now
        return None if first else Tick(now, _written(seen.speeds))


def _settings(
    config: Path | None,
    flags: Mapping[str, Any],
    kafka: Mapping[str, Any],
    times: tuple[str, str],
) -> tuple["Settings", float]:
    """Return the settings and the duration in seconds."""
    from trimtab.common.units import parse_seconds  # noqa: PLC0415 - keeps --help fast
    from trimtab.sidecar.settings.settings import load, read  # noqa: PLC0415 - as above

    window, duration = parse_seconds(times[0], "--window"), parse_seconds(times[1], "--duration")
    if window <= 0 or duration <= 0:
        raise SettingError("--window and --duration must be above 0")
    given = {**flags, "kafka": dict(kafka) or None, "window": window, "interval": window / LOOKS}
    if "capacity" not in read(config):
        given["capacity"] = "1 MB/s"  # a sidecar's settings want one; nothing here depends on it
    return load(config, given), duration


def _origin(
    settings: "Settings", monitor: "Monitor", board: "ControlTopics", clock: "Clock"
) -> Origin:
    """Return the sidecar's speeds if it published some lately, else our own."""
    from trimtab.sidecar.diagnostics.what_if import FRESH  # noqa: PLC0415 - as above
    from trimtab.sidecar.measurement.group_monitor import matching  # noqa: PLC0415 - loaded by now

    def meant(there: Iterable[str]) -> frozenset[str]:
        return matching(settings.topics, there)[0] if settings.topics else frozenset(there)

    published: list[WriteSpeeds] = list(board.speeds().values())
    newest = max(published, key=lambda s: s.time, default=None)
    if newest is None or newest.time < clock.wall() - FRESH:
        return _Measured(monitor, settings.window, clock)
    return _Published(board, meant, newest.window, newest.time)


def follow(
    origin: Origin,
    file: StreamFile,
    seconds: float,
    clock: "Clock",
    wait: Callable[[float], bool],
) -> None:
    """Add ticks until the time is up or a signal comes (`wait` tells), and show how far it is.

    A broker that is away costs the ticks of that time, which are filled in, and it is said; one
    that never answers is an error. The time counts from the first answer: the first look also
    connects, and how long that takes is no part of a recording.
    """
    from rich.console import Console  # noqa: PLC0415 - keeps --help fast
    from rich.progress import Progress  # noqa: PLC0415 - as above

    from trimtab.common.errors import PeerError  # noqa: PLC0415 - as above

    console = Console(stderr=True)
    begun, pause, answered = clock.monotonic(), origin.window / LOOKS, False
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("recording", total=seconds)
        while True:
            try:
                tick = origin.look()
                if not answered:
                    begun, answered = clock.monotonic(), True
            except PeerError as error:
                if not answered:
                    raise
                console.print(f"trimtab: {error}; recording on", style="yellow")
                tick = None
            lost = 0 if tick is None else file.add(tick.at, tick.speeds)
            if lost:
                console.print(f"trimtab: {_lost(lost)} recorded as before", style="yellow")
            now = clock.monotonic() - begun
            bar.update(task, completed=now, description=f"{file.ticks} ticks, {origin.says}")
            if now >= seconds - pause / 2 or wait(pause - now % pause):
                return


def _lost(count: int) -> str:
    return "1 tick was lost and is" if count == 1 else f"{count} ticks were lost and are"


def _written(speeds: "Mapping[Any, PartitionSpeed]") -> Speeds:
    from trimtab.assignor.model import TopicPartition  # noqa: PLC0415 - numpy is slow to load

    return {TopicPartition(*name): speed.bytes_per_s for name, speed in speeds.items()}


def _report(file: StreamFile, origin: Origin) -> None:
    from trimtab.common.units import format_rate  # noqa: PLC0415 - keeps --help fast

    if not file.ticks:
        typer.secho(
            f"trimtab: nothing was recorded: one tick takes {origin.window:g} s; "
            "record for longer, or with a smaller --window",
            err=True,
            fg=typer.colors.RED,
        )
        raise typer.Exit(1)
    if file.filled:
        typer.echo(f"{file.filled} speeds were unknown: recorded as the last known ones", err=True)
    typer.echo(
        f"{_count(file.ticks, 'tick')} of {origin.window:g} s ({origin.says}), "
        f"{_count(len(file.partitions), 'partition')}, "
        f"{format_rate(file.total / file.ticks)} on average\n"
        f'trimtab simulate --stream {file.path} --tick "{origin.window:g} s" --recommend '
        '--capacity "..."  # what one consumer sustains'
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
