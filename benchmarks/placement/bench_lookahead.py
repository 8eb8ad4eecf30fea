"""Potential of better forecasts for `steady`, compared with the variance that it uses.

Each forecast predicts the change of the write rates until the next tick; the rest of the decision is
the same. `nothing` uses the current rates only, `kept` is `trimtab.assignor.model.forecast` (no expected
change, but its variance), `perfect` knows the next rates. Every forecast runs with several move costs
λ, which gives a curve of R over consumers; the figure is R on that curve at the number of consumers
that `kept` has with the preset's λ, in percent of `kept`'s R. Below 100 is better.

    python -m benchmarks.placement.bench_lookahead [--seeds 2] [--ticks 200]    # about eight minutes
"""

import argparse
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.harness import result
from benchmarks.placement.one_topic import one_topic
from trimtab.assignor.analysis.streams.generators import FlashCrowd, RandomWalk, StreamGenerator, ZipfLoad
from trimtab.assignor.heuristics.steady.pack import pack_steady
from trimtab.assignor.heuristics.steady.params import STEADY_PRESETS
from trimtab.assignor.model import UNASSIGNED, FloatArray, RateForecast
from trimtab.assignor.model.forecast import RateChangeStats
from trimtab.assignor.scores.score import r_score

CAPACITY = 100.0
FIRST_SEED = 400  # seeds that were not used for tuning
FACTORS = (0.7, 1.0, 1.5, 2.3)  # of the preset's λ
PRESETS_TRIED = ("balanced", "calm")
LEVELS = 20
QUICK = 0.2  # weight of the newest change in a trend

Forecast = Callable[[FloatArray, int, RateForecast], RateForecast]
"""Maps all rates (N, P), a tick and the forecast of `kept` to a forecast."""


def forecast_kept_rates(_write_rates: FloatArray, _tick: int, outlook: RateForecast) -> RateForecast:
    return outlook


def forecast_nothing(_write_rates: FloatArray, _tick: int, outlook: RateForecast) -> RateForecast:
    return RateForecast(outlook.drift, np.zeros_like(outlook.variance))


def two_ticks(_write_rates: FloatArray, _tick: int, outlook: RateForecast) -> RateForecast:
    return RateForecast(outlook.drift, 2 * outlook.variance)


def four_ticks(_write_rates: FloatArray, _tick: int, outlook: RateForecast) -> RateForecast:
    return RateForecast(outlook.drift, 4 * outlook.variance)


def own_trend(write_rates: FloatArray, tick: int, outlook: RateForecast) -> RateForecast:
    """Half of each partition's exponentially weighted change continues."""
    past = np.diff(write_rates[max(0, tick - 20) : tick + 1], axis=0)
    weight = QUICK * (1 - QUICK) ** np.arange(len(past))[::-1]
    return RateForecast(0.5 * weight @ past, outlook.variance)


def common_growth(write_rates: FloatArray, tick: int, outlook: RateForecast) -> RateForecast:
    """All partitions grow like the recent sum: the slope of a daily wave."""
    sums = write_rates[max(0, tick - 20) : tick + 1].sum(axis=1)
    growth = np.diff(sums) / np.maximum(sums[:-1], 1e-9)
    weight = QUICK * (1 - QUICK) ** np.arange(len(growth))[::-1]
    return RateForecast(write_rates[tick] * (weight @ growth), outlook.variance)


def by_level(write_rates: FloatArray, tick: int, outlook: RateForecast) -> RateForecast:
    """Mean reversion: the mean change of all partitions at each level of the rate."""
    past, change = write_rates[:tick].ravel(), np.diff(write_rates[: tick + 1], axis=0).ravel()
    top = write_rates[: tick + 1].max() or 1.0
    level = np.minimum((past / top * LEVELS).astype(int), LEVELS - 1)
    seen = np.bincount(level, minlength=LEVELS)
    mean = np.bincount(level, change, minlength=LEVELS) / (
        seen + 200
    )  # shrinks levels with few observations towards 0
    now = np.minimum((write_rates[tick] / top * LEVELS).astype(int), LEVELS - 1)
    return RateForecast(mean[now], outlook.variance)


def day_before(write_rates: FloatArray, tick: int, outlook: RateForecast) -> RateForecast:
    """The sum changes as it did a day (250 ticks) ago, once that history exists."""
    ago = tick - 250
    if ago < 0:
        return outlook
    sums = write_rates[ago : ago + 2].sum(axis=1)
    return RateForecast(write_rates[tick] * (sums[1] / max(sums[0], 1e-9) - 1), outlook.variance)


def perfect(write_rates: FloatArray, tick: int, outlook: RateForecast) -> RateForecast:
    return RateForecast(
        write_rates[min(tick + 1, len(write_rates) - 1)] - write_rates[tick], outlook.variance
    )


FORECASTS: dict[str, Forecast] = {
    "nothing": forecast_nothing,
    "kept": forecast_kept_rates,
    "two ticks": two_ticks,
    "four ticks": four_ticks,
    "own trend": own_trend,
    "common growth": common_growth,
    "by level": by_level,
    "day before": day_before,
    "perfect": perfect,
}


def generate_streams(ticks: int) -> dict[str, StreamGenerator]:
    return {
        "walk δ=5": RandomWalk(delta=5, ticks=ticks),
        "walk δ=15": RandomWalk(delta=15, ticks=ticks),
        "walk δ=25": RandomWalk(delta=25, ticks=ticks),
        "zipf, daily wave": ZipfLoad(ticks=5 * ticks // 2),  # at 200, two days
        "flash crowd": FlashCrowd(ticks=ticks),
    }


@dataclass(frozen=True)
class Job:
    """One forecast with one λ on one stream."""

    stream: str
    preset: str
    forecast: str
    factor: float
    seed: int
    ticks: int


def run_job(job: Job) -> tuple[float, float]:
    """Return the mean consumers and the mean R."""
    write_rates = (
        generate_streams(job.ticks)[job.stream].generate_stream(np.random.default_rng(job.seed)).rates
    )
    params = STEADY_PRESETS[job.preset]
    params = replace(params, move_cost=params.move_cost * job.factor)
    changes = RateChangeStats.empty(write_rates.shape[1])
    owner = np.full(write_rates.shape[1], UNASSIGNED, dtype=np.int32)
    consumers, scores = [], []
    for tick, rate in enumerate(write_rates):
        changes = changes.with_measurement(rate)
        outlook = FORECASTS[job.forecast](write_rates, tick, changes.forecast_next(rate))
        after = pack_steady(replace(one_topic(rate, owner, CAPACITY), forecast=outlook), params)
        scores.append(r_score(rate, owner, after, CAPACITY))
        owner = np.unique(after, return_inverse=True)[1].astype(np.int32)
        consumers.append(int(owner.max()) + 1)
    return float(np.mean(consumers)), float(np.mean(scores))


def at_equal_consumers(curve: FloatArray, consumers: float) -> float:
    """Return R on a curve of rows (consumers, R); NaN outside its range."""
    curve = curve[np.argsort(curve[:, 0])]
    inside = curve[0, 0] <= consumers <= curve[-1, 0]
    if not inside:
        return float("nan")
    return float(np.exp(np.interp(consumers, curve[:, 0], np.log(curve[:, 1]))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--ticks", type=int, default=200)
    options = parser.parse_args()
    cells = list(product(generate_streams(1), PRESETS_TRIED, FORECASTS))
    seeds = range(FIRST_SEED, FIRST_SEED + options.seeds)
    jobs = [Job(*cell, f, seed, options.ticks) for cell in cells for f in FACTORS for seed in seeds]
    with ProcessPoolExecutor() as pool:
        done = list(pool.map(run_job, jobs, chunksize=2))
    curves = np.array(done).reshape(len(cells), len(FACTORS), len(seeds), 2).mean(axis=2)
    found = dict(zip(cells, curves, strict=True))
    figures: dict[str, dict[str, dict[str, float | None]]] = {}
    for preset in PRESETS_TRIED:
        table = Table("stream", "consumers", *FORECASTS, title=f"steady:{preset}, R in % of kept's")
        for stream in generate_streams(1):
            consumers, kept_r = found[stream, preset, "kept"][FACTORS.index(1.0)]
            percent = {
                name: 100 * at_equal_consumers(found[stream, preset, name], consumers) / kept_r
                for name in FORECASTS
            }
            shown = ("-" if np.isnan(p) else f"{p:.1f}" for p in percent.values())
            table.add_row(stream, f"{consumers:.1f}", *shown)
            figures.setdefault(preset, {})[stream] = {
                f"{name}_r_percent_of_kept": None if np.isnan(p) else round(p, 2)
                for name, p in percent.items()
            }
        Console(width=140).print(table)
    result(figures)


if __name__ == "__main__":
    main()
