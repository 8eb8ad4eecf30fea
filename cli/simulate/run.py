"""`trimtab simulate`: replays streams of write rates through heuristics, with queues."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from trimtab.cli.output_formats import PrintFormat
from trimtab.cli.setting_pairs import parse_pairs
from trimtab.cli.simulate import options
from trimtab.cli.simulate.stream_source import StreamSource
from trimtab.common.errors import SettingError
from trimtab.common.units import parse_seconds

if TYPE_CHECKING:
    from trimtab.assignor.analysis.simulation import SimulationRun, SimulationSetup
    from trimtab.assignor.analysis.streams.stream import WriteRateStream
    from trimtab.cli.simulate.worker_pool import SimulationJob

DEFAULT_SEED: Final = 11


GENERATOR_OPTIONS: Final = ("partitions", "ticks", "seed", "seeds", "unclamped", "shape")
"""Options that apply to generated streams only."""


def simulate(  # noqa: PLR0913 - typer: one parameter an option
    ctx: typer.Context,
    more: options.MoreHeuristicNames = None,
    *,
    stream: options.StreamPath = None,
    heuristic: options.HeuristicNames = None,
    random_walk: options.RandomWalkStep = None,
    zipf: options.ZipfFlag = False,
    flash_crowd: options.FlashCrowdFlag = False,
    oversize: options.OversizeFlag = False,
    shape: options.ShapeValues = None,
    partitions: options.PartitionCount = 200,
    ticks: options.TickCount = 500,
    seed: options.Seed = DEFAULT_SEED,
    seeds: options.Seeds = 1,
    unclamped: options.Unclamped = False,
    save: options.Save = None,
    capacity: options.SimulatedCapacity = None,
    headroom: options.HeadroomShare = 1.0,
    tick: options.TickLength = "30 s",
    pause: options.Pause = "3 s",
    late: options.LateAfter = "10 s",
    lag_threshold: options.LagThreshold = "5 s",
    against: options.BaselineNames = None,
    recommend: options.Recommend = False,
    late_limit: options.LateLimit = 1.0,
    output: options.FindingsFormat = PrintFormat.TEXT,
    html: options.HtmlReport = None,
    jobs: options.CoreCount = None,
) -> None:
    """Replay a stream of write rates through heuristics and compare cost, lag and lateness.

    For example:

        trimtab simulate --random-walk 15

        trimtab simulate --random-walk 5 --seeds 10 --heuristic mbf --heuristic bfd

        trimtab simulate --stream mine.json --capacity "2.3 MB/s" --recommend --html report.html
    """
    _reject_generator_options(ctx, stream)
    shapes = parse_pairs("--shape", shape)
    made_up = (random_walk, zipf, flash_crowd, oversize, partitions, ticks, seed, seeds)
    source = StreamSource(stream, *made_up, clamped=not unclamped, shape=shapes)
    times = {"tick": tick, "pause": pause, "late": late, "threshold": lag_threshold}
    setup = _build_setup(source.parse_capacity(capacity), headroom, times)
    names = _contender_names([*(heuristic or ()), *(more or ())], split_names(against))
    _check_report_writable(html)
    streams = source.load_streams(setup.capacity)
    _save_stream(save, streams[0])
    runs = _simulate_with_progress(names, streams, setup, recommend=recommend, cores=jobs)
    from trimtab.cli.simulate.findings import build_findings  # noqa: PLC0415 - numpy is slow to load
    from trimtab.cli.simulate.output import print_findings  # noqa: PLC0415 - keeps --help fast

    findings = build_findings(source.title, streams, setup, runs, split_names(against), late_limit)
    if html is not None:
        from trimtab.cli.simulate.report import write_report  # noqa: PLC0415 - matplotlib is slow to load

        write_report(html, findings, capacity)
    print_findings(findings, output, capacity, headrooms_tried=recommend)


def split_names(given: Sequence[str] | None) -> list[str]:
    """Return comma-separated names. Raises SettingError for an empty one."""
    names = [name.strip() for text in given or () for name in text.split(",")]
    if "" in names:
        raise SettingError("a name in a list of heuristics is empty; leave out the comma")
    return names


def _reject_generator_options(ctx: typer.Context, stream: Path | None) -> None:
    """Raise SettingError for options that do not apply to a stream from a file."""
    if stream is None:
        return
    sources = {name: ctx.get_parameter_source(name) for name in GENERATOR_OPTIONS}
    given = [f"--{n}" for n, source in sources.items() if source and source.name == "COMMANDLINE"]
    if given:
        raise SettingError(f"only a made-up stream has {', '.join(given)}; leave out --stream")


def _build_setup(capacity: float, headroom: float, times: dict[str, str]) -> "SimulationSetup":
    """Return the setup. Raises SettingError for an invalid duration or fraction."""
    from trimtab.assignor.analysis.simulation import SimulationSetup  # noqa: PLC0415 - numpy is slow to load

    seconds = {n: parse_seconds(t, _option_name(n)) for n, t in times.items()}
    if not 0 < headroom <= 1:
        raise SettingError(f"--headroom {headroom} must be above 0 and at most 1")
    for name, value in seconds.items():
        if value == 0 and name != "pause":
            raise SettingError(f"{_option_name(name)} {times[name]!r} must be above 0")
    return SimulationSetup(capacity=capacity, headroom=headroom, **seconds)


def _option_name(name: str) -> str:
    return "--lag-threshold" if name == "threshold" else f"--{name}"


def _contender_names(requested: Sequence[str], against: Sequence[str]) -> list[str]:
    """Return the contenders. Raises UnknownHeuristicError."""
    from trimtab.assignor.analysis.simulation import parse_contenders  # noqa: PLC0415 - numpy is slow to load

    chosen = parse_contenders(split_names(requested))
    return list(dict.fromkeys(c.name for c in (*chosen, *(parse_contenders(against) if against else ()))))


def _check_report_writable(file: Path | None) -> None:
    """Raise SettingError if the report cannot be written, before the long simulation.

    Without matplotlib it is ModuleNotFoundError, which the command turns into what to install.
    """
    if file is None:
        return
    import_module("matplotlib")
    try:
        file.open("ab").close()
    except OSError as error:
        raise SettingError(f"--html: {file} cannot be written: {error.strerror}") from error


def _save_stream(file: Path | None, speeds: "WriteRateStream") -> None:
    from trimtab.assignor.analysis.streams.stream import format_stream  # noqa: PLC0415 - numpy is slow to load

    if file is None:
        return
    try:
        file.write_text(format_stream(speeds), encoding="utf-8")
    except OSError as error:
        raise SettingError(f"--save: {file} cannot be written: {error.strerror}") from error


def _simulate_with_progress(
    names: Sequence[str],
    streams: "Sequence[WriteRateStream]",
    setup: "SimulationSetup",
    *,
    recommend: bool,
    cores: int | None,
) -> "dict[SimulationJob, SimulationRun]":
    """Run all contenders; show progress on a terminal."""
    from rich.console import Console  # noqa: PLC0415 - keeps --help fast
    from rich.progress import Progress  # noqa: PLC0415 - keeps --help fast

    from trimtab.assignor.analysis.simulation import CANDIDATE_HEADROOMS, parse_contender  # noqa: PLC0415 - as above
    from trimtab.cli.simulate.worker_pool import SimulationJob, run_jobs  # noqa: PLC0415 - as above

    tried = {
        n: (setup.headroom, *(CANDIDATE_HEADROOMS if parse_contender(n).is_trimtab_setting else ()))
        for n in names
    }
    shares = tried if recommend else dict.fromkeys(names, (setup.headroom,))
    todo = [
        SimulationJob(number, name, share)
        for name in names
        for share in dict.fromkeys(shares[name])
        for number in range(len(streams))
    ]
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("simulating", total=len(todo))
        return run_jobs(todo, streams, setup, cores, lambda _: progress.advance(task))
