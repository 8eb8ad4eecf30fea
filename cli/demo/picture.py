"""Plot of a demo run: replicas, load and capacity, backlog and R-score over time."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from trimtab.cli.demo.group_watcher import DemoSnapshot
from trimtab.cli.demo.scenario import DEMO_CONSUMER_CAPACITY
from trimtab.cli.demo.view import DemoHistory

EVENT_COLOURS: Final = {"killed": "tab:red", "restart": "tab:purple"}  # other events are not marked


def save_picture(history: DemoHistory, title: str, file: Path) -> None:
    """Save the plot as PNG. Raises ModuleNotFoundError without matplotlib."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - an optional extra

    # without pyplot, which would choose a backend with windows and keep the figure
    figure: Any = Figure(figsize=(10, 9), layout="constrained")
    axes = figure.subplots(4, 1, sharex=True, height_ratios=[3, 3, 2, 2])
    times = [s.at for s in history.snapshots]
    _plot_replicas(axes[0], times, history.snapshots)
    _plot_load(axes[1], times, history.snapshots)
    _plot_backlog(axes[2], times, history.snapshots)
    _plot_moves(axes[3], history.snapshots)
    for ax in axes:
        _mark_events(ax, history, named=ax is axes[0])
        ax.grid(alpha=0.3)
        ax.margins(x=0.01)
        ax.set_ylim(bottom=0)
    axes[-1].set_xlabel("seconds")
    figure.suptitle(title)
    figure.savefig(file, dpi=110)


def _plot_replicas(ax: Any, times: Sequence[float], snapshots: Sequence[DemoSnapshot]) -> None:
    desired = [s.numbers.desired_replicas or 0 for s in snapshots]
    ax.step(times, desired, where="post", color="tab:gray", linestyle="--", label="desired")
    readers = [s.reader_count for s in snapshots]
    ax.step(times, readers, where="post", color="tab:blue", linewidth=2, label="reading")
    ax.set_ylabel("consumers")
    ax.yaxis.get_major_locator().set_params(integer=True)
    ax.legend(loc="upper left")


def _plot_load(ax: Any, times: Sequence[float], snapshots: Sequence[DemoSnapshot]) -> None:
    capacity = [s.reader_count * DEMO_CONSUMER_CAPACITY / 1e6 for s in snapshots]
    ax.fill_between(times, capacity, step="post", color="tab:blue", alpha=0.15, label="capacity")
    written = [(s.numbers.write_rate or 0.0) / 1e6 for s in snapshots]
    ax.plot(times, written, color="tab:orange", linewidth=2, label="write rate")
    ax.set_ylabel("MB/s")
    ax.legend(loc="upper left")


def _plot_backlog(ax: Any, times: Sequence[float], snapshots: Sequence[DemoSnapshot]) -> None:
    backlog = [(s.numbers.backlog_bytes or 0.0) / 1e6 for s in snapshots]
    ax.fill_between(times, backlog, color="tab:green", alpha=0.4)
    ax.set_ylabel("backlog, MB")


def _plot_moves(ax: Any, snapshots: Sequence[DemoSnapshot]) -> None:
    moved = [(s.at, s.r_score) for s in snapshots if s.moved_bytes_per_s]
    ax.bar([at for at, _ in moved], [score for _, score in moved], width=1.5, color="tab:brown")
    ax.set_ylabel("R-score")


def _mark_events(ax: Any, history: DemoHistory, *, named: bool) -> None:
    for at, kind, _ in history.events:
        colour = EVENT_COLOURS.get(kind)
        if colour is None:
            continue
        ax.axvline(at, color=colour, linestyle=":", linewidth=1.5)
        if named:
            place = {"xycoords": ("data", "axes fraction"), "rotation": 90, "va": "top", "ha": "right"}
            ax.annotate(kind, (at, 0.97), color=colour, **place)
