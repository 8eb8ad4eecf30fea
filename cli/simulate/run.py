"""`trimtab simulate`: replays streams of write rates through heuristics, with queues."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import Progress

from trimtab.assignor.analysis.simulation import (
    CANDIDATE_HEADROOMS,
    SimulationRun,
    SimulationSetup,
    parse_contender,
    parse_contenders,
)
from trimtab.assignor.analysis.streams.stream import WriteRateStream, format_stream
from trimtab.cli.setting_pairs import split_names
from trimtab.cli.simulate.findings import SimulationFindings, build_findings
from trimtab.cli.simulate.options import SimulateOptions
from trimtab.cli.simulate.output import print_findings
from trimtab.cli.simulate.stream_source import describe_source, load_streams, parse_capacity
from trimtab.cli.simulate.worker_pool import SimulationJob, run_jobs
from trimtab.common.errors import SettingError
from trimtab.common.units import parse_seconds

GENERATOR_OPTIONS: Final = ("partitions", "ticks", "seed", "seeds", "unclamped", "shape")
_DURATIONS: Final = {"tick": "tick", "pause": "pause", "late": "late", "threshold": "lag_threshold"}


def simulate(options: SimulateOptions) -> None:
    """Simulate, print the findings, write the report. Raises SettingError, InvalidStreamError."""
    _reject_generator_options(options)
    setup = _build_setup(options)
    against = split_names(options.against)
    names = _list_contenders(options, against)
    write_report = _prepare_report(options.html, options.capacity)
    streams = load_streams(options, setup.capacity)
    _save_stream(options.save, streams[0])
    runs = _run_with_progress(names, streams, setup, options)
    findings = build_findings(describe_source(options), streams, setup, runs, against, options.late_limit)
    write_report(findings)
    print_findings(findings, options.output, options.capacity, headrooms_tried=options.recommend)


def _reject_generator_options(options: SimulateOptions) -> None:
    given = [f"--{name}" for name in GENERATOR_OPTIONS if name in options.given]
    if given and options.stream is not None:
        raise SettingError(f"only a generated stream has {', '.join(given)}; leave out --stream")


def _build_setup(options: SimulateOptions) -> SimulationSetup:
    capacity = parse_capacity(options)
    seconds: dict[str, float] = {}
    if not 0 < options.headroom <= 1:
        raise SettingError(f"--headroom {options.headroom} must be above 0 and at most 1")
    for name, field in _DURATIONS.items():
        text = getattr(options, field)
        flag = f"--{field.replace('_', '-')}"
        seconds[name] = parse_seconds(text, flag)
        if seconds[name] == 0 and name != "pause":  # a move without a pause is the paper's model
            raise SettingError(f"{flag} {text!r} must be above 0")
    return SimulationSetup(capacity=capacity, headroom=options.headroom, **seconds)


def _list_contenders(options: SimulateOptions, against: Sequence[str]) -> list[str]:
    requested = split_names([*(options.heuristic or ()), *(options.more or ())])
    baselines = parse_contenders(against) if against else ()  # () would mean all
    return list(dict.fromkeys(one.name for one in (*parse_contenders(requested), *baselines)))


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
    names: Sequence[str], streams: Sequence[WriteRateStream], setup: SimulationSetup, options: SimulateOptions
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
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("simulating", total=len(jobs))
        return run_jobs(jobs, streams, setup, options.jobs, lambda _: progress.advance(task))
