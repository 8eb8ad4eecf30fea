"""Effect of each step of `steady`: the preset `balanced` without that step, on random walks.

Variants without the search, without closing and without both. Figures: R, consumers, and the total
cost consumers + λ R. For the effect of look-ahead see bench_lookahead.

    python benchmarks/bench_ablation.py [--seeds 3] [--ticks 200]
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
from harness import result
from rich.console import Console
from rich.table import Table

from trimtab.assignor import RandomWalk, get_heuristic, replay_stream
from trimtab.assignor.heuristics.steady.pack import pack_steady
from trimtab.assignor.heuristics.steady.params import STEADY_PRESETS

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


def run_variant(job: tuple[int, str, int], ticks: int) -> tuple[float, float]:
    """Return the mean consumers and the mean R of one stream."""
    delta, variant, seed = job
    stream = RandomWalk(delta, 200, ticks, CAPACITY).generate_stream(np.random.default_rng(seed))
    heuristic = replace(get_heuristic("steady"), pack=partial(pack_steady, params=VARIANTS[variant]))
    done = [(tick.consumers, tick.r_score) for tick in replay_stream(heuristic, stream, CAPACITY)]
    consumers, scores = zip(*done, strict=True)
    return float(np.mean(consumers)), float(np.mean(scores))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--ticks", type=int, default=200)
    options = parser.parse_args()
    seeds = range(FIRST_SEED, FIRST_SEED + options.seeds)
    with ProcessPoolExecutor() as pool:
        done = list(pool.map(partial(run_variant, ticks=options.ticks), product(DELTAS, VARIANTS, seeds)))
    means = np.array(done).reshape(len(DELTAS), len(VARIANTS), len(seeds), 2).mean(axis=2)
    table = Table("δ", "steady:balanced", "consumers", "R", "consumers + λ R")
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for (d, delta), (v, variant) in product(enumerate(DELTAS), enumerate(VARIANTS)):
        consumers, r = means[d, v]
        cost = consumers + WHOLE.move_cost * r
        table.add_row(str(delta), variant, f"{consumers:.2f}", f"{r:.2f}", f"{cost:.2f}")
        row = {"mean_consumers": consumers, "mean_r": r, "consumers_plus_lambda_r": cost}
        figures.setdefault(str(delta), {})[variant] = {k: round(x, 3) for k, x in row.items()}
    Console().print(table)
    result(figures)


if __name__ == "__main__":
    main()
