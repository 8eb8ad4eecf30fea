"""Effect of each step of `steady`: the preset `balanced` without that step, on random walks and traces.

Variants without the search, without closing and without both. Figures: R, consumers, and the total
cost consumers + λ R. For the effect of look-ahead see bench_lookahead.

    python -m benchmarks.placement.bench_ablation [--seeds 3] [--ticks 200]

A trace has as many streams as a random walk has seeds.
"""

import argparse
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.harness import result
from trimtab.assignor import RandomWalk, get_heuristic, replay_stream
from trimtab.assignor.analysis.simulation import SimulationSetup
from trimtab.assignor.analysis.streams.stream import WriteRateStream
from trimtab.assignor.heuristics.steady.pack import pack_steady
from trimtab.assignor.heuristics.steady.params import STEADY_PRESETS
from trimtab.cli.simulate.trace_files import list_trace_names
from trimtab.cli.simulate.trace_source import load_windows

CAPACITY = 100.0
FIRST_SEED = 1000  # seeds that were not used for tuning
DELTAS = (5, 15, 25)
WHOLE = STEADY_PRESETS["balanced"]
VARIANTS = {
    "all steps": WHOLE,
    "no search": replace(WHOLE, search_tries=0),
    "no closing": replace(WHOLE, close_tries=0),
    "neither search nor closing": replace(WHOLE, search_tries=0, close_tries=0),
}


def iterate_streams(seeds: int, ticks: int) -> Iterator[tuple[str, Sequence[WriteRateStream]]]:
    """Yield walks by δ, and the packaged traces."""
    for delta in DELTAS:
        walk = RandomWalk(delta, 200, ticks, CAPACITY)
        drawn = (np.random.default_rng(seed) for seed in range(FIRST_SEED, FIRST_SEED + seeds))
        yield str(delta), [walk.generate_stream(chance) for chance in drawn]
    for trace in list_trace_names():
        yield trace, load_windows(trace, seeds, ticks, SimulationSetup(capacity=CAPACITY)).second


def run_variant(job: tuple[str, WriteRateStream]) -> tuple[float, float]:
    """Return the mean consumers and the mean R of one stream."""
    variant, stream = job
    heuristic = replace(get_heuristic("steady"), pack=partial(pack_steady, params=VARIANTS[variant]))
    done = [(tick.consumers, tick.r_score) for tick in replay_stream(heuristic, stream, CAPACITY)]
    consumers, scores = zip(*done, strict=True)
    return float(np.mean(consumers)), float(np.mean(scores))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--ticks", type=int, default=200)
    options = parser.parse_args()
    streams = dict(iterate_streams(options.seeds, options.ticks))
    jobs = [(variant, stream) for title, variant in product(streams, VARIANTS) for stream in streams[title]]
    with ProcessPoolExecutor() as pool:
        done = list(pool.map(run_variant, jobs))
    means = np.array(done).reshape(len(streams), len(VARIANTS), options.seeds, 2).mean(axis=2)
    table = Table("δ or trace", "steady:balanced", "consumers", "R", "consumers + λ R")
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for (t, title), (v, variant) in product(enumerate(streams), enumerate(VARIANTS)):
        consumers, r = means[t, v]
        cost = consumers + WHOLE.move_cost * r
        table.add_row(title, variant, f"{consumers:.2f}", f"{r:.2f}", f"{cost:.2f}")
        row = {"mean_consumers": consumers, "mean_r": r, "consumers_plus_lambda_r": cost}
        figures.setdefault(title, {})[variant] = {k: round(x, 3) for k, x in row.items()}
    Console().print(table)
    result(figures)


if __name__ == "__main__":
    main()
