"""The plot of bench_ingest: throughput, CPU and memory of each case by record size."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

COLOURS = {
    "trimtab_iceberg": "#1f77b4",
    "trimtab_delta": "#6baed6",
    "trimtab_arrow": "#08519c",
    "trimtab_arrow_delta": "#4292c6",
    "plain_loop": "#a0a0a0",
    "plain_loop_tuned": "#606060",
    "structured_streaming": "#d62728",
    "structured_streaming_delta": "#ff9896",
    "delta_rs": "#ff7f0e",
    "trimtab_ranges": "#2ca02c",
    "spark_python_ranges": "#98df8a",
    "trimtab_iceberg_json": "#17becf",
    "trimtab_arrow_json": "#9edae5",
    "structured_streaming_json": "#e377c2",
}

PANELS = {
    "mb_per_s": "MB/s",
    "cpu_s_per_gb": "CPU s/GB, the tree of processes",
    "peak_mb": "peak resident MB",
}

FiguresBySize: TypeAlias = Mapping[int, Mapping[str, Mapping[str, float]]]
"""Record size → case → figure → value."""


def draw_results(path: Path, results: FiguresBySize) -> None:
    """Draw a panel per figure."""
    figure, axes = plt.subplots(1, len(PANELS), figsize=(14, 4), layout="constrained")
    for axis, (figure_name, label) in zip(axes, PANELS.items(), strict=True):
        _draw_bars(axis, results, figure_name)
        axis.set_title(label, fontsize=9)
    axes[0].set_yscale("log")
    axes[0].legend(fontsize=7)
    figure.suptitle("Kafka to table, one process")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _draw_bars(axis: Any, results: FiguresBySize, figure: str) -> None:
    names = list(next(iter(results.values())))
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        places = [at + number * width for at in range(len(results))]
        values = [results[size][name][figure] for size in results]
        bars = axis.bar(places, values, width, label=name, color=COLOURS[name])
        axis.bar_label(bars, [f"{v:,.0f}" for v in values], rotation=90, padding=2, fontsize=6)
    axis.set_xticks([at + 0.4 - width / 2 for at in range(len(results))], [f"{s} B" for s in results])
    axis.margins(y=0.15)
    axis.tick_params(labelsize=8)
