"""`trimtab simulate`: a stream of write speeds through heuristics, side by side, with queues."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from trimtab.cli.output_formats import Format
from trimtab.cli.sidecar.run import pairs
from trimtab.cli.simulate import options
from trimtab.cli.simulate.stream_source import Source
from trimtab.common.errors import SettingError
from trimtab.common.units import parse_seconds

if TYPE_CHECKING:
    from trimtab.assignor.analysis.simulation import Run, Setup
    from trimtab.assignor.analysis.streams.stream import Stream
    from trimtab.cli.simulate.worker_pool import Job

SEED: Final = 11


MADE_UP: Final = ("partitions", "ticks", "seed", "seeds", "unclamped", "shape")
"""Options that only a made-up stream has."""


def simulate(  # noqa: PLR0913 - typer: one parameter an option
    ctx: typer.Context,
    more: options.More = None,
    *,
    stream: options.File = None,
    heuristic: options.Heuristic = None,
    random_walk: options.RandomWalk = None,
    zipf: options.Zipf = False,
    flash_crowd: options.FlashCrowd = False,
    oversize: options.Oversize = False,
    shape: options.Shape = None,
    partitions: options.Partitions = 200,
    ticks: options.Ticks = 500,
    seed: options.Seed = SEED,
    seeds: options.Seeds = 1,
    unclamped: options.Unclamped = False,
    save: options.Save = None,
    capacity: options.Capacity = None,
    headroom: options.Headroom = 1.0,
    tick: options.Tick = "30 s",
    pause: options.Pause = "3 s",
    late: options.Late = "10 s",
    lag_threshold: options.Threshold = "5 s",
    against: options.Against = None,
    recommend: options.Recommend = False,
    late_limit: options.LateLimit = 1.0,
    output: options.Output = Format.TEXT,
    html: options.Html = None,
    jobs: options.Jobs = None,
) -> None:
    """Replay a stream of write speeds through heuristics, and say what their readers would feel.

    For example:

        trimtab simulate --random-walk 15

        trimtab simulate --random-walk 5 --seeds 10 --heuristic mbf --heuristic bfd

        trimtab simulate --stream mine.json --capacity "2.3 MB/s" --recommend --html report.html
    """
    _refuse_made_up(ctx, stream)
    shapes = pairs("--shape", shape)
    made_up = (random_walk, zipf, flash_crowd, oversize, partitions, ticks, seed, seeds)
    source = Source(stream, *made_up, clamped=not unclamped, shape=shapes)
    times = {"tick": tick, "pause": pause, "late": late, "threshold": lag_threshold}
    setup = _setup(source.capacity(capacity), headroom, times)
    names = _names([*(heuristic or ()), *(more or ())], split(against))
    _check_writable(html)
    streams = source.streams(setup.capacity)
    _save(save, streams[0])
    runs = _simulated(names, streams, setup, recommend=recommend, cores=jobs)
    from trimtab.cli.simulate.findings import findings  # noqa: PLC0415 - numpy is slow to load
    from trimtab.cli.simulate.output import show  # noqa: PLC0415 - keeps --help fast

    found = findings(source.title, streams, setup, runs, split(against), late_limit)
    if html is not None:
        from trimtab.cli.simulate.report import write  # noqa: PLC0415 - matplotlib is slow to load

        write(html, found, capacity)
    show(found, output, capacity, tried=recommend)


def split(given: Sequence[str] | None) -> list[str]:
    """Return names that may be listed with commas. Raises SettingError for an empty one."""
    names = [name.strip() for text in given or () for name in text.split(",")]
    if "" in names:
        raise SettingError("a name in a list of heuristics is empty; leave out the comma")
    return names


def _refuse_made_up(ctx: typer.Context, stream: Path | None) -> None:
    """Raise SettingError if anything is said that a stream from a file does not have."""
    if stream is None:
        return
    sources = {name: ctx.get_parameter_source(name) for name in MADE_UP}
    said = [f"--{n}" for n, source in sources.items() if source and source.name == "COMMANDLINE"]
    if said:
        raise SettingError(f"only a made-up stream has {', '.join(said)}; leave out --stream")


def _setup(capacity: float, headroom: float, times: dict[str, str]) -> "Setup":
    """Return the setup. Raises SettingError for a time or a share that makes no sense."""
    from trimtab.assignor.analysis.simulation import Setup  # noqa: PLC0415 - numpy is slow to load

    seconds = {n: parse_seconds(t, _flag(n)) for n, t in times.items()}
    if not 0 < headroom <= 1:
        raise SettingError(f"--headroom {headroom} must be above 0 and at most 1")
    for name, value in seconds.items():
        if value == 0 and name != "pause":
            raise SettingError(f"{_flag(name)} {times[name]!r} must be above 0")
    return Setup(capacity=capacity, headroom=headroom, **seconds)


def _flag(name: str) -> str:
    return "--lag-threshold" if name == "threshold" else f"--{name}"


def _names(wanted: Sequence[str], against: Sequence[str]) -> list[str]:
    """Return whom to simulate. Raises UnknownHeuristic."""
    from trimtab.assignor.analysis.simulation import contenders  # noqa: PLC0415 - numpy is slow to load

    asked = contenders(split(wanted))
    return list(dict.fromkeys(c.name for c in (*asked, *(contenders(against) if against else ()))))


def _check_writable(file: Path | None) -> None:
    """Raise SettingError if a report could not be written, before the long work and not after.

    Without matplotlib it is ModuleNotFoundError, which the command turns into what to install.
    """
    if file is None:
        return
    import_module("matplotlib")
    try:
        file.open("ab").close()
    except OSError as error:
        raise SettingError(f"--html: {file} cannot be written: {error.strerror}") from error


def _save(file: Path | None, speeds: "Stream") -> None:
    from trimtab.assignor.analysis.streams.stream import dump  # noqa: PLC0415 - numpy is slow to load

    if file is None:
        return
    try:
        file.write_text(dump(speeds), encoding="utf-8")
    except OSError as error:
        raise SettingError(f"--save: {file} cannot be written: {error.strerror}") from error


def _simulated(
    names: Sequence[str],
    streams: "Sequence[Stream]",
    setup: "Setup",
    *,
    recommend: bool,
    cores: int | None,
) -> "dict[Job, Run]":
    """Run everybody, showing progress on a terminal."""
    from rich.console import Console  # noqa: PLC0415 - keeps --help fast
    from rich.progress import Progress  # noqa: PLC0415 - keeps --help fast

    from trimtab.assignor.analysis.simulation import HEADROOMS, contender  # noqa: PLC0415 - as above
    from trimtab.cli.simulate.worker_pool import Job, do  # noqa: PLC0415 - as above

    tried = {n: (setup.headroom, *(HEADROOMS if contender(n).ours else ())) for n in names}
    shares = tried if recommend else dict.fromkeys(names, (setup.headroom,))
    todo = [
        Job(number, name, share)
        for name in names
        for share in dict.fromkeys(shares[name])
        for number in range(len(streams))
    ]
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("simulating", total=len(todo))
        return do(todo, streams, setup, cores, lambda _: progress.advance(task))
