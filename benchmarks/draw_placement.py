"""The plots of docs/placement.md: a small decision, and the trade-off of moves and consumers.

python benchmarks/draw_placement.py [--folder docs]
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
import matplotlib.pyplot as plt
from harness import result
from one_topic import one_topic

from trimtab.assignor import RandomWalk, get_heuristic, r_score, replay_stream
from trimtab.assignor.analysis.streams.replay import lower_bounds

CAPACITY = 100.0
BLUE, RED, GREY = "#1f77b4", "#d62728", "#b8c4d0"

# A group of four consumers, two partitions each and one with three; then the write rates change.
OWNER = np.array([0, 0, 1, 1, 2, 2, 3, 3, 3], dtype=np.int32)
WRITE_RATE = np.array([72.0, 41.0, 38.0, 24.0, 55.0, 30.0, 21.0, 13.0, 6.0])
EXAMPLES = ("bfd", "mwf", "steady")

DELTAS = (5, 15, 25)
COSTS = (0.02, 0.05, 0.12, 0.25, 0.5, 0.8, 1.25, 2.0, 3.5)
PRESETS = ("tight", "balanced", "calm")
PAPERS = ("bfd", "mbfp", "mbf", "mwfp", "mwf")
SEEDS = (1000, 1001)  # seeds that were not used for tuning


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


def simulate_point(job: tuple[int, str, int], ticks: int) -> tuple[float, float]:
    """Return the consumers above the L2 bound in percent and the mean R of one stream."""
    delta, heuristic, seed = job
    stream = RandomWalk(delta, 200, ticks, CAPACITY).generate_stream(np.random.default_rng(seed))
    done = [
        (tick.consumers, tick.r_score) for tick in replay_stream(get_heuristic(heuristic), stream, CAPACITY)
    ]
    consumers, scores = zip(*done, strict=True)
    bound = sum(lower_bounds(stream, CAPACITY))
    return 100 * (sum(consumers) / bound - 1), float(np.mean(scores))


def simulate_fronts(ticks: int) -> dict[str, dict[str, tuple[float, float]]]:
    """Return each heuristic's point by δ and name, as the mean over the seeds."""
    names = [*PAPERS, *(f"steady:{x}" for x in (*PRESETS, *COSTS))]
    with ProcessPoolExecutor() as pool:
        done = list(pool.map(partial(simulate_point, ticks=ticks), product(DELTAS, names, SEEDS)))
    means = np.array(done).reshape(len(DELTAS), len(names), len(SEEDS), 2).mean(axis=2)
    return {
        str(delta): {name: (float(x), float(y)) for name, (x, y) in zip(names, rows, strict=True)}
        for delta, rows in zip(DELTAS, means, strict=True)
    }


def draw_fronts(path: Path, fronts_by_delta: dict[str, dict[str, tuple[float, float]]]) -> None:
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
    for axis, (delta, points) in zip(axes, fronts_by_delta.items(), strict=True):
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
        axis.set_title(f"random walk, δ = {delta} %", fontsize=9)
        axis.set_xlabel("consumers above the L2 bound, %")
        axis.set_ylim(0, 28)
        axis.margins(x=0.12)
        axis.grid(visible=True, alpha=0.3)
    axes[0].set_ylabel("mean R a tick: load moved, in consumers")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--folder", type=Path, default=Path("docs"))
    parser.add_argument("--ticks", type=int, default=300)
    options = parser.parse_args()
    small = draw_example(options.folder / "placement-example.png")
    fronts_by_delta = simulate_fronts(options.ticks)
    draw_fronts(options.folder / "placement-fronts.png", fronts_by_delta)
    rounded = {
        delta: {
            name: {"over_l2_percent": round(x, 2), "mean_r": round(y, 2)} for name, (x, y) in points.items()
        }
        for delta, points in fronts_by_delta.items()
    }
    result({"example": small, "fronts": rounded})


if __name__ == "__main__":
    main()
