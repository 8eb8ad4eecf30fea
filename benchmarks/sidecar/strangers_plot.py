"""The plot of bench_strangers: each side's balance over time, and the share of records above each latency."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
import matplotlib.pyplot as plt

if TYPE_CHECKING:
    from benchmarks.sidecar.bench_strangers import Figures

COLOURS = {"own": "#d62728", "led": "#1f77b4", "kip848": "#2ca02c"}


def draw_results(path: Path, results: "Mapping[str, Figures]", seconds: float) -> None:
    """Draw a line per side in both; grey lines mark the new rates and the restarts."""
    figure, axes = plt.subplots(1, 2, figsize=(12, 4), layout="constrained")
    for name, of in results.items():
        axes[0].step(*zip(*of.curve, strict=True), where="post", label=name, color=COLOURS[name])
        _draw_survival(axes[1], name, of)
    for third in (1, 2):
        axes[0].axvline(third * seconds / 3, color="#c0c0c0", linewidth=0.8)
    axes[0].axhline(1.1, color="#c0c0c0", linewidth=0.8, linestyle=":")
    axes[0].set_xlabel("s; grey: other rates, restarts begin", fontsize=8)
    axes[0].set_ylabel("largest member's load ÷ mean", fontsize=8)
    axes[0].legend(fontsize=8)
    axes[1].set_xlabel("s from produced to handled", fontsize=8)
    axes[1].set_ylabel("share of the records that took longer", fontsize=8)
    figure.suptitle("the same Java, librdkafka and Go consumers under one stream", fontsize=10)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _draw_survival(axis: Any, name: str, of: "Figures") -> None:
    seconds = np.sort(np.maximum(of.latencies, 1e-3))
    axis.plot(seconds, 1 - np.arange(len(seconds)) / len(seconds), color=COLOURS[name])
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_ylim(bottom=5e-4)
