"""Latency by heuristic: produced to handled, while the load wanders and the group is rebalanced.

32 partitions whose write speeds follow a random walk (the paper's, cubed: a few partitions write
most), scaled so that the sum is always the same share of what the consumers can do together. The
same number of throttled consumers for everybody, who read the same load from the same embedded
broker, one heuristic after the other. Those of ours are led by the sidecar, which measures the
speeds and publishes a new plan when a consumer is overfilled, every few seconds at most; `range` is
Kafka's own by an ordinary confluent-kafka consumer. Then the count-based ones (`sticky`, `range`)
are given more consumers, until their p99 is at most twice that of `steady`.

A record that is not handled at the end counts with its age then: nobody wins by not reading.
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

import harness
import latency_plot
import numpy as np
from rich.console import Console
from rich.table import Table
from stream import TICK, Speeds, produce

from trimtab.assignor.analysis.streams.generators import RandomWalk

HOST = Path(__file__).parent / "latency_host.py"
HEURISTICS = ("steady", "mwf", "bfd", "lag-aware", "sticky", "range")
COUNT_BASED = ("sticky", "range")
MORE = (1.25, 1.5, 1.75, 2.0)
"""Shares of the consumers that the count-based ones are given, one after the other."""
TAIL = 10.0
"""Seconds after the last record before the age of what was not handled counts."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one run: seconds from produced to handled of each record, and its weight in bytes."""

    heuristic: str
    consumers: int
    latency: np.ndarray[tuple[int], np.dtype[np.float64]]
    size: np.ndarray[tuple[int], np.dtype[np.float64]]
    unhandled: int

    def percentile(self, percent: float) -> float:
        """Return seconds."""
        return float(np.percentile(self.latency, percent))

    def late(self, limit: float) -> float:
        """Return the share of the bytes that were handled later than `limit` seconds."""
        return float(self.size[self.latency > limit].sum() / self.size.sum())


def main() -> None:
    given = _arguments()
    speeds = load(given)
    with harness.broker(given.bootstrap) as bootstrap:
        found = [run(bootstrap, h, given.consumers, speeds, given) for h in given.heuristics]
        matched = match(bootstrap, found, speeds, given) if given.match else {}
    show(found, given)
    if given.plot:
        latency_plot.draw(given.plot, found[: len(given.heuristics)])
        print(f"plot: {given.plot}")
    harness.result(_result(found, matched, given))


def _arguments() -> Namespace:
    arguments = harness.parser(__doc__ or "")
    arguments.add_argument("--heuristics", nargs="+", choices=HEURISTICS, default=HEURISTICS)
    arguments.add_argument("--consumers", type=int, default=8)
    arguments.add_argument("--partitions", type=int, default=32)
    arguments.add_argument("--capacity", type=float, default=50_000, help="bytes/s of a consumer")
    arguments.add_argument("--fill", type=float, default=0.75, help="share of it that is written")
    arguments.add_argument("--size", type=int, default=500, help="bytes of a record")
    arguments.add_argument("--seconds", type=float, default=30, help="measured, of each run")
    arguments.add_argument("--settle", type=float, default=15, help="seconds before them")
    arguments.add_argument("--late", type=float, default=2, help="seconds from which it is late")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--match", action="store_true", help="give the count-based ones more")
    arguments.add_argument("--plot", type=Path, help="write a picture there")
    return arguments.parse_args()


def load(given: Namespace) -> Speeds:
    """Return the load; no partition writes more than nine tenths of what one consumer can do."""
    ticks = int((given.settle + given.seconds) / TICK) + 1
    walk = RandomWalk(10.0, given.partitions, ticks, capacity=1.0).generate_stream(
        np.random.default_rng(given.seed)
    )
    skewed = walk.rates**3
    total = given.fill * given.consumers * given.capacity
    scaled = skewed / skewed.sum(axis=1, keepdims=True) * total
    return np.minimum(scaled, 0.9 * given.capacity)


def run(bootstrap: str, heuristic: str, consumers: int, speeds: Speeds, given: Namespace) -> Figures:
    """Measure one heuristic."""
    topic = harness.new_topic(bootstrap, given.partitions)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "handled"
        with (
            _consumers(bootstrap, topic, heuristic, consumers, given.capacity, file),
            _sidecar(bootstrap, topic, heuristic, given.capacity),
        ):
            written = produce(bootstrap, topic, speeds, given.size)
            sleep(TAIL)
            end = time()
        handled = np.loadtxt(file, ndmin=2)
    figures = _figures(heuristic, consumers, written, handled, (given, end))
    print(_told(figures, given.late), file=sys.stderr)
    return figures


@contextmanager
def _consumers(
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
        [sys.executable, str(HOST), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as host:
        assert host.stdout is not None
        host.stdout.readline()
        try:
            yield
        finally:
            host.communicate()


@contextmanager
def _sidecar(bootstrap: str, group: str, heuristic: str, capacity: float) -> Iterator[None]:
    """Lead the group with the sidecar; it has no say in how many consumers there are."""
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


def _figures(
    heuristic: str,
    consumers: int,
    written: Sequence[float],
    handled: np.ndarray[Any, np.dtype[np.float64]],
    when: tuple[Namespace, float],
) -> Figures:
    """Look at what was written after the settling; what was handled after the end counts so far."""
    given, end = when
    begin = written[0] + given.settle
    inside = handled[handled[:, 0] >= begin]
    every = np.array([w for w in written if w >= begin])
    missing = len(every) - len(inside)
    ages = end - np.sort(every)[len(every) - missing :]  # the youngest: a lower bound
    latency = np.concatenate([inside[:, 1], ages])
    size = np.concatenate([inside[:, 2], np.full(missing, float(given.size))])
    return Figures(heuristic, consumers, latency, size, missing)


def match(bootstrap: str, found: list[Figures], speeds: Speeds, given: Namespace) -> dict[str, int | None]:
    """Return how many consumers a count-based one needs; None where the most is not enough.

    The runs are added to `found`.
    """
    first = {f.heuristic: f for f in found}
    aim = 2 * first["steady"].percentile(99)
    needs: dict[str, int | None] = {}
    for heuristic in (h for h in COUNT_BASED if h in first):
        needs[heuristic] = given.consumers if first[heuristic].percentile(99) <= aim else None
        for share in MORE:
            if needs[heuristic] is not None:
                break
            count = round(share * given.consumers)
            found.append(run(bootstrap, heuristic, count, speeds, given))
            if found[-1].percentile(99) <= aim:
                needs[heuristic] = count
    return needs


def _told(of: Figures, late: float) -> str:
    return (
        f"{of.heuristic} with {of.consumers}: p50 {of.percentile(50):.2f} s, "
        f"p99 {of.percentile(99):.2f} s, p99.9 {of.percentile(99.9):.2f} s, "
        f"late {of.late(late):.1%}, {len(of.latency)} records, {of.unhandled} not handled"
    )


def show(found: Sequence[Figures], given: Namespace) -> None:
    """Print a table, a line a run."""
    table = Table(title="seconds from produced to handled")
    for column in ("", "consumers", "p50 s", "p99 s", "p99.9 s", "late", "records", "not handled"):
        table.add_column(column, justify="right" if column else "left")
    for of in found:
        seconds = (f"{of.percentile(p):.2f}" for p in (50, 99, 99.9))
        late = f"{of.late(given.late):.1%}"
        counts = (str(len(of.latency)), str(of.unhandled))
        table.add_row(of.heuristic, str(of.consumers), *seconds, late, *counts)
    Console(width=120).print(table)


def _result(found: Sequence[Figures], matched: Mapping[str, int | None], given: Namespace) -> dict[str, Any]:
    equal = [f for f in found if f.consumers == given.consumers]
    return {
        "p50_s": {f.heuristic: round(f.percentile(50), 3) for f in equal},
        "p99_s": {f.heuristic: round(f.percentile(99), 3) for f in equal},
        "p999_s": {f.heuristic: round(f.percentile(99.9), 3) for f in equal},
        "late_share": {f.heuristic: round(f.late(given.late), 4) for f in equal},
        "late_s": given.late,
        "consumers": given.consumers,
        "consumers_needed": dict(matched),
        "seconds": given.seconds,
    }


if __name__ == "__main__":
    main()
