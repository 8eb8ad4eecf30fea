"""`trimtab simulate`: replays streams of write rates through heuristics, with queues."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TimeElapsedColumn, TimeRemainingColumn

from trimtab.assignor.analysis.simulation import (
    CANDIDATE_HEADROOMS,
    SimulationRun,
    SimulationSetup,
    parse_contender,
    parse_contenders,
)
from trimtab.assignor.analysis.streams.stream import WriteRateStream, format_stream
from trimtab.cli.setting_pairs import format_pairs, parse_pairs, split_names
from trimtab.cli.simulate.findings import SimulationFindings, build_findings
from trimtab.cli.simulate.options import InitialRate, SimulateOptions
from trimtab.cli.simulate.output import print_findings
from trimtab.cli.simulate.stream_source import describe_source, load_streams, parse_capacity
from trimtab.cli.simulate.worker_pool import SimulationJob, run_jobs
from trimtab.common.errors import SettingError
from trimtab.common.units import parse_seconds

if TYPE_CHECKING:
    from trimtab.sidecar.simulation.live_settings import LiveSettings

GENERATOR_OPTIONS: Final = ("partitions", "ticks", "seed", "seeds", "unclamped", "shape", "initial")
LIVE_OPTIONS: Final = ("startup", "set")
PAPER_HEADROOM: Final = 1.0
LIVE_HEADROOM: Final = 0.9  # the sidecar's default
_DURATIONS: Final = {"tick": "tick", "pause": "pause", "late": "late", "threshold": "lag_threshold"}


def simulate(options: SimulateOptions) -> None:
    """Simulate, print the findings, write the report. Raises SettingError, InvalidStreamError."""
    _reject_useless_options(options)
    setup = _build_setup(options)
    against = split_names(options.against)
    names = _list_contenders(options, against)
    streams = load_streams(options, setup.capacity)
    live = _build_live_settings(options, setup, names, streams[0])
    write_report = _prepare_report(options.html, options.capacity)
    _save_stream(options.save, streams[0])
    runs = _run_with_progress(names, streams, setup, live, options)
    title = describe_source(options)
    findings = build_findings(title, streams, setup, runs, against, options.late_limit)
    findings = replace(findings, live=live is not None, settings=format_pairs(options.set))
    write_report(findings)
    print_findings(findings, options.output, options.capacity, headrooms_tried=options.recommend)


def _reject_useless_options(options: SimulateOptions) -> None:
    given = [f"--{name}" for name in GENERATOR_OPTIONS if name in options.given]
    if given and options.stream is not None:
        raise SettingError(f"only a generated stream has {', '.join(given)}; leave out --stream")
    if options.initial is not InitialRate.RANDOM and options.random_walk is None:
        raise SettingError("--initial: only a random walk has initial write rates; give --random-walk")
    given = [f"--{name}" for name in LIVE_OPTIONS if name in options.given]
    if given and not is_live(options):
        raise SettingError(f"only the closed loop has {', '.join(given)}; add --live")


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

    live = LiveSettings(parse_seconds(options.startup, "--startup"), parse_pairs("--set", options.set))
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


def _list_contenders(options: SimulateOptions, against: Sequence[str]) -> list[str]:
    requested = split_names([*(options.heuristic or ()), *(options.more or ())])
    baselines = parse_contenders(against) if against else ()  # () would mean all
    contenders = (*parse_contenders(requested), *baselines)
    if is_live(options):
        uncounted = [c for c in contenders if c.eager and not c.autoscaled]
        named = [c.name for c in uncounted if c.name in (*requested, *against)]
        if named:
            raise SettingError(
                f"{named[0]} decides no number of consumers: no closed loop; use keda:{named[0]}"
            )
        contenders = tuple(c for c in contenders if c not in uncounted)
    return list(dict.fromkeys(one.name for one in contenders))


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
    names: Sequence[str],
    streams: Sequence[WriteRateStream],
    setup: SimulationSetup,
    live: "LiveSettings | None",
    options: SimulateOptions,
) -> dict[SimulationJob, SimulationRun]:
    def list_headrooms(name: str) -> list[float]:
        tunable = options.recommend and parse_contender(name).is_trimtab_setting
        return list(dict.fromkeys((setup.headroom, *(CANDIDATE_HEADROOMS if tunable else ()))))

    jobs = [
        SimulationJob(number, name, headroom)
        for name in names
        for headroom in list_headrooms(name)
        for number in range(len(streams))
    ]
    with open_progress() as progress:
        task = progress.add_task("simulating", total=len(jobs))
        return run_jobs(jobs, streams, setup, options.jobs, lambda _: progress.advance(task), live=live)


def open_progress() -> Progress:
    """Return a progress bar on standard error; it is not shown in a pipe."""
    console = Console(stderr=True)
    columns = (MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    bar = (SpinnerColumn(), *Progress.get_default_columns()[:2], *columns)
    return Progress(*bar, console=console, transient=True, disable=not console.is_terminal)
