"""`trimtab record`: the write speeds of a live group into a stream file, for `trimtab simulate`.

Speeds are those that a sidecar publishes; where none does, they are measured. A tick is one window
of theirs. The file is a whole stream after every tick, so however the recording ends, what there is
can be used. A partition whose speed is unknown is away in that tick.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol, TypeAlias

import typer

from trimtab.assignor.errors import SettingError
from trimtab.cli.sidecar import pairs

if TYPE_CHECKING:
    from trimtab.assignor.clock import Clock
    from trimtab.assignor.control import PartitionSpeed, WriteSpeeds
    from trimtab.assignor.model import TopicPartition
    from trimtab.sidecar.monitor import Monitor
    from trimtab.sidecar.settings import Settings
    from trimtab.sidecar.topics import ControlTopics

Rates: TypeAlias = "Mapping[TopicPartition, float]"

LOOKS: Final = 5
"""Looks at the group, or at what is published, in one window."""

EARLY: Final = 0.9
"""Share of a window after which newer speeds are a new tick: turns are not to the millisecond."""

END: Final = b"\n]\n"


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
        typer.Option(help="librdkafka's name=value; keep secrets in the file instead."),
    ] = None,
) -> None:
    """Record the write speeds of a live group, and change nothing. Ctrl-C keeps what there is.

    For example:

        trimtab record --bootstrap localhost:9092 --group lake --duration 1h --out stream.json

        trimtab simulate --stream stream.json --tick "30 s" --capacity "2.3 MB/s" --recommend
    """
    flags = {"bootstrap": bootstrap, "group": group, "topics": topics, "source": source}
    settings, seconds = _settings(config, flags, pairs("--kafka", kafka), (window, duration))
    from trimtab.assignor.clock import SystemClock  # noqa: PLC0415 - keeps --help fast
    from trimtab.cli.signals import waiter  # noqa: PLC0415 - as above
    from trimtab.sidecar.monitor import Monitor  # noqa: PLC0415 - Kafka's clients load slowly
    from trimtab.sidecar.topics import ControlTopics  # noqa: PLC0415 - as above

    clock = SystemClock()
    with closing(Monitor(settings, clock)) as monitor:
        speeds = _speeds(settings, monitor, ControlTopics(settings, monitor.brokers.admin), clock)
        file = _File(out)
        try:
            _follow(speeds, file, seconds, clock, waiter())
        finally:
            file.close()
    _report(file, speeds)


class Speeds(Protocol):
    """Where ticks come from; `window` seconds is what one lasts."""

    window: float
    says: str

    def look(self) -> "Rates | None":
        """Look again: return a tick in bytes/s if one is complete. Raises PeerError."""
        ...


@dataclass(slots=True)
class _Published:
    """Ticks that a sidecar publishes; those whose topic was left out lately do not count."""

    board: "ControlTopics"
    topics: Callable[[Iterable[str]], frozenset[str]]
    window: float
    latest: float  # seconds since the epoch, of the last tick
    says: str = "published by a sidecar"

    def look(self) -> "Rates | None":
        """Return what was published since the last tick, once a window has passed."""
        found = self.board.speeds()
        newest = max((s.time for s in found.values()), default=self.latest)
        if newest < self.latest + EARLY * self.window:
            return None
        self.latest = newest
        meant = self.topics(found)
        return _rates(
            {
                (topic, number): speed
                for topic, speeds in found.items()
                if topic in meant and speeds.time > newest - EARLY * self.window
                for number, speed in speeds.partitions.items()
            }
        )


@dataclass(slots=True)
class _Measured:
    """Ticks that this process measures."""

    monitor: "Monitor"
    window: float
    says: str = "measured"
    _looks: int = 0

    def look(self) -> "Rates | None":
        """Measure; every `LOOKS`-th time a window is full.

        Raises KafkaAway if nobody answers, BadSetting if at first there is nothing to measure.
        """
        from trimtab.sidecar.errors import BadSetting, KafkaAway  # noqa: PLC0415 - loaded by now

        seen = self.monitor.measure()
        if not seen.speeds and seen.trouble:
            raise KafkaAway("; ".join(seen.trouble))
        if not seen.speeds and not self._looks:
            raise BadSetting(
                "the group reads nothing and never committed; is its name right? "
                "Name its topics (--topics) if it is new"
            )
        self._looks += 1
        return _rates(seen.speeds) if self._looks > 1 and self._looks % LOOKS == 1 else None


@dataclass(slots=True)
class _File:
    """The stream file: begun at once, a whole stream after every tick."""

    path: Path
    ticks: int = 0
    partitions: set["TopicPartition"] = field(default_factory=set)
    total: float = 0.0  # bytes/s, over all ticks
    _file: Any = None

    def __post_init__(self) -> None:
        try:
            self._file = self.path.open("xb")
        except FileExistsError:
            raise SettingError(
                f"--out: {self.path} is there already; remove it or choose another name"
            ) from None
        except OSError as error:
            raise SettingError(f"--out: {self.path} cannot be written: {error.strerror}") from error

    def add(self, rates: "Rates") -> None:
        """Append a tick and make it safe."""
        tick: dict[str, dict[str, float]] = {}
        for (topic, number), rate in sorted(rates.items()):
            tick.setdefault(topic, {})[str(number)] = round(rate, 3)
        if self.ticks:
            self._file.seek(-len(END), os.SEEK_END)
        begin = b",\n" if self.ticks else b"[\n"
        self._file.write(begin + json.dumps(tick, separators=(",", ":")).encode() + END)
        self._file.flush()
        self.ticks += 1
        self.partitions |= set(rates)
        self.total += sum(rates.values())

    def close(self) -> None:
        """Close it; a file without a tick is removed."""
        self._file.close()
        if not self.ticks:
            self.path.unlink()


def _settings(
    config: Path | None,
    flags: Mapping[str, Any],
    kafka: Mapping[str, Any],
    times: tuple[str, str],
) -> tuple["Settings", float]:
    """Return the settings and the duration in seconds."""
    from trimtab.assignor.units import parse_seconds  # noqa: PLC0415 - keeps --help fast
    from trimtab.sidecar.settings import load, read  # noqa: PLC0415 - as above

    window, duration = parse_seconds(times[0], "--window"), parse_seconds(times[1], "--duration")
    if window <= 0 or duration <= 0:
        raise SettingError("--window and --duration must be above 0")
    given = {**flags, "kafka": dict(kafka) or None, "window": window, "interval": window / LOOKS}
    if "capacity" not in read(config):
        given["capacity"] = "1 MB/s"  # a sidecar's settings want one; nothing here depends on it
    return load(config, given), duration


def _speeds(
    settings: "Settings", monitor: "Monitor", board: "ControlTopics", clock: "Clock"
) -> Speeds:
    """Return the sidecar's speeds if it published some lately, else our own."""
    from trimtab.sidecar.monitor import matching  # noqa: PLC0415 - loaded by now
    from trimtab.sidecar.survey import FRESH  # noqa: PLC0415 - as above

    def meant(there: Iterable[str]) -> frozenset[str]:
        return matching(settings.topics, there)[0] if settings.topics else frozenset(there)

    published: list[WriteSpeeds] = list(board.speeds().values())
    newest = max(published, key=lambda s: s.time, default=None)
    if newest is None or newest.time < clock.wall() - FRESH:
        return _Measured(monitor, settings.window)
    return _Published(board, meant, newest.window, newest.time)


def _follow(
    speeds: Speeds, file: _File, seconds: float, clock: "Clock", wait: Callable[[float], bool]
) -> None:
    """Add ticks until the time is up or a signal comes, and show how far it is.

    A broker that is away costs the ticks of that time, no more; one that never answers is an error.
    """
    from rich.console import Console  # noqa: PLC0415 - keeps --help fast
    from rich.progress import Progress  # noqa: PLC0415 - as above

    from trimtab.assignor.errors import PeerError  # noqa: PLC0415 - as above

    console = Console(stderr=True)
    begun, pause = clock.monotonic(), speeds.window / LOOKS
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("recording", total=seconds)
        looks = 0
        while True:
            try:
                rates = speeds.look()
            except PeerError as error:
                if not looks:
                    raise
                console.print(f"trimtab: {error}; recording on", style="yellow")
                rates = None
            looks += 1
            if rates is not None:
                file.add(rates)
            now = clock.monotonic() - begun
            bar.update(task, completed=now, description=f"{file.ticks} ticks, {speeds.says}")
            rest = max(0.0, begun + looks * pause - clock.monotonic())
            if now >= seconds - pause / 2 or wait(rest):
                return


def _rates(speeds: "Mapping[Any, PartitionSpeed]") -> Rates:
    from trimtab.assignor.model import TopicPartition  # noqa: PLC0415 - numpy is slow to load

    return {
        TopicPartition(*name): speed.bytes_per_s
        for name, speed in speeds.items()
        if speed.bytes_per_s is not None
    }


def _report(file: _File, speeds: Speeds) -> None:
    from trimtab.assignor.units import format_rate  # noqa: PLC0415 - keeps --help fast

    if not file.ticks:
        typer.secho(
            f"trimtab: nothing was recorded: one tick takes {speeds.window:g} s; "
            "record for longer, or with a smaller --window",
            err=True,
            fg=typer.colors.RED,
        )
        raise typer.Exit(1)
    typer.echo(
        f"{file.ticks} ticks of {speeds.window:g} s ({speeds.says}), "
        f"{len(file.partitions)} partitions, {format_rate(file.total / file.ticks)} on average\n"
        f'trimtab simulate --stream {file.path} --tick "{speeds.window:g} s" --recommend '
        '--capacity "..."  # what one consumer sustains'
    )
