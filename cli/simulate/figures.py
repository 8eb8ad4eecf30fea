"""Plots of a report as SVG, on a transparent ground and legible on a light and a dark page."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from io import StringIO
from typing import Any, Final, NamedTuple, cast

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from trimtab.assignor.analysis.simulation import RunSummary, SimulationRun, parse_contender
from trimtab.assignor.model import FloatArray
from trimtab.cli.simulate.findings import SimulationFindings

GRAY: Final = "#808a9a"
SERIES_COLOURS: Final = ("#3584e4", "#d9730d", "#2e9e62", "#9a6bdb", "#d6497f")
SERIES_DASHES: Final = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))  # for readers who see no colours
MATPLOTLIB_STYLE: Final[Mapping[str, Any]] = {
    "svg.fonttype": "none",  # text stays text: searchable, and in the page's font
    "svg.hashsalt": "trimtab",  # equal figures give equal bytes
    "axes.titlelocation": "left",
    "grid.alpha": 0.3,
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), GRAY),
    **dict.fromkeys(("axes.edgecolor", "axes.titlecolor", "grid.color"), GRAY),
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), "none"),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    **dict.fromkeys(("axes.axisbelow", "axes.grid"), True),
}
MOVING_MEAN_TICKS: Final = 10


class CostPoint(NamedTuple):
    """A heuristic as a point of two costs."""

    name: str
    x: float
    y: float


def select_highlights(findings: SimulationFindings) -> list[str]:
    """Return the highlighted heuristics: recommended, Pareto front, best of the others."""
    # at most five: people do not tell more colours apart
    dots = [CostPoint(n, s.consumer_hours, s.late_percent) for n, s in findings.mean_summaries.items()]
    packers = [d for d in dots if findings.mean_summaries[d.name].cbs_percent is not None]
    theirs = sorted((d for d in dots if not parse_contender(d.name).is_trimtab_setting), key=lambda d: d.y)
    first = [findings.recommendation.chosen.name] if findings.recommendation else []
    ours = [d for d in pareto_front(packers) if d.name not in first]
    room = len(SERIES_COLOURS) - len(first) - bool(theirs)
    spread = np.unique(np.linspace(0, len(ours) - 1, max(room, 1)).astype(int)).tolist()
    return [*first, *(ours[n].name for n in spread if ours), *(d.name for d in theirs[:1])]


def pareto_front(dots: Sequence[CostPoint]) -> list[CostPoint]:
    """Return the Pareto front of two costs."""
    best: list[CostPoint] = []
    for dot in sorted(dots, key=lambda d: (d.x, d.y)):
        if not best or dot.y < best[-1].y:
            best.append(dot)
    return best


def draw_trade_off(findings: SimulationFindings, shown: Sequence[str]) -> str:
    """Plot consumers against moved load and late traffic; the highlighted heuristics have names."""
    means = findings.mean_summaries.items()
    with _open_figure(1, 2, (11, 4.6)) as (figure, (left, right)):
        moved = [CostPoint(n, s.mean_consumers, s.mean_r) for n, s in means if s.cbs_percent is not None]
        _draw_points(left, moved, shown)
        left.set(title="Moved load against consumers", xlabel="mean consumers")
        left.set_ylabel("mean R (consumers' worth moved a tick)")
        right.set_yscale("symlog", linthresh=0.1)
        right.yaxis.set_major_formatter("{x:g}")
        _draw_points(right, [CostPoint(n, s.consumer_hours, s.late_percent) for n, s in means], shown)
        right.axhline(findings.late_limit_percent, color=GRAY, linestyle=":", linewidth=1)
        right.set_ylim(bottom=-0.05)  # room for points at 0
        right.set(title="Late traffic against consumer-hours", xlabel="consumer-hours")
        right.set_ylabel("late traffic, %")
        return _to_svg(figure)


def draw_late_traffic(findings: SimulationFindings, shown: Sequence[str]) -> str:
    """Plot late traffic as bars, ascending."""
    rows = sorted(findings.mean_summaries.items(), key=lambda item: -item[1].late_percent)
    with _open_figure(1, 1, (11, 1.2 + 0.27 * len(rows))) as (figure, (ax,)):
        shares = [s.late_percent for _, s in rows]
        bars = ax.barh([n for n, _ in rows], shares, color=[_colour(name, shown) for name, _ in rows])
        ax.bar_label(bars, [f"{share:.2f} %" for share in shares], padding=4)
        ax.axvline(findings.late_limit_percent, color=GRAY, linestyle=":", linewidth=1)
        ax.set_xlabel(f"late traffic, % of bytes (dotted: the limit of {findings.late_limit_percent:g} %)")
        ax.grid(axis="y", visible=False)
        return _to_svg(figure)


def draw_timeline(findings: SimulationFindings, shown: Sequence[str]) -> str:
    """Plot consumers, moved load and lag of the first stream over time."""
    runs: Mapping[str, SimulationRun] = findings.runs[0]  # a mean over streams would hide each one's peaks
    load = np.nansum(findings.streams[0].rates, axis=1) / findings.setup.capacity
    hours = np.arange(len(load)) * findings.setup.tick / 3600
    with _open_figure(3, 1, (11, 8.2)) as (figure, (top, middle, bottom)):
        top.fill_between(hours, load, color=GRAY, alpha=0.2, linewidth=0, label="load ÷ capacity")
        for name, dashes in zip(shown, SERIES_DASHES, strict=False):
            run = runs[name]
            look: dict[str, Any] = {"color": _colour(name, shown), "linewidth": 1.4, "linestyle": dashes}
            top.step(hours, run.consumers, where="post", label=name, **look)
            middle.plot(hours, moving_mean(run.r_score), **look)
            bottom.plot(hours, moving_mean(run.mean_lag), **look)
        bottom.set_yscale("symlog", linthresh=1)
        bottom.yaxis.set_major_formatter("{x:g}")
        bottom.axhline(findings.setup.late, color=GRAY, linestyle=":", linewidth=1)
        bottom.set_xlabel("hours")
        mean = f"mean of {MOVING_MEAN_TICKS} ticks"
        labels = ("consumers", f"R (consumers' worth), {mean}", f"lag of what arrives, s, {mean}")
        for ax, label in zip((top, middle, bottom), labels, strict=True):
            ax.set(ylabel=label)
            ax.set_ylim(bottom=0)
            ax.margins(x=0)
        figure.legend(*top.get_legend_handles_labels(), loc="outside upper left", ncols=6)
        return _to_svg(figure)


def moving_mean(values: FloatArray) -> FloatArray:
    """Return the moving mean over up to `MOVING_MEAN_TICKS` values."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    begin = np.maximum(np.arange(len(values)) + 1 - MOVING_MEAN_TICKS, 0)
    end = np.arange(1, len(values) + 1)
    mean: FloatArray = (total[end] - total[begin]) / (end - begin)
    return mean


@contextmanager
def _open_figure(rows: int, columns: int, size: tuple[float, float]) -> Generator[tuple[Figure, Any]]:
    """Give a figure and its axes; the style holds within the block only."""
    with mpl.rc_context(cast("Any", MATPLOTLIB_STYLE)):
        figure = Figure(figsize=size, layout="constrained")  # not pyplot, which keeps figures open
        yield figure, figure.subplots(rows, columns, squeeze=False, sharex=columns == 1).flat


def _to_svg(figure: Figure) -> str:
    text = StringIO()
    # without date and version: equal figures give equal bytes
    figure.savefig(text, format="svg", metadata=cast("Any", {"Date": None, "Creator": None}))
    drawn = text.getvalue()
    return drawn[drawn.index("<svg") :]  # the XML header has no place within HTML


def _draw_points(ax: Any, dots: Sequence[CostPoint], shown: Sequence[str]) -> None:
    best = pareto_front(dots)
    ax.plot([d.x for d in best], [d.y for d in best], color=GRAY, alpha=0.4, linewidth=2, zorder=1)
    for dot in dots:
        marker = "o" if parse_contender(dot.name).is_trimtab_setting else "X"
        ax.scatter(dot.x, dot.y, s=42, color=_colour(dot.name, shown), marker=marker, zorder=3)
        if dot.name in shown or len(dots) <= len(SERIES_COLOURS):
            ax.annotate(dot.name, (dot.x, dot.y), xytext=(7, 4), textcoords="offset points")
    ax.margins(0.12)


def _colour(name: str, shown: Sequence[str]) -> str:
    return SERIES_COLOURS[shown.index(name)] if name in shown else GRAY


def describe_timeline(findings: SimulationFindings, shown: Sequence[str]) -> str:
    """Return the alternative text of the timelines."""

    def describe(name: str, summary: RunSummary) -> str:
        return (
            f"{name}: {summary.mean_consumers:.0f} consumers on average, "
            f"R {summary.mean_r:.1f} a tick, mean lag {summary.mean_lag_s:.1f} s"
        )

    return "; ".join(describe(name, findings.mean_summaries[name]) for name in shown)
