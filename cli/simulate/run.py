"""`trimtab simulate`: replays streams of write rates through heuristics, with queues."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TimeElapsedColumn, TimeRemainingColumn

from trimtab.assignor.analysis.simulation import (
    CANDIDATE_HEADROOMS,
    SettingRecommendation,
    SimulationRun,
    SimulationSetup,
    parse_contender,
    parse_contenders,
)
from trimtab.assignor.analysis.streams.stream import WriteRateStream, format_stream
from trimtab.cli.plain_console import PlainConsole
from trimtab.cli.setting_pairs import format_pairs, parse_pairs, split_names
from trimtab.cli.simulate.findings import SimulationFindings, build_findings, hold_out
from trimtab.cli.simulate.options import InitialRate, SimulateOptions, TraceHalf
from trimtab.cli.simulate.output import print_findings
from trimtab.cli.simulate.stream_source import describe_source, load_streams, parse_capacity
from trimtab.cli.simulate.trace_source import check_trace, describe_windows, is_keyed, load_trace
from trimtab.cli.simulate.worker_pool import SimulationJob, run_jobs
from trimtab.common.errors import SettingError
from trimtab.common.units import parse_seconds

if TYPE_CHECKING:
    from trimtab.sidecar.simulation.live_settings import LiveSettings

GENERATOR_OPTIONS: Final = ("partitions", "ticks", "seed", "seeds", "unclamped", "shape", "initial")
TRACE_OPTIONS: Final = ("speed", "half", "windows")
LIVE_OPTIONS: Final = ("startup", "season", "set")
PAPER_HEADROOM: Final = 1.0
LIVE_HEADROOM: Final = 0.9  # the sidecar's default
_DURATIONS: Final = {"tick": "tick", "pause": "pause", "late": "late", "threshold": "lag_threshold"}


def simulate(options: SimulateOptions) -> None:
    """Simulate, print the findings, write the report.

    Raises SettingError, InvalidStreamError, MissingExtraError.
    """
    _reject_useless_options(options)
    setup = _build_setup(options)
    names = _list_contenders(options)
    source = _load_source(options, setup)
    live = _build_live_settings(options, setup, names, source.streams[0])
    write_report = _prepare_report(options.html, options.capacity)
    _save_stream(options.save, source.streams[0])
    title = describe_source(options)

    def find(
        streams: Sequence[WriteRateStream], headrooms: Mapping[str, Sequence[float]]
    ) -> SimulationFindings:
        runs = _run_with_progress(headrooms, streams, setup, live, options)
        return build_findings(title, streams, setup, runs, options.late_limit)

    if source.tuning is None:
        findings = find(source.streams, _list_headrooms(names, setup, tried=options.recommend))
    else:
        tuned = find(source.tuning, _list_headrooms(names, setup, tried=True)).recommendation
        findings = find(source.streams, _list_chosen(names, setup, tuned))
        findings = hold_out(findings, tuned)
    findings = replace(
        findings, live=live is not None, settings=format_pairs(options.set), notes=source.notes
    )
    write_report(findings)
    print_findings(findings, options.output, options.capacity, headrooms_tried=options.recommend)


class _Source(NamedTuple):
    """Streams to simulate, other streams on which the setting is chosen, and how they were made."""

    streams: Sequence[WriteRateStream]
    tuning: Sequence[WriteRateStream] | None = None
    notes: tuple[str, ...] = ()


def _load_source(options: SimulateOptions, setup: SimulationSetup) -> _Source:
    if options.trace is None:
        return _Source(load_streams(options, setup.capacity))
    trace = load_trace(options, setup)
    streams = trace.of_half(options.half)
    held_out = options.recommend and options.half is TraceHalf.SECOND
    notes = (*trace.notes, describe_windows(streams, options.half, tuned=held_out))
    return _Source(streams, trace.first if held_out else None, notes)


def _list_headrooms(names: Sequence[str], setup: SimulationSetup, *, tried: bool) -> dict[str, list[float]]:
    """Return the headrooms to simulate by name."""
    tunable = {name for name in names if tried and parse_contender(name).is_trimtab_setting}
    return {
        name: list(dict.fromkeys((setup.headroom, *(CANDIDATE_HEADROOMS if name in tunable else ()))))
        for name in names
    }


def _list_chosen(
    names: Sequence[str], setup: SimulationSetup, tuned: SettingRecommendation | None
) -> dict[str, list[float]]:
    """Return the setup's headroom for all, and that of the chosen setting."""
    headrooms = _list_headrooms(names, setup, tried=False)
    if tuned is not None:
        chosen = tuned.chosen
        headrooms[chosen.name] = list(dict.fromkeys((*headrooms[chosen.name], chosen.headroom)))
    return headrooms


def _reject_useless_options(options: SimulateOptions) -> None:
    _reject_options_of_other_sources(options)
    if options.initial is not InitialRate.RANDOM and options.random_walk is None:
        raise SettingError("--initial: only a random walk has initial write rates; give --random-walk")
    given = [f"--{name}" for name in LIVE_OPTIONS if name in options.given]
    if given and not is_live(options):
        raise SettingError(f"only the closed loop has {', '.join(given)}; add --live")


def _reject_options_of_other_sources(options: SimulateOptions) -> None:
    generated = set(GENERATOR_OPTIONS)
    if options.trace is not None:
        check_trace(options.trace)
        generated -= {"ticks"} | ({"partitions"} if is_keyed(options.trace) else set[str]())
    given = [f"--{name}" for name in GENERATOR_OPTIONS if name in options.given and name in generated]
    if given and (options.stream is not None or options.trace is not None):
        measured = "--stream" if options.stream is not None else f"--trace {options.trace}"
        raise SettingError(f"only a generated stream has {', '.join(given)}; leave out {measured}")
    given = [f"--{name}" for name in TRACE_OPTIONS if name in options.given]
    if given and options.trace is None:
        raise SettingError(f"only a trace has {', '.join(given)}; add --trace NAME")


def is_live(options: SimulateOptions) -> bool:
    """Return whether the closed loop is simulated."""
    return options.live or options.recommend


def _build_live_settings(
    options: SimulateOptions, setup: SimulationSetup, names: Sequence[str], stream: WriteRateStream
) -> "LiveSettings | None":
    if not is_live(options):
        return None
    from trimtab.sidecar.simulation.live_settings import (  # noqa: PLC0415 - slow to load
        LiveSettings,
    )

    season = None if options.season is None else parse_seconds(options.season, "--season")
    if season is not None and season < setup.tick:
        raise SettingError(f"--season {options.season!r} must be at least a tick")
    startup = parse_seconds(options.startup, "--startup")
    live = LiveSettings(startup, season, parse_pairs("--set", options.set))
    managed = [name for name in names if not parse_contender(name).autoscaled]
    if options.set and not managed:
        raise SettingError(
            f"--set: {names[0]} decides without a sidecar; simulate a heuristic, too, or leave it out"
        )
    for name in managed:
        live.check(name, setup, stream)  # raises now, not after minutes
    return live


def _build_setup(options: SimulateOptions) -> SimulationSetup:
    capacity = parse_capacity(options)
    seconds: dict[str, float] = {}
    headroom = options.headroom
    if headroom is None:
        headroom = LIVE_HEADROOM if is_live(options) else PAPER_HEADROOM
    if not 0 < headroom <= 1:
        raise SettingError(f"--headroom {headroom} must be above 0 and at most 1")
    for name, field in _DURATIONS.items():
        text = getattr(options, field)
        flag = f"--{field.replace('_', '-')}"
        seconds[name] = parse_seconds(text, flag)
        if seconds[name] == 0 and name != "pause":  # a move without a pause is the paper's model
            raise SettingError(f"{flag} {text!r} must be above 0")
    return SimulationSetup(capacity=capacity, headroom=headroom, **seconds)


def _list_contenders(options: SimulateOptions) -> list[str]:
    requested = split_names([*(options.heuristic or ()), *(options.more or ())])
    contenders = parse_contenders(requested)
    if is_live(options):
        uncounted = [c for c in contenders if c.eager and not c.autoscaled]
        named = [c.name for c in uncounted if c.name in requested]
        if named:
            raise SettingError(
                f"{named[0]} decides no number of consumers: no closed loop; use keda:{named[0]}"
            )
        contenders = tuple(c for c in contenders if c not in uncounted)
    return [one.name for one in contenders]


def _prepare_report(file: Path | None, capacity: str | None) -> Callable[[SimulationFindings], None]:
    """Return the function that writes the report. Raises SettingError, ModuleNotFoundError."""
    # both are raised before the simulation, which may take minutes
    if file is None:
        return lambda _: None
    from trimtab.cli.simulate import report  # noqa: PLC0415 - matplotlib is an extra, and slow to load

    try:
        file.open("ab").close()
    except OSError as error:
        raise SettingError(f"--html: {file} cannot be written: {error.strerror}") from error
    return lambda findings: report.write_report(file, findings, capacity)


def _save_stream(file: Path | None, stream: WriteRateStream) -> None:
    if file is None:
        return
    try:
        file.write_text(format_stream(stream), encoding="utf-8")
    except OSError as error:
        raise SettingError(f"--save: {file} cannot be written: {error.strerror}") from error


def _run_with_progress(
    headrooms: Mapping[str, Sequence[float]],
    streams: Sequence[WriteRateStream],
    setup: SimulationSetup,
    live: "LiveSettings | None",
    options: SimulateOptions,
) -> dict[SimulationJob, SimulationRun]:
    jobs = [
        SimulationJob(number, name, headroom)
        for name, tried in headrooms.items()
        for headroom in tried
        for number in range(len(streams))
    ]
    with open_progress() as progress:
        task = progress.add_task("simulating", total=len(jobs))
        return run_jobs(jobs, streams, setup, options.jobs, lambda _: progress.advance(task), live=live)


def open_progress() -> Progress:
    """Return a progress bar on standard error; it is not shown in a pipe."""
    console = PlainConsole(stderr=True)
    columns = (MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    bar = (SpinnerColumn(), *Progress.get_default_columns()[:2], *columns)
    return Progress(*bar, console=console, transient=True, disable=not console.is_terminal)
