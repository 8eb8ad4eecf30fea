"""Latency from production to handling by heuristic, under a changing load with rebalances.

The write rates of 32 partitions follow a random walk (the paper's, cubed, so that few partitions
dominate), scaled to a constant share of the total capacity. Every heuristic runs with the same number
of throttled consumers and the same load on the same embedded broker, one after the other. Trimtab's
heuristics are led by the sidecar, which measures the rates and publishes a new plan when a consumer
is overloaded, at most every few seconds; `range` is Kafka's assignor in a confluent-kafka consumer.
With --match the count-based heuristics (`sticky`, `range`) get more consumers until their p99 is at
most twice that of `steady`.

A record that is unhandled at the end counts with its age.
"""

import json
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import sleep, time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import harness
from benchmarks.consumer import latency_plot
from benchmarks.stream import TICK, WriteRates, produce_stream
from trimtab.assignor.analysis.streams.generators import RandomWalk

HOST = "benchmarks.consumer.latency_host"
HEURISTICS = ("steady", "mwf", "bfd", "lag-aware", "sticky", "range")
COUNT_BASED = ("sticky", "range")
MORE = (1.25, 1.5, 1.75, 2.0)
"""Factors on the number of consumers that --match tries for the count-based heuristics."""
TAIL = 10.0
"""Seconds after the last record until the ages of unhandled records are taken."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a run: each record's seconds from production to handling, and its size in bytes."""

    heuristic: str
    consumers: int
    latency: np.ndarray[tuple[int], np.dtype[np.float64]]
    size: np.ndarray[tuple[int], np.dtype[np.float64]]
    unhandled: int

    def percentile(self, percent: float) -> float:
        """Return a percentile of the latency in seconds."""
        return float(np.percentile(self.latency, percent))

    def late(self, limit: float) -> float:
        """Return the share of the bytes handled later than `limit` seconds."""
        return float(self.size[self.latency > limit].sum() / self.size.sum())


def main() -> None:
    options = _parse_arguments()
    write_rates = generate_write_rates(options)
    with harness.broker(options.bootstrap) as bootstrap:
        runs = [
            run_heuristic(bootstrap, h, options.consumers, write_rates, options) for h in options.heuristics
        ]
        matched = match_consumer_hours(bootstrap, runs, write_rates, options) if options.match else {}
    print_table(runs, options)
    if options.plot:
        latency_plot.draw_runs(options.plot, runs[: len(options.heuristics)])
        print(f"plot: {options.plot}")
    harness.result(_collect_result(runs, matched, options))


def _parse_arguments() -> Namespace:
    arguments = harness.parser(__doc__ or "")
    arguments.add_argument("--heuristics", nargs="+", choices=HEURISTICS, default=HEURISTICS)
    arguments.add_argument("--consumers", type=int, default=8)
    arguments.add_argument("--partitions", type=int, default=32)
    arguments.add_argument("--capacity", type=float, default=50_000, help="bytes/s of a consumer")
    arguments.add_argument("--fill", type=float, default=0.75, help="share of the capacity to write")
    arguments.add_argument("--size", type=int, default=500, help="bytes of a record")
    arguments.add_argument("--seconds", type=float, default=30, help="measured seconds per run")
    arguments.add_argument("--settle", type=float, default=15, help="settling seconds per run")
    arguments.add_argument("--late", type=float, default=2, help="latency limit, seconds")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument(
        "--match", action="store_true", help="find the consumers that count-based heuristics need"
    )
    arguments.add_argument("--plot", type=Path, help="write the plot to this file")
    return arguments.parse_args()


def generate_write_rates(options: Namespace) -> WriteRates:
    """Return the load; no partition exceeds 90 % of a consumer's capacity."""
    ticks = int((options.settle + options.seconds) / TICK) + 1
    walk = RandomWalk(10.0, options.partitions, ticks, capacity=1.0).generate_stream(
        np.random.default_rng(options.seed)
    )
    skewed = walk.rates**3
    total = options.fill * options.consumers * options.capacity
    scaled = skewed / skewed.sum(axis=1, keepdims=True) * total
    return np.minimum(scaled, 0.9 * options.capacity)


def run_heuristic(
    bootstrap: str, heuristic: str, consumers: int, write_rates: WriteRates, options: Namespace
) -> Figures:
    """Measure one heuristic."""
    topic = harness.new_topic(bootstrap, options.partitions)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "handled"
        with (
            _run_consumers(bootstrap, topic, heuristic, consumers, options.capacity, file),
            _run_sidecar(bootstrap, topic, heuristic, options.capacity),
        ):
            written = produce_stream(bootstrap, topic, write_rates, options.size)
            sleep(TAIL)
            end = time()
        handled = np.loadtxt(file, ndmin=2)
    figures = _summarize_run(heuristic, consumers, written, handled, (options, end))
    print(_find_figure_formats(figures, options.late), file=sys.stderr)
    return figures


@contextmanager
def _run_consumers(
    bootstrap: str, topic: str, heuristic: str, count: int, capacity: float, file: Path
) -> Iterator[None]:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": topic,
        "topic": topic,
        "heartbeat.interval.ms": 250,
        "session.timeout.ms": 10_000,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 1000,
    }
    if heuristic != "range":
        settings["trimtab.heuristic"] = heuristic
    client = "plain" if heuristic == "range" else "trimtab"
    words = (client, str(count), str(capacity), str(file), json.dumps(settings))
    with subprocess.Popen(
        [sys.executable, "-m", HOST, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as host:
        assert host.stdout is not None
        host.stdout.readline()
        try:
            yield
        finally:
            host.communicate()


@contextmanager
def _run_sidecar(bootstrap: str, group: str, heuristic: str, capacity: float) -> Iterator[None]:
    """Run a sidecar that places partitions, with a fixed number of consumers."""
    if heuristic == "range":
        yield
        return
    words = f"""--bootstrap {bootstrap} --group {group} --topics {group} --heuristic {heuristic}
        --capacity {capacity / 1000:g}kB/s --interval 2s --window 6s --cooldown 4s --max 100
        --set offset-reset=earliest --set drain-retry=6s"""
    command = [sys.executable, "-m", "trimtab.cli", "sidecar", *words.split()]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as sidecar:
        try:
            yield
        finally:
            sidecar.terminate()


def _summarize_run(
    heuristic: str,
    consumers: int,
    written: Sequence[float],
    handled: np.ndarray[Any, np.dtype[np.float64]],
    when: tuple[Namespace, float],
) -> Figures:
    """Return the figures of the records written after the settling time; ages count up to the end."""
    options, end = when
    begin = written[0] + options.settle
    inside = handled[handled[:, 0] >= begin]
    every = np.array([w for w in written if w >= begin])
    missing = len(every) - len(inside)
    ages = end - np.sort(every)[len(every) - missing :]  # the youngest: a lower bound
    latency = np.concatenate([inside[:, 1], ages])
    size = np.concatenate([inside[:, 2], np.full(missing, float(options.size))])
    return Figures(heuristic, consumers, latency, size, missing)


def match_consumer_hours(
    bootstrap: str, runs: list[Figures], write_rates: WriteRates, options: Namespace
) -> dict[str, int | None]:
    """Return the consumers that each count-based heuristic needs; None if the maximum does not suffice.

    Appends its runs to `runs`.
    """
    first = {f.heuristic: f for f in runs}
    aim = 2 * first["steady"].percentile(99)
    needs: dict[str, int | None] = {}
    for heuristic in (h for h in COUNT_BASED if h in first):
        needs[heuristic] = options.consumers if first[heuristic].percentile(99) <= aim else None
        for share in MORE:
            if needs[heuristic] is not None:
                break
            count = round(share * options.consumers)
            runs.append(run_heuristic(bootstrap, heuristic, count, write_rates, options))
            if runs[-1].percentile(99) <= aim:
                needs[heuristic] = count
    return needs


def _find_figure_formats(of: Figures, late: float) -> str:
    return (
        f"{of.heuristic} with {of.consumers}: p50 {of.percentile(50):.2f} s, "
        f"p99 {of.percentile(99):.2f} s, p99.9 {of.percentile(99.9):.2f} s, "
        f"late {of.late(late):.1%}, {len(of.latency)} records, {of.unhandled} not handled"
    )


def print_table(runs: Sequence[Figures], options: Namespace) -> None:
    """Print a table with a row per run."""
    table = Table(title="seconds from produced to handled")
    for column in ("", "consumers", "p50 s", "p99 s", "p99.9 s", "late", "records", "not handled"):
        table.add_column(column, justify="right" if column else "left")
    for of in runs:
        seconds = (f"{of.percentile(p):.2f}" for p in (50, 99, 99.9))
        late = f"{of.late(options.late):.1%}"
        counts = (str(len(of.latency)), str(of.unhandled))
        table.add_row(of.heuristic, str(of.consumers), *seconds, late, *counts)
    Console(width=120).print(table)


def _collect_result(
    runs: Sequence[Figures], matched: Mapping[str, int | None], options: Namespace
) -> dict[str, Any]:
    equal = [f for f in runs if f.consumers == options.consumers]
    return {
        "p50_s": {f.heuristic: round(f.percentile(50), 3) for f in equal},
        "p99_s": {f.heuristic: round(f.percentile(99), 3) for f in equal},
        "p999_s": {f.heuristic: round(f.percentile(99.9), 3) for f in equal},
        "late_share": {f.heuristic: round(f.late(options.late), 4) for f in equal},
        "late_s": options.late,
        "consumers": options.consumers,
        "consumers_needed": dict(matched),
        "seconds": options.seconds,
    }


if __name__ == "__main__":
    main()
