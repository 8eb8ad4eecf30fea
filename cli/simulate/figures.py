"""Plots of a report as SVG that inherits its colours from the page, for light and dark mode."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from io import StringIO
from typing import Any, Final, NamedTuple, cast

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter
from matplotlib.transforms import Bbox

from trimtab.assignor.analysis.simulation import RunSummary, SimulationRun, parse_contender
from trimtab.assignor.model import FloatArray
from trimtab.cli.simulate.findings import SimulationFindings

# stand-in colours: the finished SVG has CSS variables in their place
INK: Final = "#010101"
MUTED: Final = "#020202"
GRID: Final = "#030303"
AREA: Final = "#040404"
SERIES_COLOURS: Final = ("#0a0001", "#0a0002", "#0a0003", "#0a0004", "#0a0005")
CSS_VARIABLES: Final[Mapping[str, str]] = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--grid)",
    AREA: "var(--area)",
    **{colour: f"var(--series-{n})" for n, colour in enumerate(SERIES_COLOURS, start=1)},
}
SERIES_DASHES: Final = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))  # for readers who see no colours
MATPLOTLIB_STYLE: Final[Mapping[str, Any]] = {
    "svg.fonttype": "none",  # text stays text: searchable, and in the page's font
    "svg.hashsalt": "trimtab",  # equal figures give equal bytes
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), INK),
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), MUTED),
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), "none"),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    **dict.fromkeys(("axes.axisbelow", "axes.grid"), True),
}
PERCENT_TICKS: Final = (0, 0.1, 1, 10, 100)
LAG_TICKS_S: Final = (0, 1, 10, 60, 600, 3600, 36000)
MOVING_MEAN_TICKS: Final = 10
LABEL_OFFSETS: Final = tuple(
    (across, up) for up in (0, 9, -9, 18, -18, 27, -27) for across in (7, -7, 0) if across or up
)
"""Candidate label offsets in points; the first free one is used."""


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
    """Plot consumers against moved load and late traffic."""
    with _open_figure(1, 2, (11, 4.6)) as (figure, (left, right)):
        packers = {n: s for n, s in findings.mean_summaries.items() if s.cbs_percent is not None}
        left.set_title("Moved load against consumers")
        left.set_ylabel("mean R (consumers' worth moved a tick)")
        _draw_points(left, [CostPoint(n, s.mean_consumers, s.mean_r) for n, s in packers.items()], shown)
        left.set_xlabel("mean consumers")
        right.set_title("Late traffic against consumer-hours")
        right.set_yscale("symlog", linthresh=0.1)
        right.set_ylabel("late traffic, %")
        _set_ticks(right.yaxis, PERCENT_TICKS)
        hours = [CostPoint(n, s.consumer_hours, s.late_percent) for n, s in findings.mean_summaries.items()]
        _draw_headrooms(right, findings, shown)
        _draw_points(right, hours, shown)
        right.set_xlabel("consumer-hours")
        right.axhline(findings.late_limit_percent, color=INK, linestyle=":", linewidth=1)
        return _to_svg(figure)


def draw_late_traffic(findings: SimulationFindings, shown: Sequence[str]) -> str:
    """Plot late traffic as bars, ascending."""
    rows = sorted(findings.mean_summaries.items(), key=lambda item: -item[1].late_percent)
    with _open_figure(1, 1, (11, 1.2 + 0.27 * len(rows))) as (figure, (ax,)):
        shares = [s.late_percent for _, s in rows]
        colours = [_colour(name, shown) for name, _ in rows]
        bars = ax.barh([n for n, _ in rows], shares, color=colours, height=0.72)
        ax.bar_label(bars, [f"{share:.2f} %" for share in shares], padding=4)
        ax.axvline(findings.late_limit_percent, color=INK, linestyle=":", linewidth=1)
        ax.set_xlabel(f"late traffic, % of bytes (dotted: the limit of {findings.late_limit_percent:g} %)")
        ax.grid(axis="y", visible=False)
        ax.set_xlim(0, max(*shares, findings.late_limit_percent, 0.1) * 1.1)
        ax.margins(y=0.02)
        return _to_svg(figure)


def draw_timeline(findings: SimulationFindings, shown: Sequence[str]) -> str:
    """Plot consumers, moved load and lag of the first stream over time."""
    runs: Mapping[str, SimulationRun] = findings.runs[0]  # a mean over streams would hide each one's peaks
    load = np.nansum(findings.streams[0].rates, axis=1) / findings.setup.capacity
    hours = np.arange(len(load)) * findings.setup.tick / 3600
    with _open_figure(3, 1, (11, 8.2)) as (figure, (top, middle, bottom)):
        top.fill_between(hours, load, color=AREA, linewidth=0, label="load ÷ capacity")
        for name in shown:
            run = runs[name]
            look: dict[str, Any] = {"color": _colour(name, shown), "linewidth": 1.4}
            look["linestyle"] = SERIES_DASHES[shown.index(name)]
            top.step(hours, run.consumers, where="post", label=name, **look)
            middle.plot(hours, moving_mean(run.r_score), **look)
            bottom.plot(hours, moving_mean(run.mean_lag), **look)
        top.set_title("Consumers")
        top.set_ylabel("consumers")
        middle.set_title(f"Moved load, mean of {MOVING_MEAN_TICKS} ticks")
        middle.set_ylabel("R (consumers' worth)")
        bottom.set_title(f"Lag of what arrives, mean of {MOVING_MEAN_TICKS} ticks")
        bottom.set_yscale("symlog", linthresh=1)
        _set_ticks(bottom.yaxis, LAG_TICKS_S)
        bottom.set_ylabel("lag, seconds")
        bottom.axhline(findings.setup.late, color=INK, linestyle=":", linewidth=1)
        bottom.set_xlabel("hours")
        for ax in (top, middle, bottom):
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
        FigureCanvasAgg(figure)  # labels are placed by their rendered size
        yield figure, figure.subplots(rows, columns, squeeze=False, sharex=columns == 1).flat


def _to_svg(figure: Figure) -> str:
    text = StringIO()
    # without date and version: equal figures give equal bytes
    figure.savefig(text, format="svg", metadata=cast("Any", {"Date": None, "Creator": None}))
    drawn = text.getvalue()
    drawn = drawn[drawn.index("<svg") :]  # the XML header has no place within HTML
    for colour, variable in CSS_VARIABLES.items():
        drawn = drawn.replace(colour, variable)
    return drawn


def _draw_points(ax: Any, dots: Sequence[CostPoint], shown: Sequence[str]) -> None:
    best = pareto_front(dots)
    ax.plot([d.x for d in best], [d.y for d in best], color=GRID, linewidth=2, zorder=1)
    for dot in dots:
        marker = "o" if parse_contender(dot.name).is_trimtab_setting else "X"
        ax.scatter(dot.x, dot.y, s=42, color=_colour(dot.name, shown), marker=marker, zorder=3)
    ax.margins(0.12)
    _label(ax, dots)


def _draw_headrooms(ax: Any, findings: SimulationFindings, shown: Sequence[str]) -> None:
    for name in shown:
        tried = [c.summary for c in findings.candidates if c.name == name]
        if len(tried) > 1:
            xs, ys = [s.consumer_hours for s in tried], [s.late_percent for s in tried]
            look = {"color": _colour(name, shown), "linewidth": 0.9, "alpha": 0.8}
            ax.plot(xs, ys, marker=".", markersize=4, zorder=2, **look)


def _label(ax: Any, dots: Sequence[CostPoint]) -> None:
    """Place each label beside its point without overlaps."""
    ax.figure.canvas.draw()  # fixes the transforms that the next lines use
    renderer = ax.figure.canvas.get_renderer()
    taken = [_box(ax.transData.transform((d.x, d.y)), 4) for d in dots]
    for dot in sorted(dots, key=lambda d: (d.x, d.y)):
        text = ax.annotate(
            dot.name, (dot.x, dot.y), xytext=LABEL_OFFSETS[0], textcoords="offset points", fontsize=8.5
        )
        boxes = {side: _place(text, side).get_window_extent(renderer) for side in LABEL_OFFSETS}
        side = min(LABEL_OFFSETS, key=lambda s: _overlaps(boxes[s], taken, ax.bbox))
        _place(text, side)
        taken.append(boxes[side])


def _place(text: Any, side: tuple[int, int]) -> Any:
    across = {1: "left", 0: "center", -1: "right"}[int(np.sign(side[0]))]
    text.set(position=side, horizontalalignment=across, verticalalignment="center")
    return text


def _overlaps(box: Any, taken: Sequence[Any], frame: Any) -> int:
    outside = bool(box.x0 < frame.x0 or box.x1 > frame.x1)
    return sum(bool(box.overlaps(other)) for other in taken) + 3 * outside  # a cut label is the worst


def _box(point: Any, radius: float) -> Any:
    x, y = point
    return Bbox.from_extents(x - radius, y - radius, x + radius, y + radius)


def _set_ticks(axis: Any, ticks: Sequence[float]) -> None:
    axis.set_major_locator(FixedLocator(list(ticks)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))  # a log axis would write 10⁻¹


def _colour(name: str, shown: Sequence[str]) -> str:
    return SERIES_COLOURS[shown.index(name)] if name in shown else MUTED


def describe_timeline(findings: SimulationFindings, shown: Sequence[str]) -> str:
    """Return the alternative text of the timelines."""

    def describe(name: str, summary: RunSummary) -> str:
        return (
            f"{name}: {summary.mean_consumers:.0f} consumers on average, "
            f"R {summary.mean_r:.1f} a tick, mean lag {summary.mean_lag_s:.1f} s"
        )

    return "; ".join(describe(name, findings.mean_summaries[name]) for name in shown)
