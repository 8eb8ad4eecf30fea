"""Tables of the closed loop: the paper's twelve algorithms, steady's presets and KEDA on the paper's streams.

`trimtab simulate --live` on random walks of each δ and each of the paper's four initial write rates, with
the sidecar's default settings: its windows and tolerance, consumers that join 20 s after their start, a
headroom of .9. For each initial write rate it prints two tables in Markdown.

    python benchmarks/bench_live.py    # a small grid; make tables: the paper's, about two hours of CPU
"""

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from harness import result

from trimtab.assignor.analysis.simulation import RunSummary, SimulationSetup, summarize_runs
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


class Cell(NamedTuple):
    """A stream of the grid."""

    initial: str
    delta: float


class Figures(NamedTuple):
    """What a table shows of each run."""

    title: str
    describe: Callable[[RunSummary], str]


def describe_cost(summary: RunSummary) -> str:
    return f"{summary.mean_consumers:.1f} / {summary.mean_r:.1f} / {summary.late_percent:.1f}"


def describe_fill(summary: RunSummary) -> str:
    return f"{summary.over_headroom:.0f} / {summary.over_capacity:.0f} / {summary.max_fullest:.2f}"


TABLES = (
    Figures("mean consumers / mean R / late %", describe_cost),
    Figures("ticks over headroom / ticks over capacity / fullest", describe_fill),
)


def main() -> None:
    """Simulate the grid and print its tables."""
    arguments = parse_arguments()
    cells = [Cell(initial, delta) for initial in arguments.initial for delta in arguments.delta]
    found = simulate(cells, arguments)
    for initial in arguments.initial:
        for figures in TABLES:
            print(f"\nInitial write rates {initial}: {figures.title}\n")
            print("\n".join(format_table(found, [c for c in cells if c.initial == initial], figures)))
    result({f"{c.initial} {c.delta:g}": {n: s.to_dict() for n, s in found[c].items()} for c in cells})


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


def simulate(cells: Sequence[Cell], arguments: argparse.Namespace) -> dict[Cell, dict[str, RunSummary]]:
    """Return the summaries of each cell by heuristic."""
    shape = (arguments.partitions, arguments.ticks)
    walks = [RandomWalk(c.delta, *shape, initial=INITIALS[c.initial]) for c in cells]
    streams = [walk.generate_stream(np.random.default_rng(arguments.seed)) for walk in walks]
    jobs = [SimulationJob(n, h, SETUP.headroom) for n in range(len(cells)) for h in arguments.heuristic]
    with open_progress() as progress:
        task = progress.add_task("simulating", total=len(jobs))
        live = LiveSettings()
        runs = run_jobs(jobs, streams, SETUP, arguments.jobs, lambda _: progress.advance(task), live=live)
    return {
        cell: summarize_runs(
            {job.name: run for job, run in runs.items() if job.stream == n},
            SETUP,
            lower_bounds(streams[n], SETUP.capacity),
        )
        for n, cell in enumerate(cells)
    }


def format_table(
    found: Mapping[Cell, Mapping[str, RunSummary]], cells: Sequence[Cell], figures: Figures
) -> Iterable[str]:
    """Yield the lines of a Markdown table, with a column for each cell."""
    yield "".join(["| |", *(f" δ={cell.delta:g} |" for cell in cells)])
    yield "|---" * (len(cells) + 1) + "|"
    for name in found[cells[0]]:
        yield "".join([f"| `{name}` |", *(f" {figures.describe(found[cell][name])} |" for cell in cells)])


if __name__ == "__main__":
    main()
