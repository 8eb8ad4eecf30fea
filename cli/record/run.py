"""`trimtab record`: records the write rates of a live group into a file for `trimtab simulate`.

A tick is one window of the write rates that a sidecar publishes, or of measured ones if none does.
`cli.record.stream_file` has the rules for unknown write rates and lost ticks.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import typer
from rich.progress import Progress

from trimtab.assignor.model import TopicPartition
from trimtab.cli.group_settings import load_group_settings
from trimtab.cli.plain_console import PlainConsole
from trimtab.cli.record.options import RecordOptions
from trimtab.cli.record.stream_file import StreamFile, WriteRates, check_is_new
from trimtab.cli.signals import install_signal_waiter
from trimtab.cli.terminal import print_line
from trimtab.common.clock import Clock, SystemClock
from trimtab.common.control_topics.write_rates import PartitionLoad, TopicWriteRates
from trimtab.common.errors import PeerError, SettingError
from trimtab.common.units import format_count, format_rate, parse_seconds
from trimtab.sidecar.diagnostics.what_if import PUBLISHED_RATES_MAX_AGE_S, SOURCE_PUBLISHED
from trimtab.sidecar.errors import BrokerTimeoutError, SidecarSettingError
from trimtab.sidecar.kafka.control_topic_store import ControlTopicStore
from trimtab.sidecar.readings.group_monitor import GroupMonitor, match_topics
from trimtab.sidecar.settings.settings import SidecarSettings

READINGS_PER_TICK: Final = 5  # of the group, or of the control topic
JOIN_WAIT_S: Final = 15.0  # a consumer of a pod that is ready may not have joined yet
JOIN_POLL_S: Final = 1.0
MIN_TICK_FRACTION: Final = 0.9  # of a window, after which a reading is a new tick: iterations jitter


def record(options: RecordOptions) -> None:
    """Record write rates into a stream file. Raises SettingError, PeerError."""
    window = parse_seconds(options.window, "--window")
    duration = parse_seconds(options.duration, "--duration")
    if window <= 0 or duration <= 0:
        raise SettingError("--window and --duration must be above 0")
    check_is_new(options.out)  # before the wait for consumers
    measure = {"window": window, "interval": window / READINGS_PER_TICK}
    settings, _ = load_group_settings(options, measure)
    clock = SystemClock()
    with closing(GroupMonitor(settings, clock)) as monitor:
        control_topics = ControlTopicStore(settings, monitor.brokers.admin)
        wait = install_signal_waiter()
        wait_for_consumers(monitor, settings.group, clock, wait)
        source = select_tick_source(settings, monitor, control_topics, clock)
        if duration < source.window:
            raise SettingError(
                f"--duration {options.duration!r} is less than one tick ({source.window:g} s, "
                f"{source.label}); record for longer, or with a smaller --window"
            )
        file = StreamFile(options.out, source.window)
        try:
            record_ticks(source, file, duration, clock, wait)
        finally:
            file.close()
    _print_summary(file, source)


class RecordedTick(NamedTuple):
    """Write rates as of `at` seconds."""

    at: float
    write_rates: WriteRates


class TickSource(Protocol):
    """Source of ticks of `window` seconds."""

    window: float
    label: str

    def poll_tick(self) -> RecordedTick | None:
        """Return a tick if one is complete. Raises PeerError."""
        ...


@dataclass(slots=True)
class _PublishedTicks:
    control_topics: ControlTopicStore
    select_topics: Callable[[Iterable[str]], frozenset[str]]
    window: float
    last_tick_at: float  # seconds since the epoch, of the last tick
    label: str = SOURCE_PUBLISHED

    def poll_tick(self) -> RecordedTick | None:
        """Return the write rates published since the last tick, once a window has passed."""
        rates = self.control_topics.read_write_rates()
        newest = max((one.time for one in rates.values()), default=self.last_tick_at)
        if newest < self.last_tick_at + MIN_TICK_FRACTION * self.window:
            return None
        self.last_tick_at = newest
        selected = self.select_topics(rates)
        loads = {
            (topic, number): load
            for topic, one in rates.items()
            # the topic is compacted: it keeps the last rates of a topic that is no longer read
            if topic in selected and one.time > newest - MIN_TICK_FRACTION * self.window
            for number, load in one.partitions.items()
        }
        return RecordedTick(newest, _get_write_rates(loads))


@dataclass(slots=True)
class _MeasuredTicks:
    monitor: GroupMonitor
    window: float
    clock: Clock
    label: str = "measured"
    last_tick_at: float | None = None  # monotonic seconds, of the last tick, or of the first look

    def poll_tick(self) -> RecordedTick | None:
        """Return a tick once a window has passed. Raises BrokerTimeoutError, SidecarSettingError."""
        reading = self.monitor.measure()
        now = self.clock.monotonic()
        if not reading.load.write_rates and reading.errors:
            raise BrokerTimeoutError("; ".join(reading.errors))
        if not reading.load.write_rates and self.last_tick_at is None:  # later on topics may be deleted
            raise SidecarSettingError(
                "the group reads nothing and never committed; is its name right? "
                "Name its topics (--topics) if it is new"
            )
        if self.last_tick_at is not None and now < self.last_tick_at + MIN_TICK_FRACTION * self.window:
            return None
        first, self.last_tick_at = self.last_tick_at is None, now
        # a rate needs two readings
        return None if first else RecordedTick(now, _get_write_rates(reading.load.write_rates))


def wait_for_consumers(
    monitor: GroupMonitor, group: str, clock: Clock, wait: Callable[[float], bool]
) -> None:
    """Wait up to JOIN_WAIT_S seconds for a group that has neither members nor commits, and say so."""
    deadline = clock.monotonic() + JOIN_WAIT_S
    announced = False
    while True:
        reading = monitor.measure()
        if reading.load.write_rates or reading.errors or clock.monotonic() >= deadline:
            return
        if not announced:
            text = f"group {group} has no consumer and no commit yet; waiting up to {JOIN_WAIT_S:g} s for one"
            print_line(text, err=True)
            announced = True
        if wait(JOIN_POLL_S):
            return


def select_tick_source(
    settings: SidecarSettings, monitor: GroupMonitor, control_topics: ControlTopicStore, clock: Clock
) -> TickSource:
    """Return published write rates if a sidecar publishes them, else measured ones. Raises PeerError."""

    def select_topics(known: Iterable[str]) -> frozenset[str]:
        return match_topics(settings.topics, known)[0] if settings.topics else frozenset(known)

    published: list[TopicWriteRates] = list(control_topics.read_write_rates().values())
    newest = max(published, key=lambda one: one.time, default=None)
    if newest is None or newest.time < clock.wall() - PUBLISHED_RATES_MAX_AGE_S:
        return _MeasuredTicks(monitor, settings.window, clock)
    return _PublishedTicks(control_topics, select_topics, newest.window, newest.time)


def record_ticks(
    source: TickSource, file: StreamFile, seconds: float, clock: Clock, wait: Callable[[float], bool]
) -> None:
    """Append ticks for `seconds` or until `wait` reports a signal, and show the progress.

    Raises PeerError if the first reading fails; later failures cost ticks, with a warning.
    """
    console = PlainConsole(stderr=True)
    begun = clock.monotonic()
    pause = source.window / READINGS_PER_TICK
    answered = False
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("recording", total=seconds)
        while True:
            try:
                tick = source.poll_tick()
                if not answered:
                    # the first reading also connects, which is no part of the recording
                    begun = clock.monotonic()
                    answered = True
            except PeerError as error:
                if not answered:
                    raise
                console.print(f"trimtab: {error}; recording on", style="yellow")
                tick = None
            lost = 0 if tick is None else file.append_tick(tick.at, tick.write_rates)
            if lost:
                console.print(f"trimtab: {_format_lost_ticks(lost)} recorded as before", style="yellow")
            now = clock.monotonic() - begun
            bar.update(
                task, completed=now, description=f"{format_count(file.tick_count, 'tick')}, {source.label}"
            )
            # the nearest reading to the end is the last; readings keep to a grid, whatever they take
            if now >= seconds - pause / 2 or wait(pause - now % pause):
                return


def _format_lost_ticks(count: int) -> str:
    return format_count(count, "tick was lost and is", "ticks were lost and are")


def _get_write_rates(loads: Mapping[Any, PartitionLoad]) -> WriteRates:
    return {TopicPartition(*name): load.bytes_per_s for name, load in loads.items()}


def _print_summary(file: StreamFile, source: TickSource) -> None:
    if not file.tick_count:
        typer.secho(
            f"trimtab: nothing was recorded: one tick takes {source.window:g} s; "
            "record for longer, or with a smaller --window",
            err=True,
            fg=typer.colors.RED,
        )
        raise typer.Exit(1)
    if file.filled_count:
        print_line(
            f"{format_count(file.filled_count, 'unknown write rate')}: recorded as last known", err=True
        )
    print_line(
        f"{format_count(file.tick_count, 'tick')} of {source.window:g} s ({source.label}), "
        f"{format_count(len(file.partitions), 'partition')}, "
        f"{format_rate(file.total_rate / file.tick_count)} on average"
    )
    print_line(
        f'trimtab simulate --stream {file.path} --tick "{source.window:g} s" --recommend '
        '--capacity "..."  # what one consumer sustains'
    )
