"""Rack-aware placement: its CPU time, and the cost of less cross-rack traffic.

CPU time: partitions with two replicas in three racks, members spread over the racks, random owners and
write rates; median CPU ms of a call from the problem's arrays to the placement (of steady without a
plan).

Trade-off: the paper's random walk, tick by tick, in open mode; consumer n is in rack n modulo 3. For
each preset of steady and each rack_cost: the mean cross-rack share of the load, consumers, R, and the
load of the fullest consumer. Heuristics by count get load ÷ capacity consumers.

    python -m benchmarks.placement.bench_racks [--plot docs/rack-awareness.png]    # about three minutes
"""

import math
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.harness import result
from benchmarks.placement.one_topic import one_topic
from trimtab.assignor import RandomWalk, get_heuristic, r_score
from trimtab.assignor.model import UNASSIGNED, BoolArray, FloatArray, IntArray, PackingProblem, RackTopology
from trimtab.assignor.model.forecast import RateChangeStats
from trimtab.assignor.modes.open_mode import pack_open_mode

RACKS = 3
CAPACITY = 100.0
SIZES = ("1000x10", "10000x100", "100000x1000")
TIMED = ("rack-aware", "rack-aware:balance_subtopology", "steady", "steady:rack_cost=0.5", "sticky")
TOPICS = 10
RUNS = 5

REPORTED = {"1000x10": "1,300-1,600", "10000x100": "none in 100 s"}
"""CPU ms of Kafka Streams' optimiser (cycle cancelling), measured separately."""

PRESETS = ("tight", "balanced", "calm")
COSTS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
COUNTED = ("sticky", "rack-aware", "rack-aware:traffic_cost=1:non_overlap_cost=10")
PARTITIONS = 200
DELTA = 10
SEED = 700


@dataclass(frozen=True)
class Means:
    """Means over the ticks without the first."""

    crossing: float  # share of the load
    consumers: float
    r: float
    fullest: float  # share of a capacity

    @classmethod
    def of(cls, ticks: Iterator[tuple[float, ...]]) -> "Means":
        found = np.array(list(ticks)[1:])
        return cls(*(round(float(mean), 4) for mean in found.mean(axis=0)))


def main() -> None:
    arguments = ArgumentParser(description=__doc__)
    arguments.add_argument("--sizes", nargs="*", default=SIZES[:2], help="PARTITIONSxMEMBERS")
    arguments.add_argument("--ticks", type=int, default=40, help="ticks of the trade-off; 0: CPU times only")
    arguments.add_argument("--plot", type=Path, help="write the plot of the trade-off to this file")
    options = arguments.parse_args()
    cpu_ms = {size: {name: time_problem(name, size) for name in TIMED} for size in options.sizes}
    table = Table("CPU ms", *options.sizes)
    for name in TIMED:
        table.add_row(name, *(f"{cpu_ms[size][name]:,.1f}" for size in options.sizes))
    table.add_row("Kafka Streams, as reported", *(REPORTED.get(size, "") for size in options.sizes))
    Console(width=110).print(table)
    found = trade_off(options.ticks) if options.ticks else {}
    if options.plot:
        draw_means(options.plot, found)
        print(f"plot: {options.plot}")
    result({"cpu_ms": cpu_ms, "trade_off": {name: vars(means) for name, means in found.items()}})


def find_far_racks(rng: np.random.Generator, partitions: int) -> BoolArray:
    """Return the racks without a replica, (P, RACKS + 1): two random racks have one per partition."""
    there = np.zeros((partitions, RACKS + 1), dtype=np.bool_)
    there[np.arange(partitions), rng.integers(0, RACKS, partitions)] = True
    return there


def time_problem(name: str, size: str) -> float:
    """Return the median CPU ms of a call after a warm-up call."""
    partitions, members = map(int, size.split("x"))
    rng = np.random.default_rng(partitions)
    weight = rng.pareto(2.5, partitions) + 0.2
    problem = PackingProblem(
        weight=weight,
        owner=rng.integers(0, members, partitions).astype(np.int32),
        topic=np.repeat(np.arange(TOPICS, dtype=np.int32), partitions // TOPICS),
        lag=np.zeros(partitions),
        capacity=np.full(members, 1.5 * weight.sum() / members),
        subscribed=np.ones((TOPICS, members), dtype=np.bool_),
        racks=RackTopology((np.arange(members) % RACKS).astype(np.int32), find_far_racks(rng, partitions)),
    )
    entry = get_heuristic(name)
    pack = entry.balance_load or entry.pack
    pack(problem)
    return round(median(_cpu_ms(lambda: pack(problem)) for _ in range(RUNS)), 2)


def _cpu_ms(call: Callable[[], object]) -> float:
    begun = process_time()
    call()
    return (process_time() - begun) * 1000


def trade_off(ticks: int) -> dict[str, Means]:
    """Return the means of every heuristic and parameter."""
    steady = [f"steady:{preset}:rack_cost={cost:g}" for preset in PRESETS for cost in COSTS]
    names = [*steady, *COUNTED]
    with ProcessPoolExecutor(2) as pool:
        return dict(zip(names, pool.map(means_of, names, [ticks] * len(names)), strict=True))


def means_of(name: str, ticks: int) -> Means:
    """Replay the random walk with one heuristic."""
    rng = np.random.default_rng(SEED)
    write_rates = RandomWalk(DELTA, partitions=PARTITIONS, ticks=ticks + 1).generate_stream(rng).rates
    return Means.of(_simulate_ticks(name, write_rates, find_far_racks(rng, PARTITIONS)))


def _simulate_ticks(name: str, write_rates: FloatArray, away: BoolArray) -> Iterator[tuple[float, ...]]:
    owner: IntArray = np.full(PARTITIONS, UNASSIGNED, dtype=np.int32)
    changes, entry = RateChangeStats.empty(PARTITIONS), get_heuristic(name)
    for rate in write_rates:
        changes = changes.with_measurement(rate)
        if entry.packs_by_capacity:
            posed = _pack_with_racks(one_topic(rate, owner, CAPACITY), away)
            after = pack_open_mode(entry, replace(posed, forecast=changes.forecast_next(rate)))
        else:
            after = entry.pack(_of_count(rate, owner, away))
        load = np.bincount(after, rate)
        crosses = away[np.arange(PARTITIONS), after % RACKS]
        yield (
            float(rate[crosses].sum() / rate.sum()),
            float(len(np.unique(after))),
            r_score(rate, owner, after, CAPACITY),
            float(load.max() / CAPACITY),
        )
        owner = after


def _of_count(rate: FloatArray, owner: IntArray, away: BoolArray) -> PackingProblem:
    """Return the closed-mode problem with the minimum number of consumers for the load."""
    members = math.ceil(rate.sum() / CAPACITY)
    alone = one_topic(rate, np.full(PARTITIONS, members - 1, dtype=np.int32), CAPACITY)
    stays = np.where(owner < members, owner, UNASSIGNED).astype(np.int32)
    return _pack_with_racks(replace(alone, owner=stays, new_member_capacity=None), away)


def _pack_with_racks(problem: PackingProblem, away: BoolArray) -> PackingProblem:
    at = (np.arange(len(problem.capacity)) % RACKS).astype(np.int32)
    return replace(problem, racks=RackTopology(at, away))


def draw_means(path: Path, found: dict[str, Means]) -> None:
    """Draw consumers, moves and balance over the cross-rack share of the traffic."""
    import matplotlib as mpl  # noqa: PLC0415 - only where a picture is wanted

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415 - as above

    figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
    for axis, (key, what) in zip(axes, LABELS.items(), strict=True):
        for preset in PRESETS:
            line = [found[f"steady:{preset}:rack_cost={cost:g}"] for cost in COSTS]
            _draw_line(axis, line, key, f"steady:{preset}")
        for name, mark in zip(COUNTED, "xPD", strict=True):
            axis.plot(100 * found[name].crossing, getattr(found[name], key), mark, label=name)
        axis.set_xlabel("load that crosses racks, %")
        axis.set_title(what, fontsize=10)
    axes[2].legend(fontsize=7, loc="center right")
    figure.suptitle(f"rack_cost from {COSTS[0]:g} (right) to {COSTS[-1]:g} (left)", fontsize=11)
    figure.savefig(path, dpi=110)
    plt.close(figure)


LABELS = {
    "consumers": "consumers",
    "r": "R: consumers' worth of load that moves, a tick",
    "fullest": "the fullest consumer, share of its capacity",
}


def _draw_line(axis: Any, means: list[Means], key: str, label: str) -> None:
    share = [100 * m.crossing for m in means]
    axis.plot(share, [getattr(m, key) for m in means], "o-", markersize=3, label=label)


if __name__ == "__main__":
    main()
