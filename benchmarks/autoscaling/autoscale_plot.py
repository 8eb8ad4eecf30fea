"""The plot of bench_autoscale: load, replicas of both sides, required replicas and latency."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np

from benchmarks.autoscaling.autoscale_figures import Figures
from benchmarks.stream import TICK

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

COLOURS = {"trimtab": "#1f77b4", "keda": "#d62728", "fixed": "#7f7f7f"}
BIN = 2.0
"""Seconds of records whose latest makes a point."""


def draw_runs(path: Path, runs: Mapping[str, Figures], consumers: Sequence[float], late: float) -> None:
    """Draw both sides; `consumers` is the load of each tick in consumer capacities."""
    figure, (counts, ages) = plt.subplots(
        2, 1, figsize=(9, 6.5), sharex=True, layout="constrained", height_ratios=(3, 2)
    )
    when = np.arange(len(consumers)) * TICK
    counts.fill_between(when, consumers, step="post", color="#e0e0e0", label="load")
    needed = next(iter(runs.values())).log.needed
    counts.step(when, needed, where="post", color="black", linewidth=1, label="least needed")
    for name, of in runs.items():
        _draw_side(counts, ages, name, of)
    counts.set_ylabel("consumers")
    counts.set_ylim(bottom=0)
    counts.legend(fontsize=8)
    ages.axhline(late, color="#808080", linewidth=0.8, linestyle="--", label=f"late: {late:g} s")
    ages.set_ylabel("s from produced to handled, the longest")
    ages.set_xlabel("seconds")
    ages.set_yscale("log")
    ages.legend(fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _draw_side(counts: Axes, ages: Axes, name: str, of: Figures) -> None:
    samples, begin = of.log.measured, of.log.begin
    times = [s.time - begin for s in samples]
    label = f"{name}: {of.consumer_hours:.3f} consumer-hours, {of.late_traffic:.1%} late"
    running = [s.running for s in samples]
    counts.step(times, running, where="post", color=COLOURS[name], label=label)
    bins = ((of.produced - begin) // BIN).astype(int)
    longest = np.full(bins.max() + 1, np.nan)
    np.fmax.at(longest, bins, of.latency)
    ages.plot(np.arange(len(longest)) * BIN, longest, color=COLOURS[name], label=name)
