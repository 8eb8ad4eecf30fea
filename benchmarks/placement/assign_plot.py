"""The plot of bench_assign: CPU time by scene at the largest common size, and Trimtab's growth."""

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

ENDING = "_wire_ms"
OURS = "#1f77b4"
THEIRS = "#b0b0b0"


def draw_scenes(path: Path, rows: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Draw CPU ms from bytes to bytes: all peers at the largest common size, Trimtab at every size."""
    shared = [size for size, row in rows.items() if len(_read_times(row["join"])) > 1]
    figure, axes = plt.subplots(1, 4, figsize=(15, 4), layout="constrained")
    if shared:
        for axis, scene in zip(axes, rows[shared[-1]], strict=False):
            _draw_bars(axis, f"{shared[-1]}: {scene}", rows[shared[-1]][scene])
    _draw_growth(axes[3], rows)
    figure.suptitle("bytes in, bytes out: CPU ms, both rounds where a move needs two")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _read_times(cells: dict[str, Any]) -> dict[str, float | None]:
    """Return the time of each peer; None if it exceeded the limit.

    A cooperative peer needs the second round only if a partition moves between remaining members.
    """
    names = [k.removesuffix(ENDING) for k in cells if k.endswith(ENDING) and "_second" not in k]
    return {name: _read_time(cells, name) for name in names}


def _read_time(cells: dict[str, Any], name: str) -> float | None:
    first: float | None = cells[name + ENDING]
    if first is None or not cells[f"{name}_moves"]:
        return first
    second: float = cells.get(f"{name}_second{ENDING}", 0)
    return first + second


def _draw_bars(axis: Any, title: str, cells: dict[str, Any]) -> None:
    times = _read_times(cells)
    longest = max((t for t in times.values() if t is not None), default=1.0)
    names = list(times)[::-1]
    widths = [longest * 1.2 if times[n] is None else times[n] for n in names]
    colours = [OURS if n.startswith("trimtab") else THEIRS for n in names]
    bars = axis.barh(names, widths, color=colours)
    labels = ["too long" if times[n] is None else f"{times[n]:,.3g}" for n in names]
    axis.bar_label(bars, labels, padding=2, fontsize=7)
    axis.margins(x=0.25)
    axis.tick_params(labelsize=7)
    axis.set_title(title, fontsize=9)


def _draw_growth(axis: Any, rows: dict[str, dict[str, dict[str, Any]]]) -> None:
    for scene in ("fresh", "join", "leave"):
        points = [
            (int(size.split("x")[0]), ms)
            for size, row in rows.items()
            if (ms := _read_times(row[scene]).get("trimtab")) is not None
        ]
        if points:
            axis.plot(*zip(*sorted(points), strict=True), marker="o", label=scene)
            axis.legend(fontsize=7)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("partitions (members: a hundredth)", fontsize=8)
    axis.set_title("trimtab's growth", fontsize=9)
    axis.grid(visible=True, alpha=0.3)
