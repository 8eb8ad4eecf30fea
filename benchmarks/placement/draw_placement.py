"""The plots of docs/placement.md: a small decision, and the trade-off of moves and consumers.

The trade-off is drawn for random walks and for the packaged traces, whose windows are spread evenly over the
second half of their time.

python -m benchmarks.placement.draw_placement [--folder docs]
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
import matplotlib.pyplot as plt

from benchmarks.harness import result
from benchmarks.placement.one_topic import one_topic
from trimtab.assignor import RandomWalk, get_heuristic, r_score, replay_stream
from trimtab.assignor.analysis.simulation import SimulationSetup
from trimtab.assignor.analysis.streams.replay import lower_bounds
from trimtab.assignor.analysis.streams.stream import WriteRateStream
from trimtab.cli.simulate.trace_files import list_trace_names
from trimtab.cli.simulate.trace_source import load_windows

CAPACITY = 100.0
BLUE, RED, GREY = "#1f77b4", "#d62728", "#b8c4d0"

# A group of four consumers, two partitions each and one with three; then the write rates change.
OWNER = np.array([0, 0, 1, 1, 2, 2, 3, 3, 3], dtype=np.int32)
WRITE_RATE = np.array([72.0, 41.0, 38.0, 24.0, 55.0, 30.0, 21.0, 13.0, 6.0])
EXAMPLES = ("bfd", "mwf", "steady")

DELTAS = (5, 15, 25)
STREAMS = (*(f"random walk, δ = {delta} %" for delta in DELTAS), *list_trace_names())
COSTS = (0.02, 0.05, 0.12, 0.25, 0.5, 0.8, 1.25, 2.0, 3.5)
PRESETS = ("tight", "balanced", "calm")
PAPERS = ("bfd", "mbfp", "mbf", "mwfp", "mwf")
SEEDS = (1000, 1001)  # of walks; they were not used for tuning
WALK_MAX_R = 28


def draw_example(path: Path) -> dict[str, dict[str, float]]:
    """Draw the loads before and after each heuristic's decision; return the costs."""
    posed = one_topic(WRITE_RATE, OWNER, CAPACITY)
    placements = {name: get_heuristic(name).pack(posed) for name in EXAMPLES}
    figure, axes = plt.subplots(1, 4, figsize=(11, 3.2), sharey=True, layout="constrained")
    draw_stack(axes[0], OWNER, "before: consumer 0 is overloaded")
    figures = {}
    for axis, (name, owner) in zip(axes[1:], placements.items(), strict=True):
        moved = r_score(WRITE_RATE, OWNER, owner, CAPACITY)
        used = len(np.unique(owner))
        draw_stack(axis, owner, f"{name}: {used} consumers, R = {moved:.2f}")
        figures[name] = {"consumers": used, "r": round(moved, 3)}
    axes[0].set_ylabel("write rate, % of a capacity")
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return figures


def draw_stack(axis: Any, owner: np.ndarray, title: str) -> None:
    """Draw each consumer's partitions as a stack; moved ones are red."""
    filled = np.zeros(int(owner.max()) + 1)
    for partition in np.argsort(-WRITE_RATE):
        at = owner[partition]
        colour = GREY if at == OWNER[partition] else RED
        axis.bar(at, WRITE_RATE[partition], bottom=filled[at], color=colour, edgecolor="white")
        middle = filled[at] + WRITE_RATE[partition] / 2
        axis.text(at, middle, f"p{partition}", ha="center", va="center", fontsize=7)
        filled[at] += WRITE_RATE[partition]
    axis.axhline(CAPACITY, color="black", linewidth=0.8, linestyle="--")
    axis.set_title(title, fontsize=9)
    axis.set_xlabel("consumer", fontsize=8)
    axis.set_xticks(range(len(filled)))


@cache
def load_second_half(trace: str, ticks: int) -> tuple[WriteRateStream, ...]:
    """Return as many windows of a trace as there are seeds of a walk."""
    return load_windows(trace, len(SEEDS), ticks, SimulationSetup()).second


def get_stream(name: str, number: int, ticks: int) -> WriteRateStream:
    """Return the walk of a seed, or the window of a trace."""
    if name in list_trace_names():
        return load_second_half(name, ticks)[number]
    delta = DELTAS[STREAMS.index(name)]
    return RandomWalk(delta, 200, ticks, CAPACITY).generate_stream(np.random.default_rng(SEEDS[number]))


def simulate_point(job: tuple[str, str, int], ticks: int) -> tuple[float, float]:
    """Return the consumers above the L2 bound in percent and the mean R of one stream."""
    name, heuristic, number = job
    stream = get_stream(name, number, ticks)
    done = [
        (tick.consumers, tick.r_score) for tick in replay_stream(get_heuristic(heuristic), stream, CAPACITY)
    ]
    consumers, scores = zip(*done, strict=True)
    bound = sum(lower_bounds(stream, CAPACITY))
    return 100 * (sum(consumers) / bound - 1), float(np.mean(scores))


def simulate_fronts(ticks: int, jobs: int | None) -> dict[str, dict[str, tuple[float, float]]]:
    """Return each heuristic's point by stream and name, as the mean over seeds or windows."""
    names = [*PAPERS, *(f"steady:{x}" for x in (*PRESETS, *COSTS))]
    numbers = range(len(SEEDS))
    with ProcessPoolExecutor(jobs) as pool:
        done = list(pool.map(partial(simulate_point, ticks=ticks), product(STREAMS, names, numbers)))
    means = np.array(done).reshape(len(STREAMS), len(names), len(SEEDS), 2).mean(axis=2)
    return {
        stream: {name: (float(x), float(y)) for name, (x, y) in zip(names, rows, strict=True)}
        for stream, rows in zip(STREAMS, means, strict=True)
    }


def draw_fronts(path: Path, fronts: dict[str, dict[str, tuple[float, float]]]) -> None:
    """Draw a panel for each stream: walks in the first row, traces in the second."""
    figure, grid = plt.subplots(2, len(DELTAS), figsize=(12, 7.4), layout="constrained")
    axes = grid.flatten()
    for axis in axes[len(fronts) :]:
        axis.set_axis_off()
    for axis, (stream, points) in zip(axes[: len(fronts)], fronts.items(), strict=True):
        curve = np.array([points[f"steady:{cost}"] for cost in COSTS])
        axis.plot(*curve.T, color=BLUE, marker=".", label="steady:λ")
        for name, (x, y) in points.items():
            label = name.removeprefix("steady:")
            if label in PRESETS:
                axis.plot(x, y, "o", color=BLUE)
            elif name in PAPERS:
                axis.plot(x, y, "s", color=RED, markersize=4)
            else:
                continue
            axis.annotate(label, (x, y), fontsize=8, xytext=(4, 4), textcoords="offset points")
        axis.set_title(stream, fontsize=9)
        axis.set_xlabel("consumers above the L2 bound, %")
        axis.margins(x=0.12, y=0.1)
        axis.set_ylim(0, None if stream in list_trace_names() else WALK_MAX_R)
        axis.grid(visible=True, alpha=0.3)
    for row in grid:
        row[0].set_ylabel("mean R a tick: load moved, in consumers")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--folder", type=Path, default=Path("docs"))
    parser.add_argument("--ticks", type=int, default=300)
    parser.add_argument("--jobs", type=int)
    options = parser.parse_args()
    small = draw_example(options.folder / "placement-example.png")
    fronts = simulate_fronts(options.ticks, options.jobs)
    draw_fronts(options.folder / "placement-fronts.png", fronts)
    rounded = {
        stream: {
            name: {"over_l2_percent": round(x, 2), "mean_r": round(y, 4)} for name, (x, y) in points.items()
        }
        for stream, points in fronts.items()
    }
    result({"example": small, "fronts": rounded})


if __name__ == "__main__":
    main()
