"""CPU time of a decision: `steady` and the paper's heuristics, on the same problems.

A random walk (δ = 10) of a few ticks at each size, each heuristic on its own trajectory; the first
tick, without any owners, is measured separately. Medians in CPU ms of the calling thread. "sized" is
open mode; "placed" is the placement of a plan with exactly as many consumers, from the same owners;
"overloaded" that of about twice the load, of 1.6 to 2.4 times on each consumer, from the owners placed.

    python -m benchmarks.placement.bench_decide [--ticks 5]
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median
from time import thread_time
from typing import TypeVar

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.harness import result
from benchmarks.placement.one_topic import one_topic
from trimtab.assignor.heuristics.registry import get_heuristic
from trimtab.assignor.model import UNASSIGNED, FloatArray
from trimtab.assignor.model.forecast import RateChangeStats
from trimtab.assignor.modes.exact_mode import pack_exactly
from trimtab.assignor.modes.open_mode import close_problem
from trimtab.assignor.scores.score import r_score

T = TypeVar("T")

SIZES = ((200, 100), (1_000, 500), (10_000, 100), (10_000, 500), (10_000, 5_000))  # partitions, consumers
HEURISTICS = ("steady:tight", "steady:balanced", "steady:calm", "mwf", "mbf")
SLOW = {(10_000, 5_000): ("mwf", "mbf")}  # takes minutes without new insight
CAPACITY = 100.0


def write_rates(partitions: int, consumers: int, ticks: int) -> FloatArray:
    """Return a random walk (ticks, partitions) that fills 90 % of the capacity."""
    rng = np.random.default_rng(partitions + consumers)
    top = 1.8 * CAPACITY * consumers / partitions
    walk = [rng.uniform(0, top, partitions)]
    for _ in range(ticks - 1):
        walk.append(np.clip(walk[-1] + rng.uniform(-0.1, 0.1, partitions) * top, 0, top))
    return np.minimum(np.array(walk), CAPACITY)


def time_decisions(heuristic: str, walk: FloatArray) -> dict[str, float]:
    """Return CPU ms of the first and of a later decision, and the moves of the latter."""
    entry = get_heuristic(heuristic)
    owner = np.full(walk.shape[1], UNASSIGNED, dtype=np.int32)
    changes = RateChangeStats.empty(walk.shape[1])
    sized: list[tuple[float, float]] = []
    placed: list[tuple[float, float]] = []
    overloaded: list[float] = []
    for rate in walk:
        changes = changes.with_measurement(rate)
        problem = replace(one_topic(rate, owner, CAPACITY), forecast=changes.forecast_next(rate))
        after, spent = time_call(partial(entry.pack, problem))
        sized.append((spent, r_score(rate, owner, after, CAPACITY)))
        members = len(problem.capacity)
        kept = np.unique(after[after < members]).astype(np.int32)
        exact = close_problem(problem, kept, len(np.unique(after)) - len(kept))
        (bins, is_overloaded), spent = time_call(partial(pack_exactly, entry, exact))
        assert not is_overloaded, f"{heuristic} places nothing within {len(exact.capacity)} consumers"
        stopped = float(rate[(owner != UNASSIGNED) & (exact.owner == UNASSIGNED)].sum()) / CAPACITY
        placed.append((spent, r_score(rate, exact.owner, bins, CAPACITY) + stopped))
        growth = np.random.default_rng(len(placed)).uniform(1.6, 2.4, len(exact.capacity))
        heavy = replace(exact, owner=bins, weight=rate * growth[bins])
        (_, is_overloaded), spent = time_call(partial(pack_exactly, entry, heavy))
        assert is_overloaded, f"{heuristic} places twice the load within the capacities"
        overloaded.append(spent)
        owner = np.unique(after, return_inverse=True)[1].astype(np.int32)
    return {
        "first_cpu_ms": round(sized[0][0], 2),
        "cpu_ms": round(median(ms for ms, _ in sized[1:]), 2),
        "placed_cpu_ms": round(median(ms for ms, _ in placed[1:]), 2),
        "overloaded_cpu_ms": round(median(overloaded[1:]), 2),
        "r_score": round(median(r for _, r in sized[1:]), 2),
        "placed_r_score": round(median(r for _, r in placed[1:]), 2),
        "consumers": int(owner.max()) + 1,
    }


def time_call(call: Callable[[], T]) -> tuple[T, float]:
    """Return the result and the CPU ms of a call."""
    began = thread_time()
    found = call()
    return found, 1e3 * (thread_time() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--ticks", type=int, default=5)
    parser.add_argument("--sizes", type=int, default=len(SIZES), help="number of sizes, from the smallest")
    options = parser.parse_args()
    times = ("first sized, ms", "sized, ms", "placed, ms", "overloaded, ms", "R sized", "R placed")
    table = Table("partitions x consumers", "heuristic", *times, "consumers")
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for partitions, consumers in SIZES[: options.sizes]:
        walk = write_rates(partitions, consumers, options.ticks)
        size = f"{partitions}x{consumers}"
        for heuristic in HEURISTICS:
            if heuristic in SLOW.get((partitions, consumers), ()):
                continue
            measured = figures.setdefault(size, {})[heuristic] = time_decisions(heuristic, walk)
            table.add_row(size, heuristic, *(f"{value:g}" for value in measured.values()))
    Console().print(table)
    result(figures)


if __name__ == "__main__":
    main()
