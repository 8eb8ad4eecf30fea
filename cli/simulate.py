"""`trimtab simulate`: a stream of write speeds through heuristics, side by side."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from trimtab.assignor.errors import SettingError
from trimtab.assignor.units import parse_rate

if TYPE_CHECKING:
    from trimtab.assignor.replay import Tick
    from trimtab.assignor.stream import Stream

SEED: Final = 11
CAPACITY: Final = "100"


class Format(StrEnum):
    """How the result is printed."""

    TABLE = "table"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class _Source:
    """Where the stream comes from: a file, or a random walk."""

    file: Path | None
    delta: float | None
    partitions: int
    ticks: int
    seed: int
    clamped: bool


def simulate(  # noqa: PLR0913 - typer: one parameter an option
    more: Annotated[
        list[str] | None, typer.Argument(help="More heuristics, after --heuristic.", metavar="NAME")
    ] = None,
    *,
    stream: Annotated[
        Path | None,
        typer.Option(help='JSON list of ticks, each {"topic": {"partition": bytes/s}}.'),
    ] = None,
    random_walk: Annotated[
        float | None,
        typer.Option(
            metavar="δ", help="Random walk: the largest step, in percent of the capacity."
        ),
    ] = None,
    capacity: Annotated[
        str | None, typer.Option(help='Of one consumer: "2.3 MB/s"; 100 for a random walk.')
    ] = None,
    heuristic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Repeat it, or list names; by default all that can count."
        ),
    ] = None,
    partitions: Annotated[int, typer.Option(min=1, help="Of the random walk.")] = 200,
    ticks: Annotated[int, typer.Option(min=1, help="Of the random walk.")] = 500,
    seed: Annotated[int, typer.Option(min=0, help="Of the random walk.")] = SEED,
    unclamped: Annotated[
        bool, typer.Option("--unclamped", help="Let speeds grow beyond the capacity.")
    ] = False,
    save: Annotated[Path | None, typer.Option(help="Write the stream to this file.")] = None,
    output: Annotated[Format, typer.Option("--format", help="How to print it.")] = Format.TABLE,
) -> None:
    """Replay a stream of write speeds through heuristics, each on its own trajectory.

    For example:

        trimtab simulate --random-walk 15

        trimtab simulate --random-walk 5 --heuristic mbf --heuristic bfd --save walk.json

        trimtab simulate --stream walk.json --capacity 100 --heuristic mwf mbf --format json
    """
    source = _Source(stream, random_walk, partitions, ticks, seed, not unclamped)
    rate = _capacity(source, capacity)
    speeds = _stream(source, rate)
    if save is not None:
        _save(save, speeds)
    runs = _replay([*(heuristic or ()), *(more or ())], speeds, rate)
    if output is Format.JSON:
        typer.echo(_json(runs))
    else:
        _print_table(runs, speeds, rate)


def _capacity(source: _Source, text: str | None) -> float:
    """Return bytes/s, once it is clear that there is one source of speeds."""
    if (source.file is None) == (source.delta is None):
        raise SettingError(
            "say where the speeds come from: either --stream FILE or --random-walk δ"
        )
    if text is None and source.file is not None:
        raise SettingError('--stream needs the capacity of a consumer: --capacity "2.3 MB/s"')
    rate = parse_rate(text or CAPACITY, "--capacity")
    if rate <= 0:
        raise SettingError(f"--capacity {text!r} must be above 0")
    return rate


def _stream(source: _Source, capacity: float) -> "Stream":
    import numpy as np  # noqa: PLC0415 - slow to load

    from trimtab.assignor.generators import Walk, random_walk  # noqa: PLC0415 - as above
    from trimtab.assignor.stream import parse  # noqa: PLC0415 - as above

    if source.file is not None:
        return parse(_read(source.file))
    walk = Walk(source.delta or 0.0, source.partitions, source.ticks, capacity, source.clamped)
    return random_walk(np.random.default_rng(source.seed), walk)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise SettingError(f"--stream: {file} cannot be read: {error.strerror}") from error


def _save(file: Path, speeds: "Stream") -> None:
    from trimtab.assignor.stream import dump  # noqa: PLC0415 - numpy is slow to load

    try:
        file.write_text(dump(speeds), encoding="utf-8")
    except OSError as error:
        raise SettingError(f"--save: {file} cannot be written: {error.strerror}") from error


def _replay(wanted: list[str], speeds: "Stream", capacity: float) -> dict[str, list["Tick"]]:
    """Run every heuristic, showing progress on a terminal."""
    from rich.console import Console  # noqa: PLC0415 - keeps --help fast
    from rich.progress import Progress  # noqa: PLC0415 - keeps --help fast

    from trimtab.assignor.registry import get, names  # noqa: PLC0415 - numpy is slow to load
    from trimtab.assignor.replay import replay  # noqa: PLC0415 - numpy is slow to load

    wanted = [name.strip() for text in wanted for name in text.split(",")]
    entries = [get(name) for name in wanted] or [e for e in map(get, names()) if e.counts]
    console = Console(stderr=True)
    runs: dict[str, list[Tick]] = {}
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        for entry in entries:
            steps = replay(entry, speeds, capacity)
            runs[entry.name] = list(
                progress.track(steps, total=len(speeds.speeds), description=entry.name)
            )
    return runs


def _json(runs: dict[str, list["Tick"]]) -> str:
    return json.dumps(
        {
            "heuristics": {
                name: {
                    "consumers": [t.consumers for t in ticks],
                    "rscore": [t.r_score for t in ticks],
                    "moved": [t.moved for t in ticks],
                }
                for name, ticks in runs.items()
            }
        }
    )


def _print_table(runs: dict[str, list["Tick"]], speeds: "Stream", capacity: float) -> None:
    from rich.console import Console  # noqa: PLC0415 - keeps --help fast
    from rich.table import Table  # noqa: PLC0415 - keeps --help fast

    from trimtab.assignor.replay import lower_bounds  # noqa: PLC0415 - numpy is slow to load
    from trimtab.assignor.score import cardinal_bin_score  # noqa: PLC0415 - numpy is slow to load

    excess = cardinal_bin_score({n: [t.consumers for t in ticks] for n, ticks in runs.items()})
    bounds = lower_bounds(speeds, capacity)
    table = Table("heuristic")
    for column in ("CBS %", "mean R", "moves a tick", "mean consumers", "over L2 %"):
        table.add_column(column, justify="right")
    for name, ticks in runs.items():
        table.add_row(name, f"{100 * excess[name]:.2f}", *_columns(ticks, bounds))
    Console().print(table)


def _columns(ticks: list["Tick"], bounds: list[int]) -> tuple[str, str, str, str]:
    over = _mean(t.consumers / b - 1 if b else 0.0 for t, b in zip(ticks, bounds, strict=True))
    return (
        f"{_mean(t.r_score for t in ticks):.1f}",
        f"{_mean(t.moved for t in ticks):.1f}",
        f"{_mean(t.consumers for t in ticks):.1f}",
        f"{100 * over:.2f}",
    )


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return sum(known) / len(known)
