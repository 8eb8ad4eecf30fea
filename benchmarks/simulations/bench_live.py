"""Tables of the closed loop: the paper's twelve algorithms, steady's presets and KEDA on the paper's streams.

`trimtab simulate --live` on random walks of each δ and each of the paper's four initial write rates, with
the sidecar's default settings: its windows and tolerance, consumers that join 20 s after their start, a
headroom of .9. For each initial write rate it prints two tables in Markdown, as soon as its runs are done.
Beside the mean R stands its standard error, from the means of batches of ten ticks.

    python -m benchmarks.simulations.bench_live  # a small grid; make tables: the paper's, an hour of CPU
"""

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.harness import result
from trimtab.assignor.analysis.simulation import RunSummary, SimulationRun, SimulationSetup, summarize_runs
from trimtab.assignor.analysis.streams.generators import RandomWalk
from trimtab.assignor.analysis.streams.replay import lower_bounds
from trimtab.cli.simulate.run import open_progress
from trimtab.cli.simulate.worker_pool import SimulationJob, run_jobs
from trimtab.sidecar.simulation.live_settings import LiveSettings

PAPER = ("nf", "nfd", "ff", "ffd", "wf", "wfd", "bf", "bfd", "mwf", "mbf", "mwfp", "mbfp")
OTHERS = (
    "steady:tight",
    "steady:balanced",
    "steady:calm",
    "sticky",
    "lag-aware",
    "keda:range",
    "keda:sticky",
)
DELTAS = (0.0, 5.0, 10.0, 15.0, 20.0, 25.0)
INITIALS: Mapping[str, float | None] = {"random": None, "0": 0.0, "50": 50.0, "100": 100.0}
SETUP = SimulationSetup(headroom=0.9)
BATCH_TICKS = 10  # the least time between two scale-downs: the default stabilization window


class Cell(NamedTuple):
    """A stream of the grid."""

    initial: str
    delta: float


class Measured(NamedTuple):
    """A run's summary, and the standard error of its mean R."""

    summary: RunSummary
    r_error: float

    def to_dict(self) -> dict[str, float | None]:
        """Return the figures by name."""
        return {**self.summary.to_dict(), "r_error": self.r_error}


class Figures(NamedTuple):
    """What a table shows of each run."""

    title: str
    describe: Callable[[Measured], str]


def describe_cost(measured: Measured) -> str:
    summary = measured.summary
    mean_r = f"{summary.mean_r:.2f} ± {measured.r_error:.2f}"
    return f"{summary.mean_consumers:.1f} / {mean_r} / {summary.late_percent:.1f}"


def describe_fill(measured: Measured) -> str:
    summary = measured.summary
    return f"{summary.over_headroom:.0f} / {summary.over_capacity:.0f} / {summary.max_fullest:.2f}"


def estimate_r_error(run: SimulationRun) -> float:
    """Return the standard error of the mean R, from the means of batches of ticks; NaN for one batch."""
    batches = len(run.r_score) // BATCH_TICKS
    means = run.r_score[: batches * BATCH_TICKS].reshape(batches, BATCH_TICKS).mean(axis=1)
    return float(means.std(ddof=1) / np.sqrt(batches)) if batches > 1 else float("nan")


TABLES = (
    Figures("mean consumers / mean R / late %", describe_cost),
    Figures("ticks over headroom / ticks over capacity / fullest", describe_fill),
)


def main() -> None:
    """Simulate the grid and print its tables."""
    arguments = parse_arguments()
    found: dict[Cell, dict[str, Measured]] = {}
    for initial in arguments.initial:
        cells = [Cell(initial, delta) for delta in arguments.delta]
        found |= simulate_cells(cells, arguments)
        for figures in TABLES:
            print(f"\nInitial write rates {initial}: {figures.title}\n")
            print("\n".join(format_table(found, cells, figures)), flush=True)
    result({f"{c.initial} {c.delta:g}": {n: m.to_dict() for n, m in found[c].items()} for c in found})


def parse_arguments() -> argparse.Namespace:
    """Return the arguments; the defaults are a small part of the paper's grid."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=40)
    parser.add_argument("--ticks", type=int, default=40)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--delta", type=float, nargs="+", default=DELTAS)
    parser.add_argument("--initial", nargs="+", choices=[*INITIALS], default=["random"])
    parser.add_argument("--heuristic", nargs="+", default=[*PAPER, *OTHERS])
    parser.add_argument("--jobs", type=int)
    return parser.parse_args()


def simulate_cells(cells: Sequence[Cell], arguments: argparse.Namespace) -> dict[Cell, dict[str, Measured]]:
    """Return the figures of each cell by heuristic."""
    shape = (arguments.partitions, arguments.ticks)
    walks = [RandomWalk(c.delta, *shape, initial=INITIALS[c.initial]) for c in cells]
    streams = [walk.generate_stream(np.random.default_rng(arguments.seed)) for walk in walks]
    jobs = [SimulationJob(n, h, SETUP.headroom) for n in range(len(cells)) for h in arguments.heuristic]
    with open_progress() as progress:
        task = progress.add_task("simulating", total=len(jobs))
        live = LiveSettings()
        runs = run_jobs(jobs, streams, SETUP, arguments.jobs, lambda _: progress.advance(task), live=live)
    found: dict[Cell, dict[str, Measured]] = {}
    for n, cell in enumerate(cells):
        of_cell = {job.name: run for job, run in runs.items() if job.stream == n}
        summaries = summarize_runs(of_cell, SETUP, lower_bounds(streams[n], SETUP.capacity))
        found[cell] = {
            name: Measured(summary, estimate_r_error(of_cell[name])) for name, summary in summaries.items()
        }
    return found


def format_table(
    found: Mapping[Cell, Mapping[str, Measured]], cells: Sequence[Cell], figures: Figures
) -> Iterable[str]:
    """Yield the lines of a Markdown table, with a column for each cell."""
    yield "".join(["| |", *(f" δ={cell.delta:g} |" for cell in cells)])
    yield "|---" * (len(cells) + 1) + "|"
    for name in found[cells[0]]:
        yield "".join([f"| `{name}` |", *(f" {figures.describe(found[cell][name])} |" for cell in cells)])


if __name__ == "__main__":
    main()
