"""R as done at no more consumers than the paper's algorithms, with a move cost chosen on other walks.

For each δ and algorithm the move cost is chosen on the walks of `--tune-seeds`: of those whose mean
consumers are no more than the algorithm's, the one with the least R. The figures are those of the walks
of `--seeds`, which have no part in that choice: R ÷ the algorithm's, the aim, and consumers, each of the
means over the walks. The closed loop has the sidecar's default settings, headroom .9 and random first
write rates.

    python -m benchmarks.simulations.bench_fronts    # a small part; make tables-fronts: the docs' table
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.harness import result
from trimtab.assignor.analysis.simulation import SimulationSetup
from trimtab.assignor.analysis.streams.generators import RandomWalk
from trimtab.cli.simulate.run import open_progress
from trimtab.cli.simulate.worker_pool import SimulationJob, run_jobs
from trimtab.sidecar.simulation.live_settings import LiveSettings

SETUP = SimulationSetup(headroom=0.9)
MOVE_COSTS = (
    "steady:tight",
    "steady:0.25",
    "steady:0.4",
    "steady:balanced",
    "steady:0.8",
    "steady:calm",
    "steady:1.75",
)
"""Candidates, by rising move cost."""
AIMS: Mapping[str, Mapping[float, float]] = {
    "mwf": {5: 0.20, 10: 0.30, 15: 0.40, 20: 0.50, 25: 0.55},
    "mbf": {5: 0.25, 10: 0.40, 15: 0.55, 20: 0.60, 25: 0.62},
    "mbfp": {5: 0.40, 10: 0.45, 15: 0.50, 20: 0.55, 25: 0.60},
}
"""Largest R as a share of the algorithm's, by δ."""


class Point(NamedTuple):
    """Means of a heuristic over the ticks of all walks of one δ."""

    consumers: float
    mean_r: float


class FrontFigure(NamedTuple):
    """A move cost beside the algorithm of the paper, on walks that had no part in its choice."""

    heuristic: str
    aim: float
    steady: Point
    paper: Point

    @property
    def r_share(self) -> float:
        """Return R as a share of the algorithm's."""
        return self.steady.mean_r / self.paper.mean_r

    @property
    def more_percent(self) -> float:
        """Return the consumers above the algorithm's in percent; negative if fewer."""
        return 100 * (self.steady.consumers / self.paper.consumers - 1)

    def to_dict(self) -> dict[str, str | float]:
        """Return the figures by name, rounded."""
        return {
            "heuristic": self.heuristic,
            "r_share": round(self.r_share, 4),
            "aim": self.aim,
            "more_percent": round(self.more_percent, 3),
            "consumers": round(self.steady.consumers, 2),
            "paper_consumers": round(self.paper.consumers, 2),
            "mean_r": round(self.steady.mean_r, 3),
            "paper_mean_r": round(self.paper.mean_r, 3),
        }


def main() -> None:
    """Choose and report for each δ, with a line as soon as its runs are done; then print the tables."""
    arguments = parse_arguments()
    chosen_before = dict(pair.split("=", 1) for pair in arguments.chosen)
    found: dict[float, dict[str, FrontFigure]] = {}
    for delta in arguments.delta:
        chosen = chosen_before or choose_move_costs(delta, arguments)
        found[delta] = report_choice(delta, chosen, arguments)
        print(f"δ={delta:g}: { {name: one.to_dict() for name, one in found[delta].items()} }", flush=True)
    print()
    print("\n".join(format_table(found)))
    result({f"{d:g}": {name: one.to_dict() for name, one in row.items()} for d, row in found.items()})


def parse_arguments() -> argparse.Namespace:
    """Return the arguments; the defaults are a small part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=40)
    parser.add_argument("--ticks", type=int, default=20)
    parser.add_argument("--delta", type=float, nargs="+", default=[15.0], choices=[5, 10, 15, 20, 25])
    parser.add_argument("--tune-seeds", type=int, nargs="+", default=[11, 21, 22])
    parser.add_argument("--seeds", type=int, nargs="+", default=[31, 32, 33, 34])
    parser.add_argument(
        "--chosen", nargs="+", default=[], metavar="mwf=NAME", help="Report these; choose none."
    )
    parser.add_argument("--jobs", type=int)
    arguments = parser.parse_args()
    if shared := set(arguments.seeds) & set(arguments.tune_seeds):
        parser.error(f"--seeds has {sorted(shared)} of --tune-seeds; report on other walks")
    return arguments


def choose_move_costs(delta: float, arguments: argparse.Namespace) -> dict[str, str]:
    """Return the move cost for each algorithm, chosen on the tuning walks."""
    points = simulate_walks(delta, (*MOVE_COSTS, *AIMS), arguments.tune_seeds, arguments)
    return {paper: choose_move_cost(points, points[paper]) for paper in AIMS}


def choose_move_cost(points: Mapping[str, Point], paper: Point) -> str:
    """Return the candidate with the least R at no more consumers; if none, that of the fewest consumers."""
    within = [name for name in MOVE_COSTS if points[name].consumers <= paper.consumers]
    if not within:
        return min(MOVE_COSTS, key=lambda name: points[name].consumers)
    return min(within, key=lambda name: points[name].mean_r)


def report_choice(
    delta: float, chosen: Mapping[str, str], arguments: argparse.Namespace
) -> dict[str, FrontFigure]:
    """Return the figures of the chosen move costs on the other walks, by the paper's algorithm."""
    names = dict.fromkeys([*chosen, *chosen.values()])
    points = simulate_walks(delta, [*names], arguments.seeds, arguments)
    return {
        paper: FrontFigure(name, AIMS[paper][delta], points[name], points[paper])
        for paper, name in chosen.items()
    }


def simulate_walks(
    delta: float, names: Sequence[str], seeds: Sequence[int], arguments: argparse.Namespace
) -> dict[str, Point]:
    """Return the means over the walks of these seeds, by heuristic."""
    walk = RandomWalk(delta, arguments.partitions, arguments.ticks)
    streams = [walk.generate_stream(np.random.default_rng(seed)) for seed in seeds]
    jobs = [SimulationJob(n, name, SETUP.headroom) for name in names for n in range(len(seeds))]
    with open_progress() as progress:
        task = progress.add_task(f"δ={delta:g}", total=len(jobs))
        live = LiveSettings()
        runs = run_jobs(jobs, streams, SETUP, arguments.jobs, lambda _: progress.advance(task), live=live)
    of_name = {name: [run for job, run in runs.items() if job.name == name] for name in names}
    return {
        name: Point(
            float(np.mean([run.consumers.mean() for run in each])),
            float(np.mean([run.r_score.mean() for run in each])),
        )
        for name, each in of_name.items()
    }


def format_table(found: Mapping[float, Mapping[str, FrontFigure]]) -> Iterator[str]:
    """Yield the lines of a Markdown table, with a column for each δ."""
    yield "".join(["| |", *(f" δ={delta:g} |" for delta in found)])
    yield "|---" * (len(found) + 1) + "|"
    for paper in next(iter(found.values())):
        cells = [format_cell(row[paper]) for row in found.values()]
        yield "".join([f"| `{paper}` |", *(f" {cell} |" for cell in cells)])


def format_cell(figure: FrontFigure) -> str:
    """Return the move cost, R as a share and its aim, and the consumers above the algorithm's."""
    missed = "" if figure.r_share <= figure.aim else " **missed**"
    name = figure.heuristic.removeprefix("steady:")
    return f"`{name}`: {figure.r_share:.2f} / {figure.aim:.2f}{missed}, {figure.more_percent:+.1f} %"


if __name__ == "__main__":
    main()
