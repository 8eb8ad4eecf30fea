"""The plot of bench_bounce: median pauses on a logarithmic scale, and the cumulative pause of a run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl

from benchmarks.consumer.bounce_figures import Figures

mpl.use("Agg")
import matplotlib.pyplot as plt

COLOURS = {
    "trimtab": "#1f77b4",
    "trimtab_second_round": "#4292c6",
    "trimtab_close": "#6baed6",
    "trimtab_static": "#b0c4de",
    "eager": "#d62728",
    "java_cooperative": "#ff7f0e",
    "java_cooperative_commits": "#e6550d",
    "java_cooperative_3s": "#a0a0a0",
    "librdkafka_cooperative": "#fdae6b",
    "java_led": "#2ca02c",
    "java_led_commits": "#006d2c",
    "librdkafka_led": "#98df8a",
    "java_kip848": "#9467bd",
    "java_kip848_500ms": "#c5b0d5",
    "librdkafka_kip848": "#8c564b",
    "librdkafka_kip848_500ms": "#c49c94",
    "java_planned_500ms": "#17becf",
    "librdkafka_planned_500ms": "#9edae5",
    "trimtab_threads": "#08519c",
    "eager_processes": "#fb6a4a",
    "java_cooperative_processes": "#fdd0a2",
}


def draw_results(path: Path, results: Mapping[str, Sequence[Figures]]) -> None:
    """Draw each side's pause in seconds: the median with all runs, and over the time of one run."""
    figure, axes = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
    _draw_bars(axes[0], results)
    _draw_curves(axes[1], results)
    figure.suptitle("rolling bounce: waited beyond 100 ms, summed over the partitions")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _draw_bars(axis: Any, results: Mapping[str, Sequence[Figures]]) -> None:
    names = list(results)[::-1]
    middles = [max(median(r.pause_ms for r in results[n]), 1) / 1000 for n in names]
    bars = axis.barh(names, middles, color=[COLOURS[n] for n in names])
    axis.bar_label(bars, [f"{m:,.2f} s" for m in middles], padding=4, fontsize=8)
    for row, name in enumerate(names):
        runs = [max(r.pause_ms, 1) / 1000 for r in results[name]]
        axis.plot(runs, [row] * len(runs), "k|", markersize=8)
    axis.set_xscale("log")
    axis.margins(x=0.2)
    axis.set_xlabel("s, all instances bounced once; median, a mark for each run", fontsize=8)
    axis.tick_params(labelsize=8)


def _draw_curves(axis: Any, results: Mapping[str, Sequence[Figures]]) -> None:
    for name, runs in results.items():
        curve = sorted(runs, key=lambda r: r.pause_ms)[len(runs) // 2].curve
        times = [0.0, *(when for when, _ in curve)]
        total = [0.0, *(paused / 1000 for _, paused in curve)]
        axis.step(times, total, where="post", label=name, color=COLOURS[name])
    axis.set_yscale("symlog", linthresh=1)
    axis.set_xlabel("s since the first stop; the run in the middle", fontsize=8)
    axis.set_ylabel("s paused until then", fontsize=8)
    axis.tick_params(labelsize=8)
    axis.grid(visible=True, alpha=0.3)
    axis.legend(fontsize=7)
