"""Plot of a demo run: replicas, load and capacity, backlog and R-score over time."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from trimtab.cli.demo.group_watcher import DemoSnapshot
from trimtab.cli.demo.scenario import DEMO_CONSUMER_CAPACITY
from trimtab.cli.demo.view import DemoHistory

EVENT_COLOURS: Final = {"killed": "tab:red", "restart": "tab:purple"}
"""Marked events and their colours."""


def save_picture(history: DemoHistory, title: str, file: Path) -> None:
    """Save the plot as PNG. Raises ModuleNotFoundError without matplotlib."""
    import matplotlib as mpl  # noqa: PLC0415 - an optional extra, and slow to load

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the choice of the backend

    figure, axes = plt.subplots(
        4, 1, sharex=True, figsize=(10, 9), height_ratios=[3, 3, 2, 2], layout="constrained"
    )
    snapshots = history.snapshots
    times = [m.at for m in snapshots]
    _plot_replicas(axes[0], times, snapshots)
    _plot_load(axes[1], times, snapshots)
    _plot_backlog(axes[2], times, snapshots)
    _plot_moves(axes[3], snapshots)
    for ax in axes:
        _mark_events(ax, history, named=ax is axes[0])
        ax.grid(alpha=0.3)
        ax.margins(x=0.01)
    axes[-1].set_xlabel("seconds")
    figure.suptitle(title)
    figure.savefig(file, dpi=110)
    plt.close(figure)


def _plot_replicas(ax: Any, times: Sequence[float], snapshots: Sequence[DemoSnapshot]) -> None:
    desired = [m.numbers.desired_replicas or 0 for m in snapshots]
    ax.step(times, desired, where="post", color="tab:gray", linestyle="--", label="desired")
    readers = [m.reader_count for m in snapshots]
    ax.step(times, readers, where="post", color="tab:blue", linewidth=2, label="reading")
    ax.set_ylabel("consumers")
    ax.yaxis.get_major_locator().set_params(integer=True)
    ax.set_ylim(bottom=0)
    ax.legend(loc="upper left")


def _plot_load(ax: Any, times: Sequence[float], snapshots: Sequence[DemoSnapshot]) -> None:
    capacity = [m.reader_count * DEMO_CONSUMER_CAPACITY / 1e6 for m in snapshots]
    ax.fill_between(times, capacity, step="post", color="tab:blue", alpha=0.15, label="capacity")
    written = [(m.numbers.write_rate or 0.0) / 1e6 for m in snapshots]
    ax.plot(times, written, color="tab:orange", linewidth=2, label="write speed")
    ax.set_ylabel("MB/s")
    ax.set_ylim(bottom=0)
    ax.legend(loc="upper left")


def _plot_backlog(ax: Any, times: Sequence[float], snapshots: Sequence[DemoSnapshot]) -> None:
    backlog = [(m.numbers.backlog_bytes or 0.0) / 1e6 for m in snapshots]
    ax.fill_between(times, backlog, color="tab:green", alpha=0.4)
    ax.set_ylabel("backlog, MB")
    ax.set_ylim(bottom=0)


def _plot_moves(ax: Any, snapshots: Sequence[DemoSnapshot]) -> None:
    moved = [(m.at, m.r_score) for m in snapshots if m.moved_bytes_per_s]
    ax.bar([at for at, _ in moved], [r for _, r in moved], width=1.5, color="tab:brown")
    ax.set_ylabel("R-score")
    ax.set_ylim(bottom=0)


def _mark_events(ax: Any, history: DemoHistory, *, named: bool) -> None:
    for at, what, _ in history.events:
        if what in EVENT_COLOURS:
            ax.axvline(at, color=EVENT_COLOURS[what], linestyle=":", linewidth=1.5)
            if named:
                ax.annotate(
                    what,
                    (at, 0.97),
                    xycoords=("data", "axes fraction"),
                    rotation=90,
                    va="top",
                    ha="right",
                    color=EVENT_COLOURS[what],
                )
