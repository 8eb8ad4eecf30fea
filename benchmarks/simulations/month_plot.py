"""The plot of bench_month: consumers of each side over the month and around each fault."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from benchmarks.simulations.month_world import DAY, Fault, Month
from trimtab.assignor.model import IntArray

mpl.use("Agg")
import matplotlib.pyplot as plt

COLOURS = {"trimtab": "#1f77b4", "keda_2s": "#ff9896", "keda_5s": "#d62728", "keda_30s": "#ff7f0e"}
NEED = "#303030"
MARGIN = 0.6  # share of the observed time that is shown before and after it


def draw_month(path: Path, written: Month, counts: Mapping[str, IntArray], tick: float) -> None:
    """Draw the plot; `counts` are the (N,) consumers of each side, one per `tick` seconds.

    Sides without a colour are omitted.
    """
    faults = list(written.faults.values())
    figure = plt.figure(figsize=(13, 6.5), layout="constrained")
    grid = figure.add_gridspec(2, len(faults))
    whole = figure.add_subplot(grid[0, :])
    length = len(written.need) - 1
    _draw_lines(whole, written, counts, 0, length, tick)
    whole.set_xlabel("day")
    whole.set_ylabel("consumers")
    whole.legend(fontsize=8, loc="upper right", ncols=len(counts) + 1)
    for number, fault in enumerate(faults):
        axis = figure.add_subplot(grid[1, number], sharey=whole)
        around = round((fault.watched - fault.begin) * MARGIN)
        begin, end = max(0, fault.begin - around), min(length, fault.watched + around)
        _draw_lines(axis, written, counts, begin, end, tick)
        _shade_fault(axis, fault, tick)
        axis.set_title(str(fault.kind), fontsize=9)
        axis.tick_params(labelsize=7)
        _shade_fault(whole, fault, tick)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _draw_lines(
    axis: Any, written: Month, counts: Mapping[str, IntArray], begin: int, end: int, tick: float
) -> None:
    days = np.arange(begin, end) * tick / DAY
    for name, replicas in counts.items():
        if name in COLOURS:
            axis.plot(days, replicas[begin:end], color=COLOURS[name], label=name, linewidth=0.9)
    axis.plot(days, written.need[begin:end], color=NEED, label="needed", linewidth=0.9)


def _shade_fault(axis: Any, fault: Fault, tick: float) -> None:
    axis.axvspan(fault.begin * tick / DAY, fault.end * tick / DAY, color="#d0d0d0", zorder=0)
