"""Autoscaling by Trimtab compared with KEDA's kafka scaler, with the same load and the same pods.

The embedded broker gets a skewed load with a wave and a flash crowd (`autoscale_load`), once per
side. The consumers are processes with a limited capacity, run as pods of a Deployment on a real API
server and controller manager, with the same heartbeat, session timeout and commit interval on both
sides.

- trimtab: Trimtab's consumer, and the sidecar with target `kubernetes` and its default heuristic.
- keda: confluent-kafka's consumer with cooperative-sticky, KEDA 2.21 with its `kafka` scaler, and
  the HPA. On SIGTERM a pod commits and leaves the group.

Time is compressed: a run represents one `--factor` times as long (240 s x 15: one hour), and both
sides use their default times divided by that factor: the HPA's sync period (15 s) and scale-down
window (300 s), the sidecar's interval (10 s) and scale-in window (120 s), and so on
(`autoscale_steer`). Process start, join and handover are not compressed: they take a minute of that
hour, a typical time for images and JVMs.

KEDA scales to lag / lagThreshold replicas, so a group that needs n consumers settles at a lag of n
thresholds: the threshold sets the latency, in records that one consumer handles in that time. KEDA's
documentation gives no rule; the default of 10 records requests the maximum at any lag. The benchmark
tries the records that one consumer handles in KEDA's polling interval (30 s) and in half of it, and
compares Trimtab with the best KEDA run by the targets: at most 0.8 times KEDA's consumer-hours and
half of its late traffic.

A record is late if it is handled more than `--late` seconds after its production (4 s: one minute of
that hour). Consumer-hours are process lifetimes. `within_one` is the share of the time in which the
number of processes differs by at most one from the minimum that packs the write rates into whole
capacities. `burst` is the maximum ratio of written to planned records in two seconds: on a busy
machine the producer may pause and catch up, on both sides.

Needs the programs of `tests/cluster` and PYTHONPATH=tests: `make bench-autoscale` provides both.
"""

import json
import os
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager
from multiprocessing import get_context
from pathlib import Path
from time import sleep, time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import harness
from benchmarks.autoscaling import autoscale_figures as figures
from benchmarks.autoscaling import autoscale_plot
from benchmarks.autoscaling.autoscale_figures import Figures, RunLog
from benchmarks.autoscaling.autoscale_load import count_needed_consumers, generate_write_rates
from benchmarks.autoscaling.autoscale_rig import Rig, Watch, run_pods, run_rig
from benchmarks.autoscaling.autoscale_steer import (
    COMMITS,
    HPA_LOOKS,
    HPA_SCALE_IN,
    POLLING,
    SCALE_IN,
    Times,
    steer_by_keda,
    steer_by_trimtab,
)
from benchmarks.stream import TICK, WriteRates, produce_stream
from cluster.binaries import KEDAS, NAMES, there
from cluster.build import keda_source
from cluster.generations import generations

HOST = "benchmarks.autoscaling.autoscale_host"
AT_FIRST = 2
"""Replicas before an autoscaler runs."""
SETTLE = 16.0
"""Seconds of settling before the measurement: windows fill and the replica count stabilizes."""
TAIL = 4.0
"""Seconds after the last record until the ages of unhandled records are taken."""
REMEDY = (
    "`make kubernetes` builds the programs once into a cache (half an hour; it needs Go), or "
    "KUBEBUILDER_ASSETS names their folder"
)


def main() -> None:
    options = _parse_arguments()
    if missing := find_missing():
        say_missing(missing)
        return
    write_rates = generate_write_rates(options.seconds, options.partitions, options.capacity, options.seed)
    thresholds = options.thresholds or _list_thresholds(options)
    with (
        tempfile.TemporaryDirectory() as folder,
        harness.broker(options.bootstrap) as bootstrap,
        run_rig(Path(folder), HPA_LOOKS / options.factor) as on,
    ):
        bench = Bench(on, bootstrap, write_rates, options)
        ours = bench.run()
        theirs = [bench.run(threshold) for threshold in thresholds]
    best = figures.find_hardest_run(ours, theirs)
    print_table([ours, *theirs], options)
    if options.plot:
        consumers = (write_rates.sum(axis=1) / options.capacity).tolist()
        autoscale_plot.draw_runs(options.plot, {"trimtab": ours, "keda": best}, consumers, options.late)
        print(f"plot: {options.plot}")
    harness.result(_collect_result(ours, best, theirs, options))


def find_missing() -> list[str]:
    """Return the missing programs; a benchmark builds none."""
    missing = [name for name in (*NAMES, *KEDAS) if there(name) is None]
    try:
        keda_source()
    except (OSError, RuntimeError) as error:
        missing.append(f"the Go module of KEDA ({error})")
    return missing


def say_missing(missing: list[str]) -> None:
    """Tell which programs are missing, and how to get them."""
    print(f"not run, missing: {', '.join(missing)}. {REMEDY}", file=sys.stderr)
    harness.result({"not_run": missing})


def _parse_arguments() -> Namespace:
    arguments = harness.parser(__doc__ or "")
    arguments.add_argument("--seconds", type=float, default=60, help="measured seconds per run")
    arguments.add_argument("--factor", type=float, default=15, help="time compression")
    arguments.add_argument(
        "--thresholds",
        type=int,
        nargs="+",
        help="KEDA's lagThresholds, in records (default: half a polling interval)",
    )
    arguments.add_argument(
        "--scale-in", type=float, default=SCALE_IN, help="the sidecar's scale-in window, seconds"
    )
    arguments.add_argument(
        "--hpa-scale-in", type=float, default=HPA_SCALE_IN, help="the HPA's scale-down window, seconds"
    )
    arguments.add_argument("--partitions", type=int, default=32)
    arguments.add_argument("--capacity", type=float, default=40_000, help="bytes/s of a consumer")
    arguments.add_argument("--size", type=int, default=400, help="bytes of a record")
    arguments.add_argument("--late", type=float, default=4, help="latency limit, seconds")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--plot", type=Path, help="write the plot to this file")
    arguments.add_argument("--logs", type=Path, help="write the sidecar's log to this file")
    return arguments.parse_args()


def _list_thresholds(options: Namespace) -> list[int]:
    """Return the records that one consumer handles in half of KEDA's polling interval."""
    return [round(options.capacity / options.size * POLLING / options.factor / 2)]


class Bench:
    """The environment and the load of all runs."""

    def __init__(self, on: Rig, bootstrap: str, write_rates: WriteRates, options: Namespace) -> None:
        self._on = on
        self._bootstrap = bootstrap
        self._options = options
        self._needed = count_needed_consumers(write_rates, options.capacity)
        self._planned = (write_rates.sum(axis=1) * TICK / options.size).tolist()
        before = np.repeat(write_rates[:1], round(SETTLE / TICK), axis=0)
        self._write_rates = np.concatenate([before, write_rates])

    def run(self, threshold: int = 0) -> Figures:
        """Measure KEDA with a lag threshold, or Trimtab without one."""
        called, client = (f"keda, lag {threshold}", "plain") if threshold else ("trimtab", "trimtab")
        return self.run_side(called, client, AT_FIRST, lambda name: self._steered(name, threshold))

    def run_side(
        self, called: str, client: str, replicas: int, steer: Callable[[str], AbstractContextManager[None]]
    ) -> Figures:
        """Measure one side, from so many replicas; `steer` scales the workload of this name."""
        name = harness.new_topic(self._bootstrap, self._options.partitions)
        watch = Watch(self._on, self._bootstrap, name)
        with tempfile.TemporaryDirectory() as folder:
            with run_pods(self._on, name, replicas, self._command(client, name, folder)):
                watch.formed(min(replicas, self._options.partitions))
                with watch.sampling(), steer(name):
                    written = self._written(name)
                    sleep(TAIL)
                    end = time()
            records = figures.read_handled_records(Path(folder))
        rebalanced = generations(self._bootstrap, name)
        begin, at = written[0] + SETTLE, np.array(written)
        observed = (watch.samples, watch.deleted, rebalanced)
        log = RunLog(begin, end, at, records, *observed, self._needed, self._planned)
        run_figures = figures.summarize_run(called, log, self._options.late)
        self._print_figures(run_figures, name)
        return run_figures

    def _written(self, topic: str) -> list[float]:
        """Write the load from a separate process, so that this one cannot delay it."""
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            size = self._options.size
            return pool.submit(produce_stream, self._bootstrap, topic, self._write_rates, size).result()

    def _steered(self, name: str, threshold: int) -> AbstractContextManager[None]:
        times = Times(self._options.factor, self._options.scale_in, self._options.hpa_scale_in)
        if threshold:
            return steer_by_keda(self._on, self._bootstrap, name, threshold, times)
        return steer_by_trimtab(self._on, self._bootstrap, name, self._options.capacity, times)

    def _command(self, client: str, name: str, folder: str) -> list[str]:
        settings = {
            "bootstrap.servers": self._bootstrap,
            "group.id": name,
            "topic": name,
            "heartbeat.interval.ms": 250,
            "session.timeout.ms": 10_000,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": round(COMMITS / self._options.factor * 1000),
        }
        words = (client, "$(POD_NAME)", f"{folder}/$(POD_NAME)", str(self._options.capacity))
        return [sys.executable, "-m", HOST, *words, json.dumps(settings)]

    def _print_figures(self, of: Figures, name: str) -> None:
        print(f"{of.side}: {of.rounded}, load average {os.getloadavg()[0]:.1f}", file=sys.stderr)
        log = self._on.plane.folder / f"{name}.log"
        if self._options.logs and log.exists():
            self._options.logs.write_text(log.read_text())


def print_table(runs: Sequence[Figures], options: Namespace) -> None:
    """Print a table with a row per figure and a column per run."""
    table = Table(title=f"late: more than {options.late:g} s; load average {os.getloadavg()[1]:.1f}")
    table.add_column("")
    for of in runs:
        table.add_column(of.side, justify="right")
    rounded = [of.rounded for of in runs]
    for name in rounded[0]:
        table.add_row(name, *(str(of[name]) for of in rounded))
    Console(width=100).print(table)


def _collect_result(
    ours: Figures, best: Figures, theirs: Sequence[Figures], options: Namespace
) -> dict[str, Any]:
    return {
        "trimtab": ours.rounded,
        "keda": best.rounded,
        "kedas": {of.side: of.rounded for of in theirs},
        "held_against": best.side,
        "hours_of_kedas": round(ours.consumer_hours / best.consumer_hours, 3),
        "late_of_kedas": round(ours.late_traffic / max(best.late_traffic, 1e-9), 3),
        "late_s": options.late,
        "seconds": options.seconds,
        "factor": options.factor,
        "load_average": round(os.getloadavg()[2], 1),
    }


if __name__ == "__main__":
    main()
