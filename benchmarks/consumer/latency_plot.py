"""The plot of bench_latency: the share of records above each latency."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
import matplotlib.pyplot as plt

if TYPE_CHECKING:
    from benchmarks.consumer.bench_latency import Figures

COLOURS = {
    "steady": "#1f77b4",
    "mwf": "#2ca02c",
    "bfd": "#9467bd",
    "lag-aware": "#8c564b",
    "sticky": "#ff7f0e",
    "range": "#d62728",
}


def draw_runs(path: Path, runs: "Sequence[Figures]") -> None:
    """Draw a line per heuristic on logarithmic scales."""
    figure, axis = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for of in runs:
        seconds = np.sort(np.maximum(of.latency, 1e-3))
        longer = 1 - np.arange(len(seconds)) / len(seconds)
        axis.plot(seconds, longer, label=of.heuristic, color=COLOURS[of.heuristic])
    for share in (0.01, 0.001):
        axis.axhline(share, color="#c0c0c0", linewidth=0.8)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_ylim(bottom=5e-4)
    axis.set_xlabel("seconds from produced to handled")
    axis.set_ylabel("share of the records that took longer")
    axis.set_title(f"{runs[0].consumers} consumers each; grey: p99 and p99.9", fontsize=9)
    axis.legend(fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)
