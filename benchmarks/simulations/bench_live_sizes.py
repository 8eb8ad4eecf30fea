"""How full the closed loop leaves consumers, by number of partitions: walks, Zipf and constant loads.

`trimtab simulate --live` with the sidecar's default settings and a headroom of .9. For each number of
partitions it prints a table in Markdown, as soon as its runs are done. A cell has four figures:

1. decisions: ticks in which a placement was decided and carried out;
2. those that left a consumer of several partitions above the headroom, although a placement without one
   was found for the same consumers;
3. those that left a consumer above its capacity;
4. load ÷ capacity of the fullest consumer right after a decision.

    python -m benchmarks.simulations.bench_live_sizes  # small; make tables-sizes: 40 to 300 partitions
"""

import argparse
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from benchmarks.harness import result
from trimtab.assignor.analysis.simulation import SimulationRun, SimulationSetup
from trimtab.assignor.analysis.streams.generators import RandomWalk, ZipfLoad
from trimtab.assignor.analysis.streams.stream import WriteRateStream
from trimtab.assignor.model import TopicPartition
from trimtab.assignor.model.packing import CAPACITY_TOLERANCE
from trimtab.cli.simulate.run import open_progress
from trimtab.cli.simulate.worker_pool import SimulationJob, run_jobs
from trimtab.sidecar.simulation.live_settings import LiveSettings

DELTAS = (5.0, 10.0, 15.0, 20.0, 25.0)
HEURISTICS = ("steady:balanced", "mwf")
SETUP = SimulationSetup(headroom=0.9)


class Fill(NamedTuple):
    """What a run's decisions left behind."""

    decisions: int
    over_headroom: int  # although that was avoidable
    over_capacity: int
    fullest: float

    def describe(self) -> str:
        """Return the cell of a table."""
        return f"{self.decisions} / {self.over_headroom} / {self.over_capacity} / {self.fullest:.2f}"


def main() -> None:
    """Simulate each size and print its table."""
    arguments = parse_arguments()
    found: dict[str, dict[str, dict[str, object]]] = {}
    for partitions in arguments.partitions:
        fills = simulate_size(partitions, arguments)
        print(f"\n{partitions} partitions\n")
        print("\n".join(format_table(fills, arguments.heuristic)), flush=True)
        found[str(partitions)] = {
            stream: {heuristic: fill._asdict() for heuristic, fill in row.items()}
            for stream, row in fills.items()
        }
    result(found)


def parse_arguments() -> argparse.Namespace:
    """Return the arguments; the defaults are a small part of the grid."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, nargs="+", default=[40])
    parser.add_argument("--ticks", type=int, default=20)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--heuristic", nargs="+", default=HEURISTICS)
    parser.add_argument("--jobs", type=int)
    return parser.parse_args()


def generate_streams(partitions: int, ticks: int, seed: int) -> dict[str, WriteRateStream]:
    """Return streams by name: the paper's walk by δ, one of small partitions, Zipf, constant rates.

    On the paper's walk and in the Zipf load some partitions alone are above the headroom; in the others
    none is above half a capacity. Rates are constant but for the first tenth of the ticks, in which each
    partition writes 30 to 70 % of it, so that the group has something to decide.
    """
    walks = {f"δ={delta:g}": RandomWalk(delta, partitions, ticks) for delta in DELTAS}
    small = RandomWalk(15.0, partitions, ticks, capacity=SETUP.capacity / 2)
    generators = {**walks, "δ=15, ≤ C/2": small, "Zipf": ZipfLoad(partitions, ticks)}
    streams = {name: g.generate_stream(np.random.default_rng(seed)) for name, g in generators.items()}
    return streams | {"constant": generate_constant_stream(partitions, ticks, seed)}


def generate_constant_stream(partitions: int, ticks: int, seed: int) -> WriteRateStream:
    """Return constant rates of at most half a capacity, after a lower start."""
    rng = np.random.default_rng(seed)
    rates = np.tile(rng.uniform(0, SETUP.capacity / 2, partitions), (ticks, 1))
    rates[: ticks // 10] *= rng.uniform(0.3, 0.7, partitions)
    names = tuple(TopicPartition("constant", number) for number in range(partitions))
    return WriteRateStream(names, rates)


def simulate_size(partitions: int, arguments: argparse.Namespace) -> dict[str, dict[str, Fill]]:
    """Return the fills by stream and heuristic."""
    streams = generate_streams(partitions, arguments.ticks, arguments.seed)
    numbered = range(len(streams))
    jobs = [SimulationJob(n, h, SETUP.headroom) for n in numbered for h in arguments.heuristic]
    with open_progress() as progress:
        task = progress.add_task(f"simulating {partitions} partitions", total=len(jobs))
        runs = run_jobs(
            jobs,
            [*streams.values()],
            SETUP,
            arguments.jobs,
            lambda _: progress.advance(task),
            live=LiveSettings(),
        )
    fills: dict[str, dict[str, Fill]] = {name: {} for name in streams}
    for job, run in runs.items():
        fills[[*streams][job.stream]][job.name] = measure_fill(run)
    return fills


def measure_fill(run: SimulationRun) -> Fill:
    """Return what a run's decisions left behind."""
    fullest = run.fullest[run.decided]
    return Fill(
        decisions=len(fullest),
        over_headroom=int((run.decided & run.avoidable).sum()),
        over_capacity=int((fullest > 1 + CAPACITY_TOLERANCE).sum()),
        fullest=float(fullest.max(initial=0.0)),
    )


def format_table(fills: Mapping[str, Mapping[str, Fill]], heuristics: Iterable[str]) -> Iterable[str]:
    """Yield the lines of a Markdown table, with a column for each stream."""
    yield "".join(["| |", *(f" {stream} |" for stream in fills)])
    yield "|---" * (len(fills) + 1) + "|"
    for name in heuristics:
        yield "".join([f"| `{name}` |", *(f" {row[name].describe()} |" for row in fills.values())])


if __name__ == "__main__":
    main()
