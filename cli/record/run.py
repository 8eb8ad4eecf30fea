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

from trimtab.cli.record.stream_file import StreamFile, WriteRates
from trimtab.cli.sidecar.run import parse_pairs, require_group
from trimtab.common.errors import SettingError

if TYPE_CHECKING:
    from trimtab.common.clock import Clock
    from trimtab.common.control_topics.write_rates import PartitionLoad, TopicWriteRates
    from trimtab.sidecar.kafka.control_topic_store import ControlTopicStore
    from trimtab.sidecar.measurement.group_monitor import GroupMonitor
    from trimtab.sidecar.settings.settings import SidecarSettings

READINGS_PER_TICK: Final = 5
"""Looks at the group, or at what is published, in one window."""

MIN_TICK_FRACTION: Final = 0.9
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
    settings, seconds = _load_record_settings(
        config, flags, parse_pairs("--kafka", kafka), (window, duration)
    )
    from trimtab.cli.signals import install_signal_waiter  # noqa: PLC0415 - as above
    from trimtab.common.clock import SystemClock  # noqa: PLC0415 - keeps --help fast
    from trimtab.sidecar.kafka.control_topic_store import ControlTopicStore  # noqa: PLC0415 - as above
    from trimtab.sidecar.measurement.group_monitor import GroupMonitor  # noqa: PLC0415 - Kafka's clients load slowly

    clock = SystemClock()
    with closing(GroupMonitor(settings, clock)) as monitor:
        board = ControlTopicStore(settings, monitor.brokers.admin)
        origin = _select_tick_source(settings, monitor, board, clock)
        if seconds < origin.window:
            raise SettingError(
                f"--duration {duration!r} is less than one tick ({origin.window:g} s, "
                f"{origin.label}); record for longer, or with a smaller --window"
            )
        file = StreamFile(out, origin.window)
        try:
            record_ticks(origin, file, seconds, clock, install_signal_waiter())
        finally:
            file.close()
    _print_recording_summary(file, origin)


class RecordedTick(NamedTuple):
    """Speeds as of `at` seconds."""

    at: float
    write_rates: WriteRates


class TickSource(Protocol):
    """Where ticks come from; `window` seconds is what one lasts."""

    window: float
    label: str

    def poll_tick(self) -> RecordedTick | None:
        """Look again: return a tick if one is complete. Raises PeerError."""
        ...


@dataclass(slots=True)
class _PublishedTicks:
    """Ticks that a sidecar publishes; those whose topic was left out lately do not count."""

    control_topics: "ControlTopicStore"
    select_topics: Callable[[Iterable[str]], frozenset[str]]
    window: float
    last_tick_at: float  # seconds since the epoch, of the last tick
    label: str = "published by a sidecar"

    def poll_tick(self) -> RecordedTick | None:
        """Return what was published since the last tick, once a window has passed."""
        found = self.control_topics.read_write_rates()
        newest = max((s.time for s in found.values()), default=self.last_tick_at)
        if newest < self.last_tick_at + MIN_TICK_FRACTION * self.window:
            return None
        self.last_tick_at = newest
        meant = self.select_topics(found)
        speeds = {
            (topic, number): speed
            for topic, speeds in found.items()
            if topic in meant and speeds.time > newest - MIN_TICK_FRACTION * self.window
            for number, speed in speeds.partitions.items()
        }
        return RecordedTick(newest, _get_write_rates(speeds))


@dataclass(slots=True)
class _MeasuredTicks:
    """Ticks that this process measures."""

    monitor: "GroupMonitor"
    window: float
    clock: "Clock"
    label: str = "measured"
    last_tick_at: float | None = None  # monotonic seconds, of the last tick, or of the first look

    def poll_tick(self) -> RecordedTick | None:
        """Measure, and return what was found once a window has passed.

        Raises BrokerTimeoutError if nobody answers, SidecarSettingError if at first there is nothing to measure.
        """
        from trimtab.sidecar.errors import BrokerTimeoutError, SidecarSettingError  # noqa: PLC0415 - loaded by now

        seen, now = self.monitor.measure(), self.clock.monotonic()
        if not seen.write_rates and seen.trouble:
            raise BrokerTimeoutError("; ".join(seen.trouble))
        if not seen.write_rates and self.last_tick_at is None:
            raise SidecarSettingError(
                "the group reads nothing and never committed; is its name right? "
                "Name its topics (--topics) if it is new"
            )
        if (
            self.last_tick_at is not None
            and now < self.last_tick_at + MIN_TICK_FRACTION * self.window
        ):
            return None
        first, self.last_tick_at = self.last_tick_at is None, now
        return None if first else RecordedTick(now, _get_write_rates(seen.write_rates))


def _load_record_settings(
    config: Path | None,
    flags: Mapping[str, Any],
    kafka: Mapping[str, Any],
    times: tuple[str, str],
) -> tuple["SidecarSettings", float]:
    """Return the settings and the duration in seconds."""
    from trimtab.common.units import parse_seconds  # noqa: PLC0415 - keeps --help fast
    from trimtab.sidecar.settings.settings import load_settings, read_settings_file  # noqa: PLC0415 - as above

    window, duration = parse_seconds(times[0], "--window"), parse_seconds(times[1], "--duration")
    if window <= 0 or duration <= 0:
        raise SettingError("--window and --duration must be above 0")
    given = {
        **flags,
        "kafka": dict(kafka) or None,
        "window": window,
        "interval": window / READINGS_PER_TICK,
    }
    if "capacity" not in read_settings_file(config):
        given["capacity"] = "1 MB/s"  # a sidecar's settings want one; nothing here depends on it
    return load_settings(config, given), duration


def _select_tick_source(
    settings: "SidecarSettings",
    monitor: "GroupMonitor",
    control_topics: "ControlTopicStore",
    clock: "Clock",
) -> TickSource:
    """Return the sidecar's speeds if it published some lately, else our own."""
    from trimtab.sidecar.diagnostics.what_if import PUBLISHED_RATES_MAX_AGE_S  # noqa: PLC0415 - as above
    from trimtab.sidecar.measurement.group_monitor import match_topics  # noqa: PLC0415 - loaded by now

    def meant(there: Iterable[str]) -> frozenset[str]:
        return match_topics(settings.topics, there)[0] if settings.topics else frozenset(there)

    published: list[TopicWriteRates] = list(control_topics.read_write_rates().values())
    newest = max(published, key=lambda s: s.time, default=None)
    if newest is None or newest.time < clock.wall() - PUBLISHED_RATES_MAX_AGE_S:
        return _MeasuredTicks(monitor, settings.window, clock)
    return _PublishedTicks(control_topics, meant, newest.window, newest.time)


def record_ticks(
    source: TickSource,
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
    begun, pause, answered = clock.monotonic(), source.window / READINGS_PER_TICK, False
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("recording", total=seconds)
        while True:
            try:
                tick = source.poll_tick()
                if not answered:
                    begun, answered = clock.monotonic(), True
            except PeerError as error:
                if not answered:
                    raise
                console.print(f"trimtab: {error}; recording on", style="yellow")
                tick = None
            lost = 0 if tick is None else file.append_tick(tick.at, tick.write_rates)
            if lost:
                console.print(
                    f"trimtab: {_format_lost_ticks(lost)} recorded as before", style="yellow"
                )
            now = clock.monotonic() - begun
            bar.update(task, completed=now, description=f"{file.tick_count} ticks, {source.label}")
            if now >= seconds - pause / 2 or wait(pause - now % pause):
                return


def _format_lost_ticks(count: int) -> str:
    return "1 tick was lost and is" if count == 1 else f"{count} ticks were lost and are"


def _get_write_rates(speeds: "Mapping[Any, PartitionLoad]") -> WriteRates:
    from trimtab.assignor.model import TopicPartition  # noqa: PLC0415 - numpy is slow to load

    return {TopicPartition(*name): speed.bytes_per_s for name, speed in speeds.items()}


def _print_recording_summary(file: StreamFile, source: TickSource) -> None:
    from trimtab.common.units import format_rate  # noqa: PLC0415 - keeps --help fast

    if not file.tick_count:
        typer.secho(
            f"trimtab: nothing was recorded: one tick takes {source.window:g} s; "
            "record for longer, or with a smaller --window",
            err=True,
            fg=typer.colors.RED,
        )
        raise typer.Exit(1)
    if file.filled_count:
        typer.echo(
            f"{file.filled_count} speeds were unknown: recorded as the last known ones", err=True
        )
    typer.echo(
        f"{_format_count(file.tick_count, 'tick')} of {source.window:g} s ({source.label}), "
        f"{_format_count(len(file.partitions), 'partition')}, "
        f"{format_rate(file.total_rate / file.tick_count)} on average\n"
        f'trimtab simulate --stream {file.path} --tick "{source.window:g} s" --recommend '
        '--capacity "..."  # what one consumer sustains'
    )


def _format_count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
