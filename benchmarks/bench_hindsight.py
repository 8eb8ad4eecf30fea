"""What was possible: the closed loop's cost beyond the lower bound in hindsight, and how tight that bound is.

The cost of a tick is consumers + 0.5 · R. A cell has the gap in % of the bound, and its parts: consumers held
after a fall, spare ones, missing ones, moves. Then, on small walks: bound by counts ÷ optimum.

    python benchmarks/bench_hindsight.py    # a small part; make tables-hindsight: the docs' tables
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from harness import result

from trimtab.assignor.analysis.simulation import (
    HindsightGap,
    HindsightInput,
    SimulationSetup,
    bound_in_hindsight,
    measure_gap,
)
from trimtab.assignor.analysis.simulation.hindsight import bound_by_counts
from trimtab.assignor.analysis.streams.generators import RandomWalk, ZipfLoad
from trimtab.assignor.analysis.streams.stream import WriteRateStream
from trimtab.cli.simulate.options import DEFAULT_SEED
from trimtab.cli.simulate.trace_files import list_trace_names
from trimtab.cli.simulate.trace_source import load_windows
from trimtab.cli.simulate.worker_pool import SimulationJob, run_jobs
from trimtab.sidecar.simulation.live_settings import LiveSettings

HEURISTICS = ("steady:tight", "steady:balanced", "steady:calm", "mwf", "mbf", "mbfp", "keda:sticky")
SETUP = SimulationSetup(headroom=0.9)
MOVE_COST = 0.5
SMALL_WALKS = 20


def main() -> None:
    """Print a table of gaps for each stream, then how tight the bound is on small walks."""
    arguments = parse_arguments()
    found: dict[str, object] = {}
    for title, streams in iterate_streams(arguments):
        gaps = measure_gaps(streams, arguments.heuristic)
        print(f"\n{title}: bound {next(iter(gaps.values())).bound:.2f} consumers\n")
        print("\n".join(format_table(gaps)), flush=True)
        found[title] = {name: round_figures(gap) for name, gap in gaps.items()}
    tightness = {partitions: measure_tightness(partitions) for partitions in (3, 4, 5, 6)}
    print(f"\nbound by counts ÷ optimum: {tightness}")
    result({"gaps": found, "tightness": tightness})


def parse_arguments() -> argparse.Namespace:
    """Return the arguments; the defaults are a small part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=40)
    parser.add_argument("--ticks", type=int, default=30)
    parser.add_argument("--delta", type=float, nargs="+", default=(15.0,))
    parser.add_argument("--windows", type=int, default=1)
    parser.add_argument("--heuristic", nargs="+", default=HEURISTICS)
    return parser.parse_args()


def iterate_streams(arguments: argparse.Namespace) -> Iterator[tuple[str, Sequence[WriteRateStream]]]:
    """Yield walks, Zipf loads with a daily wave, and the packaged traces."""
    size = arguments.partitions, arguments.ticks
    generators = {f"walk δ={delta:g}": RandomWalk(delta, *size) for delta in arguments.delta}
    for title, generator in {**generators, "zipf": ZipfLoad(*size)}.items():
        yield title, [generator.generate_stream(np.random.default_rng(DEFAULT_SEED))]
    for trace in list_trace_names():
        yield trace, load_windows(trace, arguments.windows, arguments.ticks, SETUP).second


def measure_gaps(streams: Sequence[WriteRateStream], heuristics: Sequence[str]) -> dict[str, HindsightGap]:
    """Return the gap of each heuristic's closed loop."""
    jobs = [SimulationJob(n, name, SETUP.headroom) for name in heuristics for n in range(len(streams))]
    runs = run_jobs(jobs, streams, SETUP, None, lambda _: None, live=LiveSettings())
    bounds = [bound_in_hindsight(build_input(stream)) for stream in streams]
    return {
        name: measure_gap([run for job, run in runs.items() if job.name == name], bounds, SETUP.tick)
        for name in heuristics
    }


def build_input(stream: WriteRateStream) -> HindsightInput:
    """Return what bounds a stream."""
    return HindsightInput(stream.rates, SETUP.capacity * SETUP.headroom, SETUP.capacity, MOVE_COST)


def measure_tightness(partitions: int) -> float:
    """Return the bound by counts ÷ the optimum, mean of small walks of 12 ticks."""
    walk = RandomWalk(15, partitions, 12)
    given = [build_input(walk.generate_stream(np.random.default_rng(n))) for n in range(SMALL_WALKS)]
    each = [bound_by_counts(one).cost.sum() / bound_in_hindsight(one).cost.sum() for one in given]
    return round(float(np.mean(each)), 4)


def format_table(gaps: Mapping[str, HindsightGap]) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    yield "| | gap % | held % | spare % | missing % | moves % | half in ticks | overfull ticks |"
    yield "|---" * 8 + "|"
    for name, g in gaps.items():
        parts = (g.gap_percent, g.held_percent, g.spare_percent, g.missing_percent, g.moves_percent)
        yield f"| `{name}` | {' | '.join(f'{p:.1f}' for p in parts)} | {g.half_ticks} | {g.overfull_ticks} |"


def round_figures(gap: HindsightGap) -> dict[str, object]:
    """Return the figures, rounded."""
    return {name: round(v, 4) if isinstance(v, float) else v for name, v in gap.to_dict().items()}


if __name__ == "__main__":
    main()
