"""The plot of `bench_queues.py`: throughput and latency by the number of workers."""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

TICKS: Final = (5, 10, 20, 50, 100, 200)
"""Tick labels of the latency axis, in ms."""


def draw_results(results: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Plot messages/s (top) and latency (bottom), a column per message size."""
    import matplotlib as mpl  # noqa: PLC0415 - only with --plot

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415 - as above

    sizes = sorted({f["size"] for f in results})
    counts = sorted({f["workers"] for f in results})
    kinds = list(dict.fromkeys(f["kind"] for f in results))
    figure, axes = plt.subplots(
        2, len(sizes), figsize=(4.6 * len(sizes), 6.4), layout="constrained", squeeze=False
    )
    for column, size in enumerate(sizes):
        for kind in kinds:
            runs = [f for f in results if (f["kind"], f["size"]) == (kind, size)]
            runs.sort(key=itemgetter("workers"))
            above, below = axes[0][column], axes[1][column]
            (line,) = above.plot(counts, [f["messages_s"] / 1000 for f in runs], "o-", label=kind)
            below.plot(counts, [f["p50_ms"] for f in runs], "o-", color=line.get_color())
            below.plot(counts, [f["p99_ms"] for f in runs], "o--", color=line.get_color())
        axes[0][column].set(title=f"messages of {size} bytes", ylabel="1,000 messages/s", ylim=0)
        axes[1][column].set(xlabel="workers", ylabel="latency, ms: p50 (line), p99 (dashes)", yscale="log")
        axes[1][column].set_yticks(TICKS, [str(tick) for tick in TICKS])
        axes[1][column].minorticks_off()
        for row in (0, 1):
            axes[row][column].set_xscale("log", base=2)
            axes[row][column].set_xticks(counts, [str(c) for c in counts])
            axes[row][column].grid(alpha=0.3)
    axes[0][0].legend()
    figure.savefig(path, dpi=110)
